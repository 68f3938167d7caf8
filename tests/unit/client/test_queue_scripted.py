"""A queue against a broker that does what a test says: errors of sessions, of the group, and of leaders (KIP-932)."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import fencepost
from fencepost import AcknowledgementError, ErrorCode, FatalError
from fencepost.client.queues import arrivals
from fencepost.protocol.compression import Compression
from fencepost.protocol.messages.api76_share_group_heartbeat import (
    ShareGroupHeartbeatResponse,
)
from fencepost.protocol.messages.api78_share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchResponse,
)
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from tests.kit.scripted_broker import HANG_UP
from tests.kit.share_broker import LOCK_S, ShareBroker


@pytest.fixture
async def serve(nursery: trio.Nursery) -> Callable[..., Any]:
    async def start(count: int = 1, *, delays: bool = False) -> ShareBroker:
        broker = ShareBroker(count, delays=delays)
        await nursery.start(broker.serve)
        return broker

    return start


async def take_one(broker: ShareBroker) -> fencepost.Message[bytes, bytes]:
    """Accept one message, and wait for the broker's answer."""
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g") as queue:
        async for message in queue:
            async with message:
                pass
            await message.acknowledged()
            return message
    raise AssertionError


async def test_a_queue_from_its_join_to_its_leaving(serve: Any, autojump_clock: MockClock) -> None:
    """KIP-932: heartbeats from epoch 0 to -1, a session from epoch 0 to -1."""
    broker = await serve()
    message = await take_one(broker)
    assert (message.topic, message.offset, message.value, message.delivery_count) == ("t", 0, b"0", 1)
    beats = [one.member_epoch for name, _, one in broker.requests if name == "ShareGroupHeartbeat"]
    assert (beats[0], beats[-1]) == (0, -1)
    assert (broker.epochs()[0], broker.epochs()[-1]) == (("fetch", 0), ("acknowledge", -1))
    assert broker.acknowledgements() == [(0, 0, [1])]


async def test_a_lost_session_is_opened_anew_and_the_acknowledgement_sent_again(
    serve: Any, autojump_clock: MockClock
) -> None:
    """ShareSessionHandler: SHARE_SESSION_NOT_FOUND; the lock is the member's, and outlives the session."""
    for code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
        broker = await serve()
        broker.refused = [ShareFetchResponse(error_code=code)]
        await take_one(broker)
        fetches = [epoch for name, epoch in broker.epochs() if name == "fetch"]
        assert fetches[:4] == [0, 1, 2, 0]
        assert broker.acknowledgements() == [(0, 0, [1])] * 2


async def test_a_lost_connection_opens_the_session_anew(serve: Any, autojump_clock: MockClock) -> None:
    """ShareSessionCache: the session ends with its connection."""
    broker = await serve()
    broker.scripts["ShareFetch"] = [broker.on_ShareFetch, HANG_UP]
    await take_one(broker)
    assert broker.epochs()[:3] == [("fetch", 0), ("fetch", 1), ("fetch", 0)]


async def test_a_leader_that_moved_is_looked_up(serve: Any, autojump_clock: MockClock) -> None:
    """NOT_LEADER_OR_FOLLOWER without a hint: the client fetches metadata and tries again."""
    broker = await serve()
    moved = broker.fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker.scripts["ShareFetch"] = [lambda request, version: moved]
    await take_one(broker)
    names = broker.names("Metadata", "ShareFetch")
    assert "Metadata" in names[names.index("ShareFetch") :]


async def test_a_fenced_member_joins_again(serve: Any, autojump_clock: MockClock) -> None:
    """ShareMembershipManager.transitionToFenced: the same member id, epoch 0, all topics."""
    broker = await serve()
    fenced = ShareGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    broker.scripts["ShareGroupHeartbeat"] = [broker.on_ShareGroupHeartbeat, lambda request, version: fenced]
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g"):
        await trio.sleep(3)
    beats = [one for name, _, one in broker.requests if name == "ShareGroupHeartbeat"]
    assert [one.member_epoch for one in beats[:3]] == [0, 1, 0]
    assert len({one.member_id for one in beats}) == 1
    assert beats[2].subscribed_topic_names == ["t"]


async def test_a_refused_acknowledgement_is_an_error_that_the_program_sees(
    serve: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """INVALID_RECORD_STATE; also if the program does not wait for it: a warning, and `lost`."""
    broker = await serve()
    broker.refused = [broker.fetched(acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE)]
    with pytest.raises(AcknowledgementError) as caught:
        await take_one(broker)
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE
    assert "t-0 0 (INVALID_RECORD_STATE)" in caplog.text


async def test_renewals_go_alone_and_end_with_the_block(serve: Any, autojump_clock: MockClock) -> None:
    """KIP-1222: a request with renewals says so, and fetches nothing."""
    broker = await serve()
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g") as queue:
        async for message in queue:
            async with message:
                await trio.sleep(LOCK_S * 1.2)
            await message.acknowledged()
            break
    assert broker.acknowledgements() == [(0, 0, [4]), (0, 0, [4]), (0, 0, [1])]
    renewing = [one.is_renew_ack for name, _, one in broker.requests if name == "ShareAcknowledge"]
    assert renewing == [True, True, False]
    assert not any(one.is_renew_ack for name, _, one in broker.requests if name == "ShareFetch")


async def test_a_release_that_waits_outlives_its_lock(serve: Any, autojump_clock: MockClock) -> None:
    """The member renews the lock until the delay is over, and then releases the record."""
    broker = await serve()
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g") as queue:
        async for message in queue:
            async with message:
                message.release(delay=LOCK_S * 1.2)
            began = trio.current_time()
            await message.acknowledged()
            assert LOCK_S * 1.2 <= trio.current_time() - began < LOCK_S * 1.2 + 0.2
            break
    assert broker.acknowledgements() == [(0, 0, [4]), (0, 0, [4]), (0, 0, [2])]


async def test_a_broker_that_holds_back_is_asked_to(serve: Any, autojump_clock: MockClock) -> None:
    """Ours: the record is let go of at once, and the request names the delay that is left."""
    broker = await serve(2, delays=True)
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g", max_in_flight=1) as queue:
        source = aiter(queue)
        released, stopped = await anext(source), None
        released.release(delay=3600)
        await released.acknowledged()
        stopped = await anext(source)
        queue.stop()
        stopped.release(delay=60)
    batches = [batch for _, _, request in broker.requests for batch in _batches(request)]
    assert [(batch.first_offset, batch.acknowledge_types) for batch in batches] == [(0, [2]), (1, [2])]
    assert 3_599_000 < batches[0].delay_ms <= 3_600_000
    assert 59_000 < batches[1].delay_ms <= 60_000
    assert trio.current_time() < LOCK_S


def _batches(request: Any) -> list[Any]:
    topics = getattr(request, "topics", None) or []
    return [
        batch
        for topic in topics
        for part in getattr(topic, "partitions", [])
        for batch in getattr(part, "acknowledgement_batches", [])
    ]


async def test_a_cancelled_block_releases_at_once_and_an_exception_after_the_delay(
    serve: Any, autojump_clock: MockClock
) -> None:
    """`retry_delay` doubles with each delivery, up to `retry_delay_max`."""
    broker = await serve(2)
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g", retry_delay=5) as queue:
        source = aiter(queue)
        cancelled, failed = await anext(source), await anext(source)
        began = trio.current_time()
        with trio.move_on_after(1):
            async with cancelled:
                await trio.sleep_forever()
        await cancelled.acknowledged()
        assert trio.current_time() - began < 1.2
        with pytest.raises(ZeroDivisionError):
            async with failed:
                raise ZeroDivisionError
        began = trio.current_time()
        await failed.acknowledged()
        assert 5 <= trio.current_time() - began < 5.2
    assert [queue._hand.retry_delay_s(count) for count in (1, 2, 3, 9)] == [5, 10, 20, 60]


async def test_no_more_is_acquired_than_may_be_in_flight(serve: Any, autojump_clock: MockClock) -> None:
    """KIP-1206: record_limit mode, max_records is the room that is left."""
    broker = await serve(10)
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g", max_in_flight=4) as queue:
        source = aiter(queue)
        for _ in range(4):
            await anext(source)
        await trio.sleep(1)
        assert broker.given == 4
    asked = [(one.share_acquire_mode, one.max_records) for name, _, one in broker.requests if name == "ShareFetch"]
    assert asked[0] == (1, 4)


async def test_a_broker_without_share_groups_is_named(serve: Any, autojump_clock: MockClock) -> None:
    broker = await serve()
    broker.highest["ShareFetch"] = 1
    async with fencepost.Client(broker.address) as kafka:
        with pytest.raises(FatalError, match=r"no share groups: queues need Apache Kafka 4\.2"):
            await kafka.queue("t", group="g").__aenter__()


async def test_share_groups_that_are_switched_off_are_named(serve: Any, autojump_clock: MockClock) -> None:
    """KIP-932: UNSUPPORTED_VERSION without the feature share.version."""
    broker = await serve()
    off = ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    broker.scripts["ShareGroupHeartbeat"] = [lambda request, version: off]
    with pytest.raises(FatalError, match=r"feature share\.version"):
        await take_one(broker)


@pytest.mark.parametrize("size", [100, 100_000])
async def test_large_compressed_batches_are_unpacked_in_another_thread(
    serve: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """As a consumer's; small ones are not: the way there and back would cost more."""
    broker, value = await serve(), random.Random(1).randbytes(size)
    batch = bytes(build_batch([Record(0, 0, None, value)], compression=Compression.LZ4))
    acquired = [AcquiredRecords(first_offset=0, last_offset=0, delivery_count=1)]
    broker.scripts["ShareFetch"] = [lambda request, version: broker.fetched(records=batch, acquired_records=acquired)]
    broker.count = 0
    threads: list[int] = []
    real = arrivals.sort_out

    def sort_out(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return real(*given)

    monkeypatch.setattr(arrivals, "sort_out", sort_out)
    assert (await take_one(broker)).value == value
    assert [one == threading.get_ident() for one in threads] == [size == 100]


async def test_a_queue_without_partitions_says_once_why(
    serve: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that is missing, or hidden; or a group that does not begin it. The queue waits on."""
    for topic, reason in (("t", "The group has not begun"), ("missing", "Create missing (UNKNOWN_TOPIC_OR_PARTITION)")):
        broker = await serve()
        nothing = ShareGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=1000)
        broker.scripts["ShareGroupHeartbeat"] = [lambda request, version, answer=nothing: answer] * 60
        caplog.clear()
        async with fencepost.Client(broker.address) as kafka, kafka.queue(topic, group="g"):
            await trio.sleep(9)
            assert not caplog.messages
            await trio.sleep(20)
        [said] = caplog.messages
        assert said.startswith(f"queue of g: no partitions of {topic} for 10 s. {reason}")


async def test_the_metrics_of_a_queue(serve: Any, autojump_clock: MockClock) -> None:
    """ShareFetchMetricsRegistry: the names of Kafka's share consumer, and our own."""
    broker = await serve(2)
    broker.refused = [broker.fetched(acknowledge_error_code=ErrorCode.INVALID_RECORD_STATE)]
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g") as queue:
        async for message in queue:
            message.accept()
            await trio.sleep(1)
            break
        found = queue.metrics()
    assert (found.records_consumed_total, found.in_flight, found.assigned_partitions) == (2, 1, 1)
    assert (found.acknowledgements_send_total, found.acknowledgements_error_total) == (1, 1)
    assert found.bytes_consumed_total > 0 < found.fetch_latency_max
    names = found.prometheus()
    assert names["kafka_consumer_share_fetch_manager_fetch_total"] == found.fetch_total > 1
    assert names["fencepost_queue_in_flight"] == 1


async def test_what_a_response_acquired_is_in_flight_at_once(
    serve: Any, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All partitions of it, before the first is unpacked: other fetches would ask for more than `max_in_flight`."""
    broker = await serve(0)
    acquired = [AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1)]
    answer = broker.fetched(acquired_records=acquired)  # no batches: all offsets are gaps
    [topic] = answer.responses
    topic.partitions.append(PartitionData(partition_index=1, acquired_records=acquired))
    broker.scripts["ShareFetch"] = [lambda request, version: answer]
    seen: list[int] = []
    real = arrivals.sort_out

    def sort_out(*given: Any) -> Any:
        seen.append(queue.metrics().in_flight)
        return real(*given)

    monkeypatch.setattr(arrivals, "sort_out", sort_out)
    async with fencepost.Client(broker.address) as kafka, kafka.queue("t", group="g") as queue:
        await trio.sleep(1)
    assert seen == [20, 10]
