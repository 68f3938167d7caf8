"""Reading: both isolation levels, long polls, sizes, epochs, ids (rows I1, I2, I6, I7, L10, L12)."""

import threading
import time
from collections.abc import Callable

from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.wire import FETCH, NOW_MS, Wire, batch_of, committed_values, values_in

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP, LATEST_TIERED = -1, -2, -3, -5
NOT_YET_SECONDS = 0.3


class Transaction:
    """A TV1 producer on one partition of one topic, batch by batch."""

    def __init__(self, wire: Wire, name: str, topic: str) -> None:
        self.wire, self.name, self.topic = wire, name, topic
        self.producer = wire.init_producer_id(name)
        self.sequence = 0

    def write(self, value: bytes) -> int:
        if not self.sequence:
            self.wire.add_partitions(self.name, self.producer, self.topic, 0)
        batch = batch_of(
            value,
            transactional=True,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequence,
        )
        self.sequence += 1
        answer = self.wire.produce(self.topic, batch, version=8, transactional_id=self.name)
        assert answer.error_code == ErrorCode.NONE
        return int(answer.base_offset)

    def end(self, commit: bool) -> None:
        assert self.wire.end_txn(self.name, self.producer, commit=commit).error_code == ErrorCode.NONE


def in_background(action: Callable[[], object]) -> list[object]:
    """Run `action` in a thread; the list gets its result."""
    results: list[object] = []
    threading.Thread(target=lambda: results.append(action()), daemon=True).start()
    return results


def test_aborted_records_are_named_for_committed_readers_only(wire: Wire, topic: str) -> None:
    """I2: the data is sent all the same; the list says what to skip."""
    aborted, committed = Transaction(wire, topic + "-a", topic), Transaction(wire, topic + "-c", topic)
    aborted.write(b"a0")
    committed.write(b"c0")
    aborted.write(b"a1")
    aborted.end(commit=False)
    committed.end(commit=True)
    answer = wire.fetch(topic, isolation=READ_COMMITTED)
    assert committed_values(answer) == [b"c0"]
    assert [(e.producer_id, e.first_offset) for e in answer.aborted_transactions] == [(aborted.producer[0], 0)]
    answer = wire.fetch(topic, isolation=READ_UNCOMMITTED)
    assert values_in(answer) == [b"a0", b"c0", b"a1"]
    assert answer.aborted_transactions is None


def test_an_open_transaction_holds_committed_readers_back(wire: Wire, topic: str) -> None:
    """I1: the last stable offset is the first open one; I6: ListOffsets says the same."""
    wire.produce(topic, batch_of(b"before"))
    transaction = Transaction(wire, topic, topic)
    transaction.write(b"open")
    wire.produce(topic, batch_of(b"behind"))
    answer = wire.fetch(topic, isolation=READ_COMMITTED)
    assert (committed_values(answer), answer.last_stable_offset, answer.high_watermark) == ([b"before"], 1, 3)
    assert wire.offset_of(topic, LATEST, isolation=READ_COMMITTED).offset == 1
    assert wire.offset_of(topic, LATEST).offset == 3
    assert wire.offset_of(topic, NOW_MS, isolation=READ_COMMITTED).offset == 0
    transaction.end(commit=True)
    answer = wire.fetch(topic, isolation=READ_COMMITTED)
    assert (committed_values(answer), answer.last_stable_offset) == ([b"before", b"open", b"behind"], 4)


def test_a_timestamp_beyond_the_last_stable_offset_is_not_found(wire: Wire, topic: str) -> None:
    """I6."""
    transaction = Transaction(wire, topic, topic)
    transaction.write(b"open")
    assert wire.offset_of(topic, NOW_MS, isolation=READ_COMMITTED).offset == -1
    assert wire.offset_of(topic, NOW_MS).offset == 0
    transaction.end(commit=False)


def test_a_committed_long_poll_waits_for_the_verdict_not_for_data(
    wire: Wire, topic: str, broker_of_module: BrokerProcess
) -> None:
    """I7: bytes behind the last stable offset do not end the wait; the marker does."""
    transaction = Transaction(wire, topic, topic)
    transaction.write(b"x")
    with Wire(broker_of_module.connect()) as reader:
        results = in_background(lambda: reader.fetch(topic, isolation=READ_COMMITTED, max_wait_ms=20_000))
        transaction.write(b"y")
        wire.produce(topic, batch_of(b"z"))
        time.sleep(NOT_YET_SECONDS)
        assert not results
        transaction.end(commit=True)
        assert committed_values(until(lambda: results)[0]) == [b"x", b"y", b"z"]


def test_a_long_poll_is_woken_by_data(wire: Wire, topic: str, broker_of_module: BrokerProcess) -> None:
    with Wire(broker_of_module.connect()) as reader:
        results = in_background(lambda: reader.fetch(topic, max_wait_ms=20_000))
        time.sleep(0.05)
        wire.produce(topic, batch_of(b"news"))
        assert values_in(until(lambda: results)[0]) == [b"news"]


def test_a_long_poll_waits_for_min_bytes(wire: Wire, topic: str, broker_of_module: BrokerProcess) -> None:
    with Wire(broker_of_module.connect()) as reader:
        results = in_background(lambda: reader.fetch(topic, max_wait_ms=20_000, min_bytes=250))
        wire.produce(topic, batch_of(b"x" * 100))
        time.sleep(NOT_YET_SECONDS)
        assert not results
        wire.produce(topic, batch_of(b"y" * 100))
        assert len(values_in(until(lambda: results)[0])) == 2


def test_a_long_poll_ends_when_its_topic_is_deleted(wire: Wire, topic: str, broker_of_module: BrokerProcess) -> None:
    from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest

    with Wire(broker_of_module.connect()) as reader:
        results = in_background(lambda: reader.fetch(topic, max_wait_ms=20_000))
        time.sleep(0.05)
        wire.call(20, 1, DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000))
        answer = until(lambda: results)[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # type: ignore[attr-defined]


def test_an_empty_poll_ends_with_its_time(wire: Wire, topic: str) -> None:
    answer = wire.fetch(topic, max_wait_ms=50)
    assert (answer.error_code, values_in(answer)) == (ErrorCode.NONE, [])


def test_sizes_bound_an_answer_but_for_its_first_batch(wire: Wire, topic: str) -> None:
    """L1, KIP-74: a reader always gets on, whatever its limits."""
    batch = batch_of(b"x" * 1000)
    for _ in range(5):
        wire.produce(topic, batch)
    size = len(batch)
    assert len(wire.fetch(topic, partition_max_bytes=1).records) == size
    assert len(wire.fetch(topic, max_bytes=1).records) == size
    assert len(wire.fetch(topic, max_bytes=2 * size + 10).records) == 2 * size
    assert len(wire.fetch(topic, partition_max_bytes=3 * size).records) == 3 * size


def test_max_bytes_goes_over_all_partitions(wire: Wire, broker_of_module: BrokerProcess) -> None:
    """L1, KIP-74: one large batch in the whole answer, not one a partition."""
    wire.create_topic("wide", partitions=3)
    batch = batch_of(b"x" * 1000)
    for partition in range(3):
        wire.produce("wide", batch, partition=partition)
    parts = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=10_000) for n in range(3)]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=10, topics=[FetchTopic(topic="wide", partitions=parts)]
    )
    answers = wire.call(FETCH, 11, request).responses[0].partitions
    assert [len(answer.records) for answer in answers] == [len(batch), 0, 0]


def test_offsets_outside_the_log_are_refused(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch_of(b"a", b"b", b"c"))
    assert wire.fetch(topic, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.fetch(topic, 3).error_code == ErrorCode.NONE
    assert wire.delete_records(topic, 2) == (ErrorCode.NONE, 2)
    assert wire.fetch(topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.offset_of(topic, EARLIEST).offset == 2
    assert wire.delete_records(topic, 9)[0] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_leader_epochs_are_compared(wire: Wire, topic: str) -> None:
    """KIP-320: a client that knows more than we do waits, one that knows less asks again."""
    wire.produce(topic, batch_of(b"a", b"b"))
    assert wire.fetch(topic, current_leader_epoch=0).error_code == ErrorCode.NONE
    assert wire.fetch(topic, current_leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    for version in range(5):
        answer = wire.end_of_epoch(topic, 0, current=0, version=version)
        assert (answer.error_code, answer.end_offset) == (ErrorCode.NONE, 2)
    assert wire.end_of_epoch(topic, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_topic_ids(wire: Wire, topic: str) -> None:
    """L12: Fetch v13 and later name topics by id."""
    wire.produce(topic, batch_of(b"by id"))
    metadata = wire.call(3, 12, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    ask = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=metadata.topics[0].topic_id)])
    request.topics[0].partitions = [ask]
    for version in range(13, 19):
        response = wire.call(FETCH, version, request)
        assert response.responses[0].topic_id == metadata.topics[0].topic_id
        assert values_in(response.responses[0].partitions[0]) == [b"by id"]
    request.topics[0].topic_id = b"\xff" * 16
    response = wire.call(FETCH, 13, request)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_unknown_partitions_are_told_apart_from_the_known(wire: Wire, topic: str) -> None:
    assert wire.fetch(topic, partition=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch("nobody-made-this").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_zstd_topics_need_fetch_10(wire: Wire) -> None:
    """L9."""
    wire.create_topic("zstd-only", compression_type="zstd")
    wire.produce("zstd-only", batch_of(b"x", compression=Compression.ZSTD))
    assert wire.fetch("zstd-only", version=9).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert values_in(wire.fetch("zstd-only", version=10)) == [b"x"]


def test_offsets_by_name_and_time(wire: Wire, topic: str) -> None:
    wire.produce(topic, batch_of(b"a", b"b", timestamp_ms=NOW_MS))
    wire.produce(topic, batch_of(b"c", timestamp_ms=NOW_MS + 5000))
    wire.produce(topic, batch_of(b"d", timestamp_ms=NOW_MS + 1000))
    assert wire.offset_of(topic, NOW_MS + 1).offset == 1
    found = wire.offset_of(topic, NOW_MS + 900)
    assert (found.offset, found.timestamp) == (2, NOW_MS + 5000)
    assert wire.offset_of(topic, NOW_MS + 9000).offset == -1
    found = wire.offset_of(topic, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (2, NOW_MS + 5000)
    assert wire.offset_of(topic, MAX_TIMESTAMP, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert wire.offset_of(topic, LATEST_TIERED, version=9).offset == -1
    assert wire.offset_of("nobody-made-this", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
