"""A consumer against scripted brokers: what no real broker does on demand (L10, L12, L13, L14, I2)."""

from typing import Any

import pytest
import trio
import trio.testing

import fencepost
from fencepost.client.consumer.read_errors import LogTruncatedError, OffsetOutOfRangeError
from fencepost.protocol.errors import ErrorCode
from tests.kit.batch_log import BatchLog
from tests.kit.fetch_broker import FetchBroker, ScriptedCluster, moved_to, prefer
from tests.kit.scripted_broker import HANG_UP
from tests.kit.waiting import soon
from tests.unit.client.reading_kit import T0, Start, read, values, wait_fetched


@pytest.mark.parametrize("answered", [0, 1, 2])
async def test_opening_outlives_a_broker_that_hangs_up(
    start: Start, cluster: ScriptedCluster, answered: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Kafka's clients repeat a Metadata request whose connection is lost."""
    broker = await start(cluster)
    broker.scripts["Metadata"] = [*[broker.on_Metadata] * answered, HANG_UP]
    cluster.write(0, values(0, 1))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert await read(consumer, 1) == [(0, 0)]


# -- fetch sessions and versions


async def test_a_session_names_only_what_changed(start: Start) -> None:
    """L13, KIP-227"""
    cluster = ScriptedCluster(partitions=2)
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        for turn in range(5):
            cluster.write(0, values(turn, 1))
            assert await read(consumer, 1) == [(0, turn)]
    first, *others = broker.fetches()
    assert (first.session_id, first.session_epoch, len(first.topics[0].partitions)) == (0, 0, 2)
    going_on = [request for request in others if request.session_epoch > 0]
    assert len(going_on) >= 4
    named = [entry.partition for request in going_on for topic in request.topics for entry in topic.partitions]
    assert set(named) == {0}, "partition 1 has not moved"


async def test_a_session_ends_with_its_consumer(
    start: Start, cluster: ScriptedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """L13: the final epoch frees the broker's slot."""
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka:
        async with kafka.consumer("t") as consumer:
            cluster.write(0, values(0, 1))
            await read(consumer, 1)
        await soon(lambda: not broker.sessions)


async def test_a_cancelled_fetch_begins_no_other(start: Start, cluster: ScriptedCluster) -> None:
    """Where one ends the next one is begun; if it was cancelled, so would that be, and so on while a group is left."""
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        cluster.write(0, values(0, 1))
        assert await read(consumer, 1) == [(0, 0)]
        for scope in consumer._scopes:
            scope.cancel()
        with trio.fail_after(100):
            await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
async def test_a_refused_session_loses_and_repeats_nothing(start: Start, cluster: ScriptedCluster, code: Any) -> None:
    """L13"""
    broker = await start(cluster)

    def refuse(request: Any, version: int) -> Any:
        return fetch_response(error_code=code)

    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        got = []
        for turn in range(4):
            cluster.write(0, values(turn, 1))
            got += await read(consumer, 1)
            broker.scripts["Fetch"].append(refuse)
    assert got == [(0, offset) for offset in range(4)]


def fetch_response(**fields: Any) -> Any:
    from fencepost.protocol.messages.api01_fetch import FetchResponse

    return FetchResponse(**fields)


async def test_a_broker_without_sessions_is_asked_in_full(start: Start, cluster: ScriptedCluster) -> None:
    """L13: session id 0 declines."""
    broker = await start(cluster, sessions_kept=False)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        for turn in range(3):
            cluster.write(0, values(turn, 1))
            assert await read(consumer, 1) == [(0, turn)]
    assert all(request.session_epoch == 0 and request.topics for request in broker.fetches())


@pytest.mark.parametrize("version", [4, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17, 18])
async def test_every_version_of_fetch_since_kafka_2_1(start: Start, cluster: ScriptedCluster, version: int) -> None:
    """L12: names up to version 12, topic ids after that."""
    broker = await start(cluster)
    broker.highest["Fetch"] = version
    for turn in range(3):
        cluster.write(0, values(turn * 2, 2))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", client_rack="here") as consumer:
        assert await read(consumer, 6) == [(0, offset) for offset in range(6)]
    assert {v for name, v, _ in broker.requests if name == "Fetch"} == {version}
    assert broker.fetches()[0].rack_id == ("here" if version >= 11 else "")


# -- where to read on


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 5), ("latest", 8), ("by_duration:PT10S", 6)])
async def test_out_of_range_goes_where_the_policy_says(
    start: Start, cluster: ScriptedCluster, policy: str, expected: int
) -> None:
    """KIP-1106 for the duration: the first record of ten seconds ago."""
    broker = await start(cluster)
    cluster.logs[0] = BatchLog(start=5, end=5)
    cluster.write(0, values(5, 3))
    cluster.times[90_000] = 6
    client = fencepost.Client(broker.address, wall_clock=lambda: 100.0)
    async with client as kafka, kafka.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 2)
        cluster_end = 8
        if expected == cluster_end:
            await soon(lambda: consumer._fetcher.states[T0].position == cluster_end)
            cluster.write(0, values(8, 1))
        assert (await read(consumer, 1))[0] == (0, expected)


async def test_without_a_policy_the_program_is_told_and_may_seek(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.logs[0] = BatchLog(start=5, end=5)
    cluster.write(0, values(5, 3))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        with pytest.raises(OffsetOutOfRangeError, match="no position to start from"):
            await read(consumer, 1)
        consumer.seek(T0, 2)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="offset 2 is not in the log; the log begins at 5") as told:
                await read(consumer, 1)
        assert (told.value.partition, told.value.position, told.value.log_start_offset) == (T0, 2, 5)
        assert told.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        consumer.seek(T0, told.value.log_start_offset)
        assert await read(consumer, 3) == [(0, 5), (0, 6), (0, 7)]


async def test_what_was_fetched_is_read_before_the_error_behind_it(
    start: Start, cluster: ScriptedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await start(cluster)
    cluster.write(0, values(0, 3))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", auto_offset_reset="none") as consumer:
        consumer.seek(T0, 0)
        await wait_fetched(consumer, T0, 3)
        broker.troubles[0] += [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
        await trio.sleep(0.1)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        with pytest.raises(OffsetOutOfRangeError):
            await read(consumer, 1)


async def test_seeking_by_time_finds_the_record_or_the_end(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.write(0, values(0, 10))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        consumer.seek_to_timestamp(7)
        assert await read(consumer, 3) == [(0, 7), (0, 8), (0, 9)]
        consumer.seek_to_timestamp(1_000)
        assert await consumer.position(T0) == 10
        consumer.seek_to_beginning(T0)
        assert (await read(consumer, 1))[0] == (0, 0)
        assert await consumer.offsets_for_times({T0: 4}) == {T0: (4, 4)}
        assert await consumer.offsets_for_times({T0: 400}) == {T0: None}


async def test_ends_by_isolation(start: Start, cluster: ScriptedCluster) -> None:
    """I6"""
    broker = await start(cluster)
    cluster.write(0, values(0, 10))
    cluster.logs[0].stable = 6
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert await consumer.end_offsets() == {T0: 6}
        assert await consumer.end_offsets(T0, isolation=fencepost.IsolationLevel.READ_UNCOMMITTED) == {T0: 10}
        assert await consumer.beginning_offsets(T0) == {T0: 0}
        assert list(await consumer.partitions_for("t")) == [T0]


# -- truncation (KIP-320)


async def unclean_election(broker: FetchBroker, cluster: ScriptedCluster, consumer: Any, end: int) -> None:
    """Ten records were read in epoch 0; the new leader of epoch 1 has only `end` of them, and others after that."""
    cluster.write(0, values(0, 10))
    await read(consumer, 10)
    cluster.logs[0] = BatchLog().raw(cluster.logs[0].batches[0]) if end == 10 else BatchLog()
    cluster.epoch[0] = 1
    if end < 10:
        cluster.write(0, values(0, end))
    cluster.write(0, [b"other"] * 12)
    cluster.epoch_ends[0, 0] = (0, end)
    broker.troubles[0] += [ErrorCode.FENCED_LEADER_EPOCH] * 2


async def test_a_truncated_log_is_told_with_the_divergent_offset(
    start: Start, cluster: ScriptedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """KIP-320: no policy, so the program is told where the log differs from what it has read."""
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        await unclean_election(broker, cluster, consumer, end=7)
        with pytest.raises(LogTruncatedError, match="differs from offset 7") as told:
            await read(consumer, 1)
        assert (told.value.position, told.value.divergent_offset, told.value.divergent_epoch) == (10, 7, 0)
        consumer.seek(T0, 7)
        assert await read(consumer, 2) == [(0, 7), (0, 8)]
    asked = [r.topics[0].partitions[0] for name, _, r in broker.requests if name == "OffsetForLeaderEpoch"]
    assert asked
    assert (asked[0].leader_epoch, asked[0].current_leader_epoch) == (0, 1)


async def test_a_truncated_log_is_read_from_where_it_differs(
    start: Start, cluster: ScriptedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """KIP-320: with a policy, as Java's client: on at the divergent offset."""
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        await unclean_election(broker, cluster, consumer, end=7)
        assert (await read(consumer, 12))[:2] == [(0, 7), (0, 8)]


async def test_a_new_leader_with_the_same_log_is_read_on(
    start: Start, cluster: ScriptedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """KIP-320: the position is checked once, and stands."""
    broker = await start(cluster)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", auto_offset_reset="none") as consumer:
        consumer.seek(T0, 0)
        await unclean_election(broker, cluster, consumer, end=10)
        assert await read(consumer, 12) == [(0, offset) for offset in range(10, 22)]
    assert broker.names("OffsetForLeaderEpoch") == ["OffsetForLeaderEpoch"]


class BusyBroker(FetchBroker):
    """While it compares a position with the log, it answers the fetch that was under way: with two new records."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(cluster)
        self.longest_wait_s = 5
        self.both_read = trio.Event()

    async def on_OffsetForLeaderEpoch(self, request: Any, version: int) -> Any:  # type: ignore[override]
        answer = super().on_OffsetForLeaderEpoch(request, version)
        if len(self.names("OffsetForLeaderEpoch")) == 1:
            self.cluster.write(0, values(3, 2))
            await self.both_read.wait()
        return answer


async def test_records_that_come_during_a_comparison_come_once(
    cluster: ScriptedCluster, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """KIP-320: the answer is about the position of the request, as in Java's `maybeCompleteValidation`.

    The records of the new epoch begin where the old epoch ends, so the old answer would take them for truncated.
    """
    cluster.partitions = 2
    one, two = BusyBroker(cluster), FetchBroker(cluster, 2)
    for broker in (one, two):
        await nursery.start(broker.serve)
    cluster.leader[1] = 2
    async with fencepost.Client(one.address) as kafka, kafka.consumer("t") as consumer:
        cluster.write(0, values(0, 3))
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        cluster.epoch[0] = 1
        cluster.epoch_ends[0, 0] = (0, 3)
        two.troubles[1] += [ErrorCode.FENCED_LEADER_EPOCH] * 2  # the client asks for metadata, and learns epoch 1
        assert await read(consumer, 2) == [(0, 3), (0, 4)]
        one.both_read.set()
        cluster.write(0, values(5, 1))
        assert await read(consumer, 1) == [(0, 5)]
    asked = [r.topics[0].partitions[0] for name, _, r in one.requests if name == "OffsetForLeaderEpoch"]
    assert [entry.leader_epoch for entry in asked] == [0, 1], "the new position is compared, too"


async def test_an_old_broker_is_not_asked_for_epochs(
    start: Start, cluster: ScriptedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Before version 3 that needed a right on the cluster."""
    broker = await start(cluster)
    broker.highest["OffsetForLeaderEpoch"] = 2
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", auto_offset_reset="none") as consumer:
        consumer.seek(T0, 0)
        await unclean_election(broker, cluster, consumer, end=10)
        assert len(await read(consumer, 12)) == 12
    assert not broker.names("OffsetForLeaderEpoch")


# -- leaders and followers


async def test_a_hint_leads_to_the_new_leader_without_metadata(start: Start, cluster: ScriptedCluster) -> None:
    """KIP-951"""
    one, two = await start(cluster, 1), await start(cluster, 2)
    async with fencepost.Client(one.address) as kafka, kafka.consumer("t") as consumer:
        cluster.write(0, values(0, 3))
        await read(consumer, 3)
        asked = len(one.names("Metadata")) + len(two.names("Metadata"))
        cluster.leader[0], cluster.epoch[0] = 2, 1
        cluster.epoch_ends[0, 0] = (0, 3)
        one.troubles[0] += [moved_to(2, 1)] * 2
        cluster.write(0, values(3, 3))
        assert await read(consumer, 3) == [(0, 3), (0, 4), (0, 5)]
        assert len(one.names("Metadata")) + len(two.names("Metadata")) == asked
    assert two.fetches()[0].topics[0].partitions[0].current_leader_epoch == 1


async def test_a_follower_in_the_same_rack_is_read(start: Start, cluster: ScriptedCluster) -> None:
    """L14, KIP-392: and left when it does not have the offset."""
    one, two = await start(cluster, 1), await start(cluster, 2)
    one.troubles[0].append(prefer(2))
    cluster.write(0, values(0, 3))
    async with fencepost.Client(one.address) as kafka, kafka.consumer("t", client_rack="r2") as consumer:
        assert len(await read(consumer, 3)) == 3
        assert two.fetches()
        assert one.fetches()[0].rack_id == "r2"
        two.troubles[0] += [ErrorCode.OFFSET_OUT_OF_RANGE] * 3
        cluster.write(0, values(3, 3))
        assert await read(consumer, 3) == [(0, 3), (0, 4), (0, 5)], "the leader is asked; no reset"


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE])
async def test_what_can_not_be_retried_is_raised(start: Start, cluster: ScriptedCluster, code: ErrorCode) -> None:
    broker = await start(cluster)
    broker.troubles[0].append(code)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        with pytest.raises(fencepost.KafkaError) as told:
            await read(consumer, 1)
        assert (told.value.code, told.value.api, told.value.node) == (code, "Fetch", 1)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
)
async def test_what_can_be_retried_is(
    start: Start, cluster: ScriptedCluster, code: ErrorCode, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await start(cluster)
    broker.troubles[0] += [code] * 3
    cluster.write(0, values(0, 3))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        assert len(await read(consumer, 3)) == 3
