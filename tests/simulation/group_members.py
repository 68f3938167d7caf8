"""A consumer of the classic protocol as a program over raw requests: it joins, leads, lives, freezes and comes back."""

import json
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api13_leave_group as m13
from fencepost.protocol.topics import TopicPartition
from tests.kit.determinism import nap
from tests.simulation.group_base import AGAIN_S, BEAT_S, GROUP
from tests.simulation.group_ledger import Holder
from tests.simulation.group_offsets import named
from tests.simulation.group_process import STALE, Process
from tests.simulation.sim_readers import ask_offsets

if TYPE_CHECKING:
    from tests.simulation.group_world import GroupWorld

TOPIC, PROTOCOL = "in", "sim"


class Out(Exception):
    """The member is not in its generation any more: what it owned is lost."""


class Again(Exception):
    """The group rebalances: the member is to join again."""


class Fenced(Exception):
    """Somebody else has the member's static place: it must end."""


class Member(Process):
    """One incarnation. What it owns is lost as soon as it learns that it is out."""

    owner: Holder
    _world: "GroupWorld"

    def __init__(self, world: "GroupWorld", name: str, random: Random, version: int, instance_id: str | None) -> None:
        super().__init__(world, Holder(name, instance_id), random)
        self._version = version
        self._positions: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Be a member until cancelled or fenced."""
        try:
            while True:
                try:
                    await self._join()
                    await self._stay()
                except Again:
                    await self._give_up_for_rebalance()
                except Out:
                    self._lose()
        except Fenced:
            self._world.tell(f"{self.owner.name} is fenced")
        finally:
            self._world.books.gave_up(self.owner)
            self.close()

    def _lose(self) -> None:
        self._world.books.gave_up(self.owner)
        self._positions.clear()

    async def _give_up_for_rebalance(self) -> None:
        """Eager members commit and give up all; cooperative ones keep what they have while they join again."""
        if self._world.plan.cooperative:
            return
        if self._positions and self._random.random() < 0.7:
            try:
                await self._commit(self.owner.epoch)
            except (Again, Out):
                pass  # too late for that: whoever gets the partitions reads the last ones again
        self._lose()

    # Joining

    async def _join(self) -> None:
        """Until there is an assignment. Raises Out, Again and Fenced."""
        self._world.books.joining(self.owner)
        owned = {"owned": sorted(one.partition for one in self.owner.owned), "generation": self.owner.epoch}
        protocols = [(PROTOCOL, json.dumps(owned).encode())]
        while True:
            answer = await self.join(self._line, self._version, self.member_id, protocols)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode(answer.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif code is ErrorCode.NONE:
                break
            elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.member_id = ""
                raise Out
            elif code is ErrorCode.FENCED_INSTANCE_ID:
                raise Fenced
            else:
                await nap(AGAIN_S)
        self.member_id = answer.member_id
        await self._sync(answer)

    async def _sync(self, joined: Any) -> None:
        given: list[tuple[str, bytes]] = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            shares = shared_out(
                {one.member_id: json.loads(one.metadata) for one in joined.members},
                self._world.sizes[TOPIC],
                cooperative=self._world.plan.cooperative,
            )
            given = [(member_id, json.dumps(share).encode()) for member_id, share in shares.items()]
            for one in joined.members:
                if one.group_instance_id is not None and set(json.loads(one.metadata)["owned"]) - {
                    *shares[one.member_id]
                }:
                    self._world.owes_join[one.group_instance_id] = joined.generation_id
        version, generation = 5 if self._version >= 7 else 3, joined.generation_id
        while True:
            sent_at = trio.current_time()
            answer = await self.sync(self._line, version, self.member_id, generation, PROTOCOL, given)
            if answer is not None and not self._retry(ErrorCode(answer.error_code)):
                break
            await nap(AGAIN_S)
        share = frozenset(TopicPartition(TOPIC, at) for at in json.loads(answer.assignment or b"[]"))
        revoked = self.owner.owned.keys() - share
        if revoked:
            if self._random.random() < 0.7:
                await self._commit(generation)
            self._world.books.gave_up(self.owner, revoked)
            self._positions = {p: offset for p, offset in self._positions.items() if p in share}
        self._world.books.told(self.owner, generation, share, sent_at)
        self._world.tell(f"{self.owner.name} owns {named(share)} in generation {generation}")
        await self._find_positions()
        if revoked:
            raise Again  # what was given up may now be handed out
        if self._world.owes_join.get(self.owner.instance_id) == generation:
            # Its forerunner had to give something up and died before it joined again. The coordinator leaves a stable
            # group as it is when a static place changes hands, Kafka's as ours, and no client knows: an operator helps.
            self._world.tell(f"{self.owner.name} is told to join again in its forerunner's place")
            self._world.owes_join[self.owner.instance_id] = -1
            raise Again

    def _retry(self, code: ErrorCode) -> bool:
        """Whether to ask the same again. Raises what the code means for a member."""
        if code is ErrorCode.NONE:
            return False
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            raise Again
        if code is ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if code in STALE:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            raise Out
        return True

    # Living

    async def _stay(self) -> None:
        """Heartbeats and commits until something comes in between. Raises Out, Again and Fenced."""
        while True:
            await self.pause()
            await nap(self._random.uniform(0.2, 1.0) * BEAT_S)
            if self._random.random() < 0.4:
                await self._beat()
            elif self._positions:
                for partition in self._positions:
                    self._positions[partition] += self._random.randint(0, 3)
                await self._commit(self.owner.epoch)
            else:
                await self._beat()

    async def _beat(self) -> None:
        sent_at = trio.current_time()
        answer = await self.beat(self._line, self.member_id, self.owner.epoch)
        if answer is not None and not self._retry(ErrorCode(answer.error_code)):
            self._world.books.in_touch(self.owner, sent_at)

    async def _commit(self, generation: int) -> None:
        """Say how far it is. Raises Out, Again and Fenced."""
        if self._positions:
            say = self.transact if self._world.plan.transactional else self.commit
            code = await say(generation, dict(self._positions))
            if code is not None:
                self._retry(code)

    async def _find_positions(self) -> None:
        """Where to go on with what is new."""
        wanted = sorted(self.owner.owned.keys() - self._positions.keys())
        while wanted:
            floor = dict(self._world.books.floor)
            found = await ask_offsets(self._line, GROUP, wanted)
            if found is not None:
                self._world.books.read(self.owner.name, floor, found)
                self._positions |= found
                return
            await nap(AGAIN_S)
            await self._beat()  # a transaction of the one before may have to time out first

    async def leave(self) -> None:
        """Go in order; the answer does not matter."""
        name = m13.MemberIdentity(member_id=self.member_id, group_instance_id=self.owner.instance_id)
        self._world.books.gave_up(self.owner)
        await self.ask(self._line, 4, m13.LeaveGroupRequest(group_id=GROUP, members=[name]))
        self.close()


def shared_out(members: dict[str, Any], partitions: int, *, cooperative: bool) -> dict[str, list[int]]:
    """Who gets what. Cooperative: nobody is given what another member still owns (KIP-429)."""
    names = sorted(members)
    if not cooperative:
        return {name: [p for p in range(partitions) if p % len(names) == at] for at, name in enumerate(names)}
    owners: dict[int, tuple[int, str]] = {}
    for name in names:
        for partition in members[name]["owned"]:
            owners[partition] = max(owners.get(partition, (-1, "")), (members[name]["generation"], name))
    fair = -(-partitions // len(names))
    shares: dict[str, list[int]] = {name: [] for name in names}
    for partition, (_, name) in sorted(owners.items()):
        if len(shares[name]) < fair:
            shares[name].append(partition)
    for partition in range(partitions):
        if partition not in owners:
            min(shares.values(), key=len).append(partition)
    return shares
