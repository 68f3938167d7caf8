"""Answers of many MiB that leave by sendfile: readers that go away or lag, and files that go away meanwhile."""

import os
import socket
from collections.abc import Iterator

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.waiting import until
from tests.kit.wire import FETCH, Wire, batch_of, committed_values, fetch_request, values_in

DELETE_TOPICS, DELETE_RECORDS = 20, 21
READ_COMMITTED = 1
PARTITIONS = 8
BATCHES = 4
SIZE = 1 << 19
GONE_SECONDS = 100


@pytest.fixture
def writer(file_broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(file_broker.connect()) as wire:
        yield wire


def value(partition: int, number: int) -> bytes:
    return bytes([partition, number]) * (SIZE // 2)


def fill(wire: Wire, topic: str, partitions: int = PARTITIONS, **configs: str) -> None:
    """2 MiB in each partition, in batches of half a MiB."""
    wire.create_topic(topic, partitions, **configs)
    for partition in range(partitions):
        for number in range(BATCHES):
            batch = batch_of(value(partition, number))
            assert wire.produce(topic, batch, partition=partition).error_code == ErrorCode.NONE


def fetch_all(topic: str, partitions: int = PARTITIONS) -> object:
    asks = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=10 << 20) for n in range(partitions)]
    topics = [FetchTopic(topic=topic, partitions=asks)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, isolation_level=READ_COMMITTED, topics=topics)


def stalled(broker: BrokerProcess, topic: str, partitions: int = PARTITIONS) -> Wire:
    """Somebody who asks for everything, reads one byte of it, and then nothing for the moment."""
    wire = Wire(broker.connect())
    wire.send(FETCH, 11, fetch_all(topic, partitions))
    assert wire.socket.recv(1, socket.MSG_PEEK)
    return wire


def assert_whole(reader: Wire, partitions: int = PARTITIONS) -> None:
    _, answer = reader.receive(FETCH, 11)
    found = {part.partition_index: values_in(part) for part in answer.responses[0].partitions}
    assert found == {n: [value(n, number) for number in range(BATCHES)] for n in range(partitions)}


def open_logs(broker: BrokerProcess, topic: str) -> list[str]:
    """The topic's segments that the broker has open, by name; a deleted one says so."""
    found = []
    for name in os.listdir(f"/proc/{broker.pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{broker.pid}/fd/{name}"))
        except FileNotFoundError:
            continue  # closed since
    return [path for path in found if f"/{topic}-" in path and ".log" in path]


def wait_until_closed(broker: BrokerProcess, topic: str) -> None:
    until(lambda: open_logs(broker, topic), lambda still: not still, seconds=GONE_SECONDS)


def delete(wire: Wire, topic: str) -> None:
    answer = wire.call(DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000))
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_a_reader_who_goes_away_in_the_middle_leaves_nothing_behind(file_broker: BrokerProcess, writer: Wire) -> None:
    fill(writer, "t")
    for _ in range(5):
        stalled(file_broker, "t").close()
    with Wire(file_broker.connect()) as other:
        assert values_in(other.fetch("t", partition=3)) == [value(3, number) for number in range(BATCHES)]
    delete(writer, "t")
    wait_until_closed(file_broker, "t")  # those who went away hold no file open
    assert "error" not in file_broker.log().lower()


def test_a_topic_deleted_while_it_is_sent_arrives_whole(file_broker: BrokerProcess, writer: Wire) -> None:
    """And the next answer says that it is gone; its files are closed when the last byte has left."""
    fill(writer, "t")
    with stalled(file_broker, "t") as slow:
        delete(writer, "t")
        assert writer.fetch("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert open_logs(file_broker, "t")
        assert_whole(slow)
        wait_until_closed(file_broker, "t")
        assert slow.fetch("t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_segments_that_expire_while_they_are_sent_arrive_whole(file_broker: BrokerProcess, writer: Wire) -> None:
    """L3: DeleteRecords takes segments away; who has been promised them gets them. One batch fills a segment."""
    fill(writer, "t", 4, segment_bytes=str(2 * SIZE), file_delete_delay_ms="0")
    with stalled(file_broker, "t", 4) as slow:
        for partition in range(4):
            writer.delete_records("t", BATCHES, partition=partition)
            assert writer.fetch("t", partition=partition).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert_whole(slow, 4)


def test_a_large_committed_answer_ends_at_the_last_stable_offset(file_broker: BrokerProcess, writer: Wire) -> None:
    """I1: the region of the file that is sent ends with the last decided batch, though more stands behind it."""
    fill(writer, "t", 1)
    producer = writer.init_producer_id("tx")
    writer.add_partitions("tx", producer, "t", 0)
    for number in range(3):
        header = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": number}
        batch = batch_of(b"open" * (SIZE // 4), transactional=True, **header)
        assert writer.produce("t", batch, version=8, transactional_id="tx").error_code == ErrorCode.NONE
    writer.produce("t", batch_of(b"behind" * (SIZE // 8)))
    decided = [value(0, number) for number in range(BATCHES)]
    with Wire(file_broker.connect()) as reader:
        answer = reader.fetch("t", isolation=READ_COMMITTED)
        assert (committed_values(answer), answer.last_stable_offset) == (decided, BATCHES)
        assert values_in(answer) == decided  # not even bytes that a reader would have to skip
        writer.end_txn("tx", producer, commit=False)
        answer = reader.fetch("t", isolation=READ_COMMITTED)
        assert committed_values(answer) == [*decided, b"behind" * (SIZE // 8)]
        assert len(values_in(answer)) == BATCHES + 4


def test_many_slow_readers_cost_no_memory_and_hold_up_no_other_client(file_broker: BrokerProcess, writer: Wire) -> None:
    """Sixteen readers are owed 16 MiB each, and take one byte; the broker holds nothing of that in its own memory."""
    fill(writer, "t")
    writer.fetch("t")
    before = file_broker.rss_bytes()
    slow = [stalled(file_broker, "t") for _ in range(16)]
    try:
        for number in range(20):
            assert writer.produce("t", batch_of(b"%d" % number)).error_code == ErrorCode.NONE
        assert file_broker.rss_bytes() - before < 8 << 20
        assert_whole(slow[7])
    finally:
        for wire in slow:
            wire.close()


@pytest.mark.parametrize("max_bytes", [100_000, 3 << 20])
def test_pipelined_large_answers_come_in_order(file_broker: BrokerProcess, writer: Wire, max_bytes: int) -> None:
    """After a large answer the broker waits for input, though the next request lies in the socket already."""
    fill(writer, "t")
    with Wire(file_broker.connect()) as reader:
        asked = [
            reader.send(FETCH, 11, fetch_request("t", partition=number % PARTITIONS, max_bytes=max_bytes))
            for number in range(24)
        ]
        for number, correlation_id in enumerate(asked):
            received, answer = reader.receive(FETCH, 11)
            assert received == correlation_id
            assert values_in(answer.responses[0].partitions[0])[0] == value(number % PARTITIONS, 0)
