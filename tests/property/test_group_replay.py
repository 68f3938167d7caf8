"""Whatever members and transactions do, the log alone gives the same groups and positions back (G8; T5).

The live broker hears of a marker some time after it is in the log: the machine leaves room for that.
"""

from collections.abc import Callable
from typing import Any

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from fencepost.coordinator.group.commands import MemberName
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.records import persisted_member
from fencepost.coordinator.group.shard_state import GroupRecords, GroupShardState
from fencepost.coordinator.group.state import Empty, Group, Stable
from fencepost.coordinator.ports import ProducerTag
from fencepost.protocol.topics import TopicPartition
from tests.kit.examples import examples
from tests.unit.group import kit

PARTITIONS = st.sampled_from([TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)])
PRODUCERS = st.sampled_from([7, 8])
GROUPS = st.sampled_from(["g", "h"])


def survives(group: Group) -> Group | None:
    """What of a group has to come back; None where the log may be behind (a rebalance is under way)."""
    if isinstance(group, Stable):
        members = {key: persisted_member(member, group.protocol) for key, member in group.members.items()}
        return Stable(group.generation, group.protocol_type, group.protocol, group.leader, members)
    return Empty(group.generation, group.protocol_type, group.since_ms) if isinstance(group, Empty) else None


class GroupWorld(RuleBasedStateMachine):
    """One broker's groups; every rule is one thing a client, a coordinator or an administrator does."""

    members = Bundle("members")

    @initialize()
    def start(self) -> None:
        self.world = self.run(self._make)
        self.unheard: list[tuple[int, bool]] = []

    async def _make(self) -> kit.World:
        return kit.World(GroupConfig(), kit.CoordinatorLogs(1))

    def run(self, act: Callable[[], Any]) -> Any:
        """Run one coroutine of the service, given up where it would wait for other members."""

        async def main() -> Any:
            with trio.move_on_after(0.001):
                return await act()
            return None

        return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))

    @rule(target=members, instance_id=st.sampled_from([None, "i", "j"]))
    def newcomer(self, instance_id: str | None) -> str:
        before = {*self.ids()}
        command = {"member_id_required": False, "group_instance_id": instance_id}
        self.run(lambda: self.world.join(**command))
        return next(iter({*self.ids()} - before), "nobody")

    def ids(self) -> list[str]:
        return list(getattr(self.world.group(), "members", ()))

    @rule(member_id=members, protocol=st.sampled_from([b"m", b"n"]))
    def rejoin(self, member_id: str, protocol: bytes) -> None:
        self.run(lambda: self.world.join(member_id, protocols=(("range", protocol),)))

    @rule(member_id=members)
    def sync(self, member_id: str) -> None:
        generation = getattr(self.world.group(), "generation", 0)
        assignments = tuple((one, one.encode()) for one in self.ids())
        self.run(lambda: self.world.sync(member_id, generation, assignments=assignments))

    @rule()
    def come_to_rest(self) -> None:
        # Twice: whoever comes back with another protocol than before begins one more rebalance.
        for member_id in self.ids() * 2:
            self.rejoin(member_id, b"m")
        for member_id in self.ids():
            self.sync(member_id)
        assert not self.ids() or isinstance(self.world.group(), Stable)

    @rule()
    def all_leave(self) -> None:
        names = [MemberName(member_id) for member_id in self.ids()]
        self.run(lambda: self.world.service.classic.leave("g", names))

    @rule(member_id=members)
    def leave(self, member_id: str) -> None:
        self.run(lambda: self.world.service.classic.leave("g", [MemberName(member_id)]))

    @rule(group_id=GROUPS, partition=PARTITIONS, offset=st.integers(0, 99))
    def commit(self, group_id: str, partition: TopicPartition, offset: int) -> None:
        self.run(lambda: self.world.service.positions.commit(kit.commit(offset, partition, group_id)))

    @rule(group_id=GROUPS, partition=PARTITIONS, offset=st.integers(100, 199), producer_id=PRODUCERS)
    def commit_in_transaction(self, group_id: str, partition: TopicPartition, offset: int, producer_id: int) -> None:
        if all(producer_id != ended for ended, _ in self.unheard):
            command = kit.commit(offset, partition, group_id, producer=ProducerTag(producer_id, 0))
            self.run(lambda: self.world.service.positions.commit(command))

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def marker(self, producer_id: int, commit: bool) -> None:
        if all(producer_id != ended for ended, _ in self.unheard):
            self.world.log_of().append_marker(producer_id, commit)
            self.unheard.append((producer_id, commit))

    @rule()
    def hear_of_a_marker(self) -> None:
        if self.unheard:
            self.world.service.complete_transaction(0, *self.unheard.pop())

    @rule(group_id=GROUPS)
    def delete(self, group_id: str) -> None:
        self.run(lambda: self.world.service.admin.delete_groups([group_id]))

    @rule(topic=st.sampled_from(["t", "u"]))
    def topic_deleted(self, topic: str) -> None:
        async def delete() -> None:
            self.world.service.topics_deleted([topic])

        self.run(delete)

    @invariant()
    def replay_gives_the_same(self) -> None:
        if self.unheard:
            return
        live, replayed = self.world.service._shards.of("g").state, GroupShardState()
        assert sum(GroupRecords().replay(replayed, batch) for batch in self.world.log_of().replay()) == 0
        for group_id in ("g", "h"):
            assert positions(live, group_id) == positions(replayed, group_id)
            now = live.group(group_id)
            if isinstance(now, Stable) or (isinstance(now, Empty) and not now.pending):
                assert survives(replayed.group(group_id)) == survives(now)
        assert live.offsets.count == replayed.offsets.count

    def teardown(self) -> None:
        while self.unheard:
            self.hear_of_a_marker()
        self.replay_gives_the_same()


def positions(ledger: GroupShardState, group_id: str) -> list[object]:
    """The visible and the pending positions of a group."""
    return [sorted(ledger.offsets.committed(group_id)), sorted(ledger.offsets.pending(group_id))]


TestReplay = GroupWorld.TestCase
TestReplay.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
