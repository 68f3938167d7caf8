"""Programs that use Kafka's messages and metadata records: their declarations are their types."""

from collections.abc import Sequence
from typing import TypeVar, assert_type

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, ProduceResponse
from fencepost.protocol.messages.api01_fetch import EpochEndOffset, PartitionData
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.metadata_record_types import PartitionRecord, RegisterBrokerRecord
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import RequestValue, ResponseValue

R = TypeVar("R", bound=ResponseValue)


def answer_to(request: RequestValue[R]) -> R:
    raise NotImplementedError


def what_a_request_is(data: bytes) -> None:
    request = ProduceRequest.decode(data, 9)
    assert_type(request, ProduceRequest)
    assert_type(request.transactional_id, str | None)
    assert_type(request.topic_data[0].partition_data, list[PartitionProduceData])
    assert_type(MetadataRequest().topics, list[MetadataRequestTopic] | None)
    assert_type(PartitionData().diverging_epoch, EpochEndOffset | None)
    assert_type(request.unknown_tags, dict[int, bytes] | None)
    assert_type(answer_to(request), ProduceResponse)
    assert_type(API_BY_KEY[0].request.decode(data, 9).api_key, ApiKey)
    print(request.topic_dta)  # refused
    request.acks = "all"  # refused


def what_a_constructor_takes(buffers: Sequence[bytes]) -> None:
    ProduceRequest()
    ProduceRequest(acks=1, topic_data=[])
    ProduceRequest(ack=1)  # refused
    ProduceRequest("an id")  # refused
    ProduceRequest(unknown_tags={})  # refused
    PartitionProduceData(index="1")  # refused
    PartitionProduceData(records=buffers)
    PartitionProduceData(records=7)  # refused


def what_records_are(data: PartitionProduceData) -> None:
    assert_type(data.records, memoryview | None)
    data.records = b"one buffer"
    data.records = [b"several", memoryview(b"buffers")]
    data.records = 7  # refused


def what_a_metadata_record_is(partition: PartitionRecord) -> None:
    assert_type(partition.isr, tuple[int, ...])
    assert_type(partition.last_known_elr, tuple[int, ...] | None)
    assert_type(partition._replace(leader=2), PartitionRecord)
    assert_type(RegisterBrokerRecord(1, False, bytes(16), 3).rack, str | None)
    RegisterBrokerRecord(1)  # refused
    partition.leader = 3  # refused
