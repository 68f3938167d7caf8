"""Declarations: defaults, versions, errors that name the place, and the bounds on what a peer may claim."""

import struct
import tracemalloc

import pytest

from fencepost.protocol.messages.api00_produce import ProduceRequest, ProduceResponse, TopicProduceData
from fencepost.protocol.messages.api01_fetch import FetchResponse, PartitionData
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fencepost.protocol.messages.api75_describe_topic_partitions import DescribeTopicPartitionsRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import DecodeError, EncodeError


def test_fields_left_out_have_kafkas_defaults() -> None:
    data = PartitionData()
    assert (data.last_stable_offset, data.preferred_read_replica, data.records) == (-1, -1, None)
    assert data.aborted_transactions == []
    assert data.diverging_epoch is None
    assert MetadataRequest().topics == []
    assert MetadataRequest().allow_auto_topic_creation is True
    assert PartitionData().aborted_transactions is not data.aborted_transactions


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError, match="high_watermrk"):
        PartitionData(high_watermrk=3)


def test_a_version_writes_only_its_own_fields_and_reads_the_rest_as_defaults() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    assert MetadataRequest.decode(MetadataRequest.encode(request, 3), 3).allow_auto_topic_creation is True
    assert MetadataRequest.decode(MetadataRequest.encode(request, 4), 4).allow_auto_topic_creation is False


def test_records_are_neither_copied_in_nor_out() -> None:
    batch = memoryview(bytearray(b"0123456789"))
    parts = FetchResponse.encode_parts(_fetch_response(PartitionData(records=[batch[:4], batch[4:]])), 12)
    assert any(part is not None and getattr(part, "obj", None) is batch.obj for part in parts)
    frame = bytearray(b"".join(parts))
    records = FetchResponse.decode(frame, 12).responses[0].partitions[0].records
    assert bytes(records) == b"0123456789"
    assert records.obj is frame


def _fetch_response(partition: object) -> object:
    from fencepost.protocol.messages.api01_fetch import FetchableTopicResponse

    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def test_a_null_that_may_not_be_names_its_field() -> None:
    with pytest.raises(EncodeError, match=r"ProduceRequest v9, topic_data\[0\]\.name"):
        ProduceRequest.encode(ProduceRequest(topic_data=[TopicProduceData(name=None)]), 9)


def test_a_number_that_does_not_fit_names_its_field() -> None:
    with pytest.raises(EncodeError, match="ProduceRequest v9, acks = 70000"):
        ProduceRequest.encode(ProduceRequest(acks=70000), 9)


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(EncodeError, match="no version 99"):
        ProduceRequest.encode(ProduceRequest(), 99)


def test_an_error_names_api_version_field_and_offset() -> None:
    body = struct.pack(">i", 1) + struct.pack(">h", 9) + b"short"
    with pytest.raises(DecodeError, match=r"MetadataRequest v1, topics\[0\]\.name at byte") as caught:
        MetadataRequest.decode(body, 1)
    assert caught.value.field == "topics[0].name"
    assert caught.value.version == 1


def test_a_null_struct_and_a_struct_come_back() -> None:
    """KIP-893: a nullable struct has a byte before it."""
    from fencepost.protocol.messages.api75_describe_topic_partitions import Cursor

    for cursor in (None, Cursor(topic_name="t", partition_index=4)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        data = DescribeTopicPartitionsRequest.encode(request, 0)
        assert DescribeTopicPartitionsRequest.decode(data, 0) == request


@pytest.mark.parametrize("count", [2**31 - 1, 10**6, 6])
def test_no_allocation_from_a_claimed_count(count: int) -> None:
    """A count times the least size of an element must fit the rest of the frame (KAFKA-5062, KAFKA-2878)."""
    body = struct.pack(">i", count) + b"\0" * 10
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="cannot fit"):
            MetadataRequest.decode(body, 1)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [-2, -32768, 32767])
def test_no_allocation_from_a_claimed_length(length: int) -> None:
    with pytest.raises(DecodeError, match="transactional_id"):
        ProduceRequest.decode(struct.pack(">h", length) + b"\0" * 8, 3)


def test_an_array_of_minus_two_is_not_null() -> None:
    """Kafka takes any negative count for null; a peer that sends -2 is broken, and hears it."""
    with pytest.raises(DecodeError, match="count of -2"):
        MetadataRequest.decode(struct.pack(">i", -2), 1)


def test_tags_must_rise_and_fill_their_size() -> None:
    body = ProduceResponse.encode(ProduceResponse(), 9)
    with pytest.raises(DecodeError, match="tags must rise"):
        ProduceResponse.decode(body[:-1] + b"\x02\x05\x00\x05\x00", 9)
    with pytest.raises(DecodeError, match="node_endpoints does not fill"):
        ProduceResponse.decode(body[:-1] + b"\x01\x00\x02\x01\x00", 10)


def test_the_registry_and_the_declarations_agree() -> None:
    for api in API_BY_KEY.values():
        for message in (api.request, api.response):
            assert message.versions == api.with_unstable().served
            for version in range(api.served[0], api.served[1] + 1):
                assert message.is_flexible(version) == (version >= api.flexible_since), (api.name, version)


def test_txn_offset_commit_6_names_topics_by_id() -> None:
    """KIP-1319: as TxnOffsetCommitRequest.json and -Response.json of Kafka 4.4 say, byte by byte."""
    module = API_BY_KEY[28].module
    partition = module.TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=7, committed_metadata="m")
    request = module.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=9,
        producer_epoch=2,
        generation_id_or_member_epoch=3,
        member_id="i",
        topics=[module.TxnOffsetCommitRequestTopic(topic_id=bytes(range(16)), partitions=[partition])],
    )
    body = bytes.fromhex(
        "0274 0267 0000000000000009 0002 00000003 0269 00"
        "02 000102030405060708090a0b0c0d0e0f 02 00000001 0000000000000007 ffffffff 026d 00 00 00"
    )
    assert bytes(module.TxnOffsetCommitRequest.encode(request, 6)) == body
    assert module.TxnOffsetCommitRequest.decode(body, 6) == request
    answer = module.TxnOffsetCommitResponse(
        topics=[
            module.TxnOffsetCommitResponseTopic(
                topic_id=bytes(range(16)),
                partitions=[module.TxnOffsetCommitResponsePartition(partition_index=1, error_code=100)],
            )
        ]
    )
    body = bytes.fromhex("00000000 02 000102030405060708090a0b0c0d0e0f 02 00000001 0064 00 00 00")
    assert bytes(module.TxnOffsetCommitResponse.encode(answer, 6)) == body


def test_what_is_advertised_is_what_kafka_43_advertises() -> None:
    """kafka-rules D.2: old clients are served more, and only they are told (Produce from 0: KAFKA-18659).

    Of what came with 4.4 TxnOffsetCommit 6 is served, and nobody is told.
    """
    wider = {api.name: (api.served, api.advertised) for api in API_BY_KEY.values() if api.served != api.advertised}
    assert wider == {
        "Produce": ((3, 13), (0, 13)),
        "ListOffsets": ((0, 11), (1, 11)),
        "OffsetCommit": ((0, 10), (2, 10)),
        "CreateTopics": ((0, 7), (2, 7)),
        "DeleteTopics": ((0, 6), (1, 6)),
        "OffsetForLeaderEpoch": ((0, 4), (2, 4)),
        "TxnOffsetCommit": ((0, 6), (0, 5)),
        "WriteTxnMarkers": ((0, 2), (1, 2)),
        "DescribeConfigs": ((0, 4), (1, 4)),
    }
    assert MetadataResponse.versions == (0, 13)
    assert {
        api.name: api.reported_to_old_clients[0] for api in API_BY_KEY.values() if api.served != api.advertised
    } == {
        "Produce": 0,
        "ListOffsets": 0,
        "OffsetCommit": 0,
        "CreateTopics": 0,
        "DeleteTopics": 0,
        "OffsetForLeaderEpoch": 0,
        "TxnOffsetCommit": 0,
        "WriteTxnMarkers": 0,
        "DescribeConfigs": 0,
    }
