"""Writing: acks, sequences, topic ids, and the transaction of a batch (rows P2-P5, T11, T15, T16, L8, L9, L15)."""

import pytest

from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from tests.kit.wire import PRODUCE, Wire, batch_of, committed_values, produce_request, values_in

READ_COMMITTED = 1
TV1, TV2 = 11, 12
"""Produce versions: the last one that verifies, the first one that adds."""


def in_transaction(value: bytes, producer: tuple[int, int], sequence: int = 0) -> bytearray:
    return batch_of(
        value, transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence
    )


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name(wire: Wire, topic: str, version: int) -> None:
    answer = wire.produce(topic, batch_of(b"v%d" % version), version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (ErrorCode.NONE, 0, -1)
    assert values_in(wire.fetch(topic)) == [b"v%d" % version]


def test_topics_by_id(wire: Wire, topic: str) -> None:
    """L12: Produce v13."""
    metadata = wire.call(3, 12, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    data = TopicProduceData(
        topic_id=metadata.topics[0].topic_id, partition_data=[PartitionProduceData(index=0, records=batch_of(b"id"))]
    )
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    response = wire.call(PRODUCE, 13, request).responses[0]
    assert response.topic_id == metadata.topics[0].topic_id
    assert response.partition_responses[0].error_code == ErrorCode.NONE
    data.topic_id = b"\xfe" * 16
    response = wire.call(PRODUCE, 13, request).responses[0]
    assert response.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert values_in(wire.fetch(topic)) == [b"id"]


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_acks(wire: Wire, topic: str, acks: int) -> None:
    if acks:
        assert wire.produce(topic, batch_of(b"x"), acks=acks).error_code == ErrorCode.NONE
    else:
        wire.send(PRODUCE, 9, produce_request(topic, batch_of(b"x"), acks=0))
    assert values_in(wire.fetch(topic, max_wait_ms=5000)) == [b"x"]


def test_other_acks_are_refused(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch_of(b"x"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert values_in(wire.fetch(topic)) == []


def test_each_partition_has_its_own_outcome(wire: Wire, topic: str) -> None:
    bad = batch_of(b"bad")
    bad[-1] ^= 1
    parts = [
        PartitionProduceData(index=0, records=batch_of(b"good")),
        PartitionProduceData(index=1, records=bad),
        PartitionProduceData(index=9, records=batch_of(b"nowhere")),
    ]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])
    answers = wire.call(PRODUCE, 9, request).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert answers[1].error_message


def test_internal_topics_are_not_for_clients(wire: Wire) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        assert wire.produce(name, batch_of(b"x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_zstd_needs_produce_7(wire: Wire, topic: str) -> None:
    batch = batch_of(b"x", compression=Compression.ZSTD)
    assert wire.produce(topic, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert wire.produce(topic, batch, version=7).error_code == ErrorCode.NONE


def test_keyless_records_on_a_compacted_topic_are_named(wire: Wire) -> None:
    """L15, KIP-467: each bad record by its index."""
    wire.create_topic("compacted", cleanup_policy="compact")
    answer = wire.produce("compacted", batch_of(b"a", b"b"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [entry.batch_index for entry in answer.record_errors] == [0, 1]


def test_batches_over_the_limit_are_refused(wire: Wire) -> None:
    wire.create_topic("small", max_message_bytes="1000")
    assert wire.produce("small", batch_of(b"x" * 1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce("small", batch_of(b"x" * 800)).error_code == ErrorCode.NONE


def test_sequences(wire: Wire, topic: str) -> None:
    """P2, P3, P4: in order, twice, out of order, and from a fenced epoch."""
    producer_id, _ = wire.init_producer_id()

    def batch(sequence: int, epoch: int = 0) -> bytearray:
        return batch_of(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    assert [wire.produce(topic, batch(n)).base_offset for n in (0, 1, 2)] == [0, 1, 2]
    again = wire.produce(topic, batch(1))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1)
    assert wire.produce(topic, batch(5)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce(topic, batch(0, epoch=1)).base_offset == 3
    assert wire.produce(topic, batch(3, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_of_no_transaction_is_refused_by_verification(wire: Wire, topic: str) -> None:
    """T15 (KIP-890 part 1): a TV1 batch whose partition was never added; the code depends on the version."""
    producer = wire.init_producer_id(topic)
    refused = wire.produce(topic, in_transaction(b"x", producer), version=10, transactional_id=topic)
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    refused = wire.produce(topic, in_transaction(b"x", producer), version=TV1, transactional_id=topic)
    assert refused.error_code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
    wire.add_partitions(topic, producer, topic, 0)
    accepted = wire.produce(topic, in_transaction(b"x", producer), version=TV1, transactional_id=topic)
    assert accepted.error_code == ErrorCode.NONE


def test_a_delayed_batch_does_not_open_a_transaction_again(wire: Wire, topic: str) -> None:
    """T15: after EndTxn the partition is no longer part of anything; nothing may hang."""
    producer = wire.init_producer_id(topic)
    wire.add_partitions(topic, producer, topic, 0)
    wire.produce(topic, in_transaction(b"x", producer), version=TV1, transactional_id=topic)
    assert wire.end_txn(topic, producer, commit=True).error_code == ErrorCode.NONE
    late = wire.produce(topic, in_transaction(b"late", producer, 1), version=TV1, transactional_id=topic)
    assert late.error_code != ErrorCode.NONE
    answer = wire.fetch(topic, isolation=READ_COMMITTED)
    assert (committed_values(answer), answer.last_stable_offset, answer.high_watermark) == ([b"x"], 2, 2)


def test_transactional_batches_need_their_id(wire: Wire, topic: str) -> None:
    producer = wire.init_producer_id(topic)
    wire.add_partitions(topic, producer, topic, 0)
    answer = wire.produce(topic, in_transaction(b"x", producer))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_one_request_carries_one_transaction(wire: Wire, topic: str) -> None:
    first, second = wire.init_producer_id(topic + "-1"), wire.init_producer_id(topic + "-2")
    parts = [
        PartitionProduceData(index=0, records=in_transaction(b"x", first)),
        PartitionProduceData(index=1, records=in_transaction(b"x", second)),
    ]
    request = ProduceRequest(
        transactional_id=topic + "-1",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )
    answers = wire.call(PRODUCE, TV2, request).responses[0].partition_responses
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_the_second_protocol_adds_partitions_by_itself_and_bumps_the_epoch(wire: Wire, topic: str) -> None:
    """T16 (KIP-890 part 2): no AddPartitionsToTxn; EndTxn v5 answers the next epoch; the old one is fenced at once."""
    producer = wire.init_producer_id(topic)
    for number, commit in enumerate([True, False, True]):
        for partition in (0, 1):
            answer = wire.produce(
                topic,
                in_transaction(b"%d" % number, producer),
                partition=partition,
                version=TV2,
                transactional_id=topic,
            )
            assert answer.error_code == ErrorCode.NONE
        request = EndTxnRequest(
            transactional_id=topic, producer_id=producer[0], producer_epoch=producer[1], committed=commit
        )
        ended = wire.call(26, 5, request)
        assert ended.error_code == ErrorCode.NONE
        assert ended.producer_epoch == producer[1] + 1
        old, producer = producer, (ended.producer_id, ended.producer_epoch)
        late = wire.produce(topic, in_transaction(b"late", old, 1), version=TV2, transactional_id=topic)
        assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    for partition in (0, 1):
        answer = wire.fetch(topic, partition=partition, isolation=READ_COMMITTED)
        assert committed_values(answer) == [b"0", b"2"]
        assert answer.last_stable_offset == answer.high_watermark


def test_describe_producers_shows_the_open_transaction(wire: Wire, topic: str) -> None:
    """T19."""
    producer = wire.init_producer_id(topic)
    wire.produce(topic, batch_of(b"before"))
    wire.produce(topic, in_transaction(b"x", producer), version=TV2, transactional_id=topic)
    here, missing = wire.producers(topic, 0, 9)
    assert [(p.producer_id, p.producer_epoch, p.current_txn_start_offset) for p in here.active_producers] == [
        (producer[0], producer[1], 1)
    ]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
