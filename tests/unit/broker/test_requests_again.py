"""A client that sends the same bytes again is answered by what holds now, not by what held before."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.testing import Broker
from tests.kit.wire import Wire, add_request, batch_of

PRODUCE, METADATA, DELETE_TOPICS, ADD, END = 0, 3, 20, 24, 26
TOPIC_ID_SINCE = 13
NONE = ErrorCode.NONE
PRODUCE_VERSIONS = range(API_BY_KEY[PRODUCE].served[0], API_BY_KEY[PRODUCE].served[1] + 1)


class Asking(Wire):
    """One connection, and what these tests ask over it."""

    def topic_id(self, name: str) -> bytes:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        topic_id: bytes = self.call(METADATA, 12, asked).topics[0].topic_id
        return topic_id

    def write(self, version: int, records: bytes, topic_id: bytes = bytes(16), **fields: Any) -> Any:
        part = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=[part])
        request = ProduceRequest(**{"acks": -1, "timeout_ms": 1000, "topic_data": [topic], **fields})
        return self.call(PRODUCE, version, request).responses[0].partition_responses[0]

    def delete_topic(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=10_000)
        assert self.call(DELETE_TOPICS, 6, request).responses[0].error_code == NONE


@pytest.fixture
def wire() -> Iterator[Asking]:
    with Broker() as broker, Asking(socket.create_connection(("127.0.0.1", broker.port), 100)) as wire:
        wire.create_topic("t")
        yield wire


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_each_batch_gets_the_next_offset_and_batches_of_any_size_are_told_apart(wire: Asking, version: int) -> None:
    topic_id = wire.topic_id("t") if version >= TOPIC_ID_SINCE else bytes(16)
    for number, size in enumerate([1, 1, 60, 100, 20_000, 1]):
        answer = wire.write(version, batch_of(bytes(size)), topic_id)
        assert (answer.error_code, answer.base_offset) == (NONE, number)
    damaged = bytearray(batch_of(bytes(60)))
    damaged[-1] ^= 1
    assert wire.write(version, bytes(damaged), topic_id).error_code == ErrorCode.CORRUPT_MESSAGE
    assert wire.write(version, batch_of(b"v"), topic_id).base_offset == 6


def test_a_deleted_topic_is_not_written_to_and_its_successor_is(wire: Asking) -> None:
    former = wire.topic_id("t")
    for version, topic_id in ((9, bytes(16)), (13, former)):
        for _ in range(3):
            assert wire.write(version, batch_of(b"v"), topic_id).error_code == NONE
    wire.delete_topic()
    assert wire.write(9, batch_of(b"v")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wire.create_topic("t")
    assert wire.write(9, batch_of(b"v")).base_offset == 0
    assert wire.write(13, batch_of(b"v"), former).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert wire.write(13, batch_of(b"v"), wire.topic_id("t")).base_offset == 1


@pytest.mark.parametrize(("add_version", "end_version"), [(0, 0), (1, 2), (3, 3), (3, 4)])
def test_transactions_of_tv1_begin_and_end_by_the_same_bytes_until_they_are_fenced(
    wire: Asking, add_version: int, end_version: int
) -> None:
    """Rows T3, T7, T11: the producer keeps its epoch, so only correlation ids and sequences are new."""
    producer_id, epoch = wire.init_producer_id("x")
    add = add_request("x", (producer_id, epoch), "t", 0)
    end = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True)

    def added() -> int:
        [topic] = wire.call(ADD, add_version, add).results_by_topic_v3_and_below
        code: int = topic.results_by_partition[0].partition_error_code
        return code

    def batch(sequence: int) -> bytes:
        return bytes(
            batch_of(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        )

    for sequence in range(4):
        refused = wire.write(9, batch(sequence), transactional_id="x")
        assert refused.error_code == ErrorCode.INVALID_TXN_STATE, "row T15: the partition has yet to join"
        assert added() == NONE
        assert wire.write(9, batch(sequence), transactional_id="x").error_code == NONE
        assert wire.call(END, end_version, end).error_code == NONE
        assert wire.call(END, end_version, end).error_code == NONE, "a retry has the same answer"
    assert wire.init_producer_id("x") == (producer_id, epoch + 1)
    fenced = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
    assert added() in fenced
    assert wire.call(END, end_version, end).error_code in fenced


def test_partitions_that_are_gone_do_not_join_by_bytes_that_did(wire: Asking) -> None:
    """Row T3."""
    producer_id, epoch = wire.init_producer_id("x")
    add = add_request("x", (producer_id, epoch), "t", 0)
    codes = []
    for gone in (False, False, True):
        if gone:
            wire.delete_topic()
        [topic] = wire.call(ADD, 1, add).results_by_topic_v3_and_below
        codes.append(topic.results_by_partition[0].partition_error_code)
    assert codes == [NONE, NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
