"""What a member of a group may count on, in the classic protocol and in KIP-848's: subscription, callbacks, commits."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition
from fencepost.client import CommittedOffset, GroupMetadata, committing
from fencepost.client.errors import error_for
from tests.integration.client.test_groups import create, until
from tests.kit.broker_process import BrokerProcess

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
GIVEN = os.environ.get("FENCEPOST_TEST_BOOTSTRAP")
PATIENCE_S = 40 if GIVEN is None else 100
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
CONSUMER = {"group_protocol": "consumer"}
WAYS = {"eager": {}, "cooperative": COOPERATIVE, "consumer": CONSUMER}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that misses members soon; FENCEPOST_TEST_BOOTSTRAP names another one than ours."""
    if GIVEN is not None:
        yield GIVEN
        return
    with BrokerProcess(tmp_path_factory.mktemp("groups"), settings=QUICK_GROUPS) as broker:
        yield broker.address


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, object]:
    """Each way of being a member."""
    return {**WAYS[request.param], "heartbeat_interval_ms": 50, "session_timeout_ms": 2_000 if GIVEN is None else 6_000}


class Heard:
    """What the callbacks of a member were told."""

    def __init__(self) -> None:
        self.words: list[tuple[str, list[int]]] = []

    def options(self) -> dict[str, object]:
        return {"on_assigned": self.assigned, "on_revoked": self.revoked, "on_lost": self.lost}

    async def assigned(self, consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= consumer.assignment
        self.words.append(("assigned", sorted(one.partition for one in partitions)))

    async def revoked(self, consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= consumer.assignment, "a commit still counts"
        self.words.append(("revoked", sorted(one.partition for one in partitions)))

    async def lost(self, consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert not partitions & consumer.assignment
        self.words.append(("lost", sorted(one.partition for one in partitions)))


@asynccontextmanager
async def reading(consumer: fencepost.Consumer, into: list[bytes] | None = None) -> AsyncIterator[None]:
    """The program at its work: it takes what comes."""
    values = [] if into is None else into

    async def read() -> None:
        async for batch in consumer.batches():
            values.extend(record.value for record in batch)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        yield
        nursery.cancel_scope.cancel()


async def test_members_share_and_hear_of_it(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    """on_assigned and on_revoked; those that need not stop hear only of what changes (KIP-429, KIP-848)."""
    await create(kafka, name, partitions=4, records=4)
    first, second = Heard(), Heard()
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **way, **first.options()) as one, reading(one):
            await until(lambda: len(one.assignment) == 4, "all")
            async with kafka.consumer(name, group=name, **way, **second.options()) as two, reading(two):
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "both have two")
                assert not one.assignment & two.assignment
            await until(lambda: len(one.assignment) == 4, "all again")
    assert first.words[0] == ("assigned", [0, 1, 2, 3])
    taken = second.words[0][1]
    if way.get("group_protocol") or way.get("partition_assignment_strategy"):
        assert first.words[1:] == [("revoked", taken), ("assigned", taken)]
    else:
        assert first.words[1] == ("revoked", [0, 1, 2, 3])
    assert second.words[0][0] == "assigned"


async def test_a_batch_in_hand_holds_off_the_revocation_and_its_commit_counts(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """Also where the generation moves on meanwhile: the partitions are still ours."""
    await create(kafka, name, partitions=2, records=8)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **way) as one:
            batches = one.batches(max_records=100)
            got = len(await anext(batches))
            while got < 8:
                got += len(await anext(batches))
            async with kafka.consumer(name, group=name, **way) as two, reading(two):
                await trio.sleep(0.6)
                assert len(one.assignment) == 2
                await one.commit()
                assert set((await one.committed()).values()) == {4}
                async with reading(one):
                    await until(lambda: len(one.assignment) == len(two.assignment) == 1, "one each")
                assert await two.position(next(iter(two.assignment))) == 4


async def test_what_a_callback_raises_ends_the_clients_block(address: str, name: str, way: dict[str, object]) -> None:
    """Also a KafkaError: it is the program's, and not the membership's."""

    async def breaks(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        raise KafkaError("the store is gone")

    async def run() -> None:
        async with fencepost.Client(address) as kafka:
            await create(kafka, name, partitions=1, records=1)
            async with kafka.consumer(name, group=name, on_assigned=breaks, **way):
                await trio.sleep_forever()

    with trio.fail_after(PATIENCE_S), pytest.raises(KafkaError, match="the store is gone"):
        await run()


async def test_offsets_kept_elsewhere_are_sought_in_on_assigned(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    await create(kafka, name, partitions=1, records=10)

    async def go_to_seven(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition, 7)

    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, on_assigned=go_to_seven, **way) as consumer:
            assert (await anext(aiter(consumer))).offset == 7


async def test_a_moment_to_commit_in_on_revoked(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    await create(kafka, name, partitions=2, records=20)

    async def commit(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        await consumer.commit()

    values: list[bytes] = []
    others: list[bytes] = []
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, on_revoked=commit, **way) as one, reading(one, values):
            await until(lambda: len(values) == 20, "everything is read")
            async with kafka.consumer(name, group=name, **way) as two, reading(two, others):
                await until(lambda: len(two.assignment) == 1, "the second has its share")
                [share] = two.assignment
                assert await two.position(share) == 10
    assert others == []


async def test_a_program_that_does_not_come_back_leaves_and_learns_of_it(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """max.poll.interval.ms: others read on, its commit is refused, on_lost tells, and it may come back."""
    await create(kafka, name, partitions=2, records=8)
    heard = Heard()
    with trio.fail_after(PATIENCE_S):
        options = {**way, **heard.options(), "max_poll_interval_ms": 600}
        async with kafka.consumer(name, group=name, **options) as lazy:
            batches = lazy.batches()
            await anext(batches)
            async with kafka.consumer(name, group=name, **way) as busy, reading(busy):
                await until(lambda: len(busy.assignment) == 2, "the other one has everything")
                assert heard.words[-1][0] == "lost"
                assert not lazy.assignment
                with pytest.raises(KafkaError) as refused:
                    await lazy.commit()
                assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
                async with kafka.transactional_producer(name) as producer:
                    with pytest.raises(fencepost.AbortableError):
                        async with producer.transaction() as txn:
                            await txn.send_offsets(lazy)
                async with reading(lazy):
                    await until(lambda: len(lazy.assignment) == len(busy.assignment) == 1, "it has come back")


async def test_subscriptions_change_at_run_time(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    """subscribe, subscribe to something else, unsubscribe, assign, unsubscribe, subscribe."""
    for suffix in "ab":
        await create(kafka, f"{name}{suffix}", partitions=2, records=2)

    def reads(*suffixes: str) -> bool:
        return consumer.assignment == {TopicPartition(f"{name}{one}", n) for one in suffixes for n in range(2)}

    heard = Heard()
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(group=name, **way) as consumer:
            assert not consumer.assignment
            consumer.subscribe(f"{name}a", **heard.options())  # type: ignore[arg-type]
            async with reading(consumer):
                await until(lambda: reads("a"), "the first")
                consumer.subscribe(f"{name}b", f"{name}a")
                await until(lambda: reads("a", "b"), "both")
                consumer.subscribe(f"{name}b")
                await until(lambda: reads("b"), "the second")
                with pytest.raises(RuntimeError, match="unsubscribe first"):
                    consumer.assign([TopicPartition(f"{name}a", 0)])
            await consumer.unsubscribe()
            assert heard.words[-1] == ("revoked", [0, 1])
            async with kafka.admin() as admin:
                assert not (await admin.describe_group(name)).members
            consumer.assign([TopicPartition(f"{name}a", 1)])
            with pytest.raises(RuntimeError, match="unsubscribe first"):
                consumer.subscribe(f"{name}a")
            assert (await anext(aiter(consumer))).partition == 1
            await consumer.commit()
            await consumer.unsubscribe()
            consumer.subscribe(f"{name}a")
            async with reading(consumer):
                await until(lambda: reads("a"), "as a member again")
                assert await consumer.committed(TopicPartition(f"{name}a", 1)) == {TopicPartition(f"{name}a", 1): 1}


@pytest.mark.parametrize("group", [True, False])
async def test_a_pattern_takes_topics_that_come_later(
    address: str, name: str, way: dict[str, object], group: bool
) -> None:
    """Matched as a whole, by the client (classic protocol, no group) or by the broker (RE2, KIP-848)."""
    async with fencepost.Client(address, metadata_max_age_ms=100) as kafka:
        await create(kafka, f"{name}-1", partitions=1, records=1)
        await create(kafka, f"x{name}-1", partitions=1, records=1)
        options = {**way, "group": name} if group else {}
        with trio.fail_after(PATIENCE_S):
            async with kafka.consumer(**options) as consumer:
                consumer.subscribe(pattern=f"{name}-[0-9]+")
                async with reading(consumer):
                    await until(lambda: consumer.assignment == {TopicPartition(f"{name}-1", 0)}, "the one that fits")
                    await create(kafka, f"{name}-22", partitions=2, records=2)
                    await until(lambda: len(consumer.assignment) == 3, "the new one, too")
                    async with kafka.admin() as admin:
                        await admin.create_partitions(f"{name}-22", 3)
                    await until(lambda: len(consumer.assignment) == 4, "what it has grown by")


async def test_a_pattern_that_is_none_is_refused(kafka: fencepost.Client, name: str) -> None:
    async with kafka.consumer(group=name) as consumer:
        for wrong in ({"pattern": "("}, {}):
            with pytest.raises(fencepost.ConfigError):
                consumer.subscribe(**wrong)  # type: ignore[arg-type]
        with pytest.raises(fencepost.ConfigError):
            consumer.subscribe("a", pattern="b")


async def test_a_pattern_the_broker_does_not_take_is_told_by_the_next_call(kafka: fencepost.Client, name: str) -> None:
    """RE2 knows no lookahead; Python does."""
    with trio.fail_after(10):
        async with kafka.consumer(group=name, group_protocol="consumer") as consumer:
            consumer.subscribe(pattern="(?=a)b")
            with pytest.raises(KafkaError) as refused:
                await anext(consumer.batches())
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_auto_commit_goes_on_while_the_program_waits(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """What it has asked past is committed although nothing new comes; what is in its hand never is."""
    await create(kafka, name, partitions=1, records=6)
    here = TopicPartition(name, 0)
    options = {**way, "group": name, "enable_auto_commit": True, "auto_commit_interval_ms": 50}
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, **options) as consumer:
            batches = consumer.batches(max_records=3)
            await anext(batches)
            await anext(batches)
            await trio.sleep(0.3)
            committed = await consumer.committed(here)
            assert committed[here] in (None, 3)
            with trio.move_on_after(0.5):
                await anext(batches)
            assert await consumer.committed(here) == {here: 6}


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_one_by_one_the_record_in_hand_is_not_committed_by_the_close(
    kafka: fencepost.Client, name: str, count: int
) -> None:
    await create(kafka, name, partitions=1, records=9)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, enable_auto_commit=True) as consumer:
            records = aiter(consumer)
            for _ in range(count):
                await anext(records)
        async with kafka.consumer(name, group=name) as consumer:
            assert (await anext(aiter(consumer))).offset == count - 1


async def test_auto_commit_at_a_revocation_hands_over_without_a_gap(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """Everything once, although nobody commits by hand and the interval is long."""
    await create(kafka, name, partitions=4, records=40)
    options = {**way, "group": name, "enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000}
    values: list[bytes] = []
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, **options) as one, reading(one, values):
            await until(lambda: len(values) == 40, "all is read")
            async with kafka.consumer(name, **options) as two, reading(two, values):
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "both have two")
                await trio.sleep(0.2)
    assert len(values) == 40


async def test_offsets_are_committed_with_a_note(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    await create(kafka, name, partitions=1, records=5)
    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **way) as consumer:
            await anext(consumer.batches())
            await consumer.commit({here: CommittedOffset(3, 0, "by hand")})
            assert await consumer.committed_offsets(here) == {here: CommittedOffset(3, 0, "by hand")}


async def test_a_commit_of_a_member_that_the_group_has_expelled(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """An administrator takes the member out while it works: the commit tells, and the member comes back by itself."""
    await create(kafka, name, partitions=1, records=5)
    heard = Heard()
    slow = {**way, "heartbeat_interval_ms": 60_000, "session_timeout_ms": 30_000, **heard.options()}
    if way.get("group_protocol") == "consumer":
        pytest.skip("the broker does not let administrators take out members of the consumer protocol")
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **slow) as consumer:
            batches = consumer.batches(max_records=2)
            await anext(batches)
            await expel(kafka, name)
            with pytest.raises(KafkaError) as refused:
                await consumer.commit()
            assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            assert [record.offset for record in await anext(batches)] == [0, 1], "they come again"
            await consumer.commit()
    assert [word for word, _ in heard.words] == ["assigned", "lost", "assigned"]


async def expel(kafka: fencepost.Client, group: str) -> None:
    """LeaveGroup in the name of its only member."""
    from fencepost.client.cluster import GROUP
    from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
    from fencepost.protocol.registry import API_BY_KEY

    async with kafka.admin() as admin:
        [member] = (await admin.describe_group(group)).members
    identity = MemberIdentity(member_id=member.member_id, group_instance_id=None, reason="enough")
    request = LeaveGroupRequest(group_id=group, member_id=member.member_id, members=[identity])
    answer = await kafka.cluster.ask_coordinator(GROUP, group, API_BY_KEY[13], request, lambda got: got.error_code)
    assert answer.error_code == 0


async def test_a_static_member_that_comes_again_finds_its_partitions(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """KIP-345, KIP-848 (epoch -2): nobody rebalances while it is away for a moment."""
    await create(kafka, name, partitions=4, records=4)
    heard = Heard()
    with trio.fail_after(PATIENCE_S):
        options = {"group": name, **way}
        async with kafka.consumer(name, group_instance_id="1", **options, **heard.options()) as one, reading(one):
            async with kafka.consumer(name, group_instance_id="2", **options) as two, reading(two):
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "two each")
                had = two.assignment
            before = len(heard.words)
            async with kafka.consumer(name, group_instance_id="2", **options) as two, reading(two):
                await until(lambda: two.assignment == had, "the same two")
            assert heard.words[before:] == []


async def test_a_static_place_of_a_dead_predecessor_is_waited_for(kafka: fencepost.Client, name: str) -> None:
    """KIP-848: it is released when its session is over; until then the broker says UNRELEASED_INSTANCE_ID."""
    await create(kafka, name, partitions=1, records=1)
    options = {"group": name, "group_instance_id": "1", **CONSUMER}
    with trio.fail_after(PATIENCE_S):
        dead = kafka.consumer(name, **options)
        await dead.__aenter__()
        await anext(dead.batches())
        dead._end_group_tasks()  # as kill -9 would
        async with kafka.consumer(name, **options) as successor:
            await anext(successor.batches())
        await dead.__aexit__(None, None, None)


async def test_the_servers_assignor_may_be_chosen(kafka: fencepost.Client, name: str) -> None:
    """KIP-848: by name; one that the broker has not got is told by the next call."""
    await create(kafka, name, partitions=1, records=1)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, group_remote_assignor="range", **CONSUMER) as consumer:
            await anext(consumer.batches())
        async with kafka.consumer(name, group=f"{name}x", group_remote_assignor="fair", **CONSUMER) as consumer:
            with pytest.raises(KafkaError) as refused:
                await anext(consumer.batches())
    assert refused.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


class Refusing:
    """Stands between a consumer and its commits: the next ones are refused, and then it goes through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[int] = []
        self._through = committing.commit_offsets
        monkeypatch.setattr(committing, "commit_offsets", self)

    async def __call__(self, cluster: Any, group: GroupMetadata, *args: Any) -> None:
        self.asked.append(group.generation)
        if self.codes:
            raise error_for(self.codes.pop(0), "as the test says", api="OffsetCommit")
        await self._through(cluster, group, *args)


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH])
async def test_a_commit_into_a_rebalance_is_made_again(
    kafka: fencepost.Client, name: str, way: dict[str, object], monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """The next generation, or the answer with the next epoch, is on its way; the partitions stay ours."""
    await create(kafka, name, partitions=1, records=3)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **way) as consumer:
            await anext(consumer.batches())
            refusing = Refusing(monkeypatch, code, code)
            await consumer.commit()
            assert len(refusing.asked) == 3
            assert await consumer.committed() == {TopicPartition(name, 0): 3}


async def test_a_commit_under_a_generation_that_has_passed_is_made_again_under_the_present_one(
    kafka: fencepost.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cooperative member rebalanced while the request was on its way: it has its partitions still."""
    await create(kafka, name, partitions=1, records=3)
    options = {"group": name, "heartbeat_interval_ms": 50, **COOPERATIVE}
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, **options) as one:
            await anext(one.batches())
            refusing = Refusing(monkeypatch)
            slow_through = refusing._through

            async def after_the_rebalance(cluster: Any, group: GroupMetadata, *args: Any) -> None:
                before = one._group()
                async with kafka.consumer(name, **options) as two, reading(two):
                    await until(lambda: one._group() != before, "a rebalance")
                refusing._through = slow_through
                await slow_through(cluster, group, *args)

            refusing._through = after_the_rebalance
            await one.commit()
            assert len(refusing.asked) >= 2
            assert refusing.asked[-1] > refusing.asked[0]


async def test_a_static_member_whose_commit_is_fenced_is_told_so(
    kafka: fencepost.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KIP-345: FencedError from the commit and from what comes after it."""
    await create(kafka, name, partitions=1, records=3)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, group_instance_id="1") as consumer:
            batches = consumer.batches(max_records=1)
            await anext(batches)
            Refusing(monkeypatch, ErrorCode.FENCED_INSTANCE_ID)
            with pytest.raises(fencepost.FencedError):
                await consumer.commit()
            with pytest.raises(fencepost.FencedError):
                await anext(batches)
