"""What a member of a group commits: by itself, by hand, into a rebalance, and when it is none any more."""

from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition
from fencepost.client import CommittedOffset, GroupMetadata
from fencepost.client.errors import error_for
from fencepost.client.group import group_client
from fencepost.client.group.classic import ClassicMembership
from fencepost.client.network.cluster import GROUP
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.api68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.integration.client.group_kit import COOPERATIVE, PATIENCE_S, Heard, create, reading, until


@pytest.fixture(scope="module")
def address(address_of_quick_groups: str) -> str:
    """Groups change fast here."""
    return address_of_quick_groups


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


async def test_auto_commit_goes_on_while_the_program_waits(
    kafka: fencepost.Client, name: str, way: dict[str, object]
) -> None:
    """What it has asked past is committed although nothing new comes; what is in its hand never is."""
    await create(kafka, name, partitions=1, records=6)
    here = TopicPartition(name, 0)
    options = {**way, "group": name, "enable_auto_commit": True, "auto_commit_interval": 0.05}
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, **options) as consumer:
            batches = consumer.batches(max_records=3)
            await anext(batches)
            await anext(batches)
            await trio.sleep(0.3)
            committed = await consumer.committed(here)
            assert committed[here] in (None, 0, 3), "0: where reading begins may be committed before the first batch"
            async with trio.open_nursery() as nursery:
                nursery.start_soon(anext, batches)  # nothing comes any more
                while await consumer.committed(here) != {here: 6}:  # noqa: ASYNC110 - nobody tells of a commit
                    await trio.sleep(0.02)
                nursery.cancel_scope.cancel()


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
    options = {**way, "group": name, "enable_auto_commit": True, "auto_commit_interval": 3600}
    values: list[bytes] = []
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, **options) as one, reading(one, values):
            await until(lambda: len(values) == 40, "all is read")
            async with kafka.consumer(name, **options) as two, reading(two, values):
                await until(lambda: len(one.assignment) == len(two.assignment) == 2, "both have two")
                await trio.sleep(0.2)
    assert len(values) == 40


async def test_the_end_is_a_revocation_too(kafka: fencepost.Client, name: str, way: dict[str, object]) -> None:
    """on_revoked hears of it, and what it commits is what the program has asked past, not what is in its hand."""
    await create(kafka, name, partitions=1, records=9)
    revoked: list[frozenset[TopicPartition]] = []

    async def commit(consumer: fencepost.Consumer, partitions: frozenset[TopicPartition]) -> None:
        revoked.append(partitions)
        await consumer.commit()

    here = TopicPartition(name, 0)
    with trio.fail_after(PATIENCE_S):
        for done in (3, 6):
            async with kafka.consumer(name, group=name, on_revoked=commit, **way) as consumer:
                batches = consumer.batches(max_records=3)
                await anext(batches)
                await anext(batches)
            assert revoked == [{here}] * (done // 3)
            async with kafka.consumer(group=name) as reader:
                assert await reader.committed(here) == {here: done}


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
    """Somebody takes the member out while it works: the commit or a heartbeat tells, and it comes back by itself."""
    await create(kafka, name, partitions=1, records=5)
    heard = Heard()
    slow = {**way, "heartbeat_interval": 60, "session_timeout": 30, **heard.options()}
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **slow) as consumer:
            batches = consumer.batches(max_records=2)
            await anext(batches)
            await expel(kafka, name, consumer._group.metadata().member_id, way)
            with pytest.raises(KafkaError) as refused:
                await consumer.commit()
            assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            assert [record.offset for record in await anext(batches)] == [0, 1], "they come again"
            await consumer.commit()
    assert [word for word, _ in heard.words] == ["assigned", "lost", "assigned", "revoked"]


async def expel(kafka: fencepost.Client, group: str, member_id: str, way: dict[str, object]) -> None:
    """A farewell in the member's name, as its protocol has it."""
    if way.get("group_protocol") == "consumer":
        request: Any = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=-1)
    else:
        identity = MemberIdentity(member_id=member_id, group_instance_id=None, reason="enough")
        request = LeaveGroupRequest(group_id=group, member_id=member_id, members=[identity])
    answer = await kafka._cluster.ask_coordinator(GROUP, group, request, lambda got: got.error_code)
    assert answer.error_code == 0


class Refusing:
    """Stands between a consumer and its commits: the next ones are refused, and then it goes through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[int] = []
        self._through = group_client.commit_offsets
        monkeypatch.setattr(group_client, "commit_offsets", self)

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
    options = {"group": name, "heartbeat_interval": 0.05, **COOPERATIVE}
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, **options) as one:
            await anext(one.batches())
            refusing = Refusing(monkeypatch)
            slow_through = refusing._through

            async def after_the_rebalance(cluster: Any, group: GroupMetadata, *args: Any) -> None:
                before = one._group.metadata()
                async with kafka.consumer(name, **options) as two, reading(two):
                    await until(lambda: one._group.metadata() != before, "a rebalance")
                refusing._through = slow_through
                await slow_through(cluster, group, *args)

            refusing._through = after_the_rebalance
            await one.commit()
            assert len(refusing.asked) >= 2
            assert refusing.asked[-1] > refusing.asked[0]


async def test_a_commit_that_is_refused_while_the_answer_to_a_join_is_on_its_way_is_made_again(
    kafka: fencepost.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is in the next generation, and its member does not know that yet."""
    await create(kafka, name, partitions=1, records=3)
    with trio.fail_after(PATIENCE_S):
        async with kafka.consumer(name, group=name, **COOPERATIVE) as consumer:
            await anext(consumer.batches())
            refusing = Refusing(monkeypatch, ErrorCode.ILLEGAL_GENERATION)
            with monkeypatch.context() as patch:
                patch.setattr(ClassicMembership, "is_rejoining", True)
                await consumer.commit()
            assert len(refusing.asked) == 2
            assert await consumer.committed() == {TopicPartition(name, 0): 3}


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
