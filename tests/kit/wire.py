"""Kafka's protocol over a plain socket, spoken with the project's own codec: for tests that need every byte in hand."""

import socket
import struct
import time
from typing import Any, Self

from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_response_header, write_request_header
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.api21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.messages.api24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.api61_describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.registry import API_BY_KEY

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, CREATE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 0, 1, 2, 8, 19, 21, 22
OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT, DESCRIBE_PRODUCERS = 23, 24, 26, 28, 61
NOW_MS = int(time.time() * 1000)
"""Timestamps of test records are of today: retention would take older ones away in the middle of a test."""


class ConnectionEnded(Exception):
    """The broker closed the connection."""


class Wire:
    """One connection. `call` asks and waits; `send` and `receive` are its halves, for pipelining."""

    def __init__(self, sock: socket.socket, client_id: str = "wire") -> None:
        self.socket = sock
        self.client_id = client_id
        self._next_correlation_id = 1

    def frame(self, api_key: int, version: int, request: Any) -> tuple[int, bytes]:
        """A request's correlation id and its bytes, length included."""
        api = API_BY_KEY[api_key]
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        body = write_request_header(api, version, correlation_id, self.client_id) + api.request.encode(request, version)
        return correlation_id, struct.pack(">i", len(body)) + body

    def send(self, api_key: int, version: int, request: Any) -> int:
        """Send a request and return its correlation id."""
        correlation_id, data = self.frame(api_key, version, request)
        self.socket.sendall(data)
        return correlation_id

    def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        """The next answer: its correlation id and its body."""
        api = API_BY_KEY[api_key]
        frame = self.receive_frame()
        correlation_id, start = read_response_header(api, version, frame)
        return correlation_id, api.response.decode(frame, version, start)

    def call(self, api_key: int, version: int, request: Any) -> Any:
        """Ask and wait for the answer."""
        sent = self.send(api_key, version, request)
        correlation_id, response = self.receive(api_key, version)
        assert correlation_id == sent
        return response

    def receive_frame(self) -> bytes:
        """The next answer's bytes without their length. Raises ConnectionEnded."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def expect_end(self) -> None:
        """Return when the broker has closed the connection; anything else it sends is a failure."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return
        assert data == b"", f"the broker answered {data[:64]!r} instead of closing"

    def close(self) -> None:
        """Close our side."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self.socket.recv(min(1 << 20, count - len(data)))
            except ConnectionResetError as error:
                raise ConnectionEnded from error
            if not piece:
                raise ConnectionEnded
            data += piece
        return bytes(data)

    # What tests do most

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; its configs by Kafka's names with underscores for dots."""
        from fencepost.protocol.messages.api19_create_topics import CreatableTopicConfig

        entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
        response = self.call(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert response.topics[0].error_code == ErrorCode.NONE, response

    def produce(self, topic: str, batch: Any, *, partition: int = 0, version: int = 9, **fields: Any) -> Any:
        """Append one batch; return the partition's answer."""
        response = self.call(PRODUCE, version, produce_request(topic, batch, partition=partition, **fields))
        return response.responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, version: int = 11, **fields: Any) -> Any:
        """Read one partition; return its answer."""
        response = self.call(FETCH, version, fetch_request(topic, offset, partition=partition, **fields))
        return response.responses[0].partitions[0]

    def offset_of(self, topic: str, timestamp: int, *, isolation: int = 0, partition: int = 0, version: int = 7) -> Any:
        """ListOffsets of one partition; return its answer."""
        ask = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[ask])]
        )
        return self.call(LIST_OFFSETS, version, request).topics[0].partitions[0]

    def init_producer_id(self, transactional_id: str | None = None, timeout_ms: int = 60_000) -> tuple[int, int]:
        """A producer id and epoch."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        response = self.call(INIT_PRODUCER_ID, 4, request)
        assert response.error_code == ErrorCode.NONE, response
        return response.producer_id, response.producer_epoch

    def delete_records(self, topic: str, offset: int, *, partition: int = 0) -> tuple[int, int]:
        """DeleteRecords of one partition; its error and its low watermark."""
        ask = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[ask])], timeout_ms=1000)
        answer = self.call(DELETE_RECORDS, 2, request).topics[0].partitions[0]
        return answer.error_code, answer.low_watermark

    def end_of_epoch(self, topic: str, epoch: int, *, current: int = -1, version: int = 4) -> Any:
        """OffsetForLeaderEpoch of the first partition; return its answer."""
        ask = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[ask])]
        )
        return self.call(OFFSET_FOR_LEADER_EPOCH, version, request).topics[0].partitions[0]

    def commit_offsets(
        self, group: str, topic: str, *offsets: int, version: int = 8, metadata: str = "", **member: Any
    ) -> ErrorCode:
        """Commit one offset for each partition from the first on; the first error."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata=metadata)
            for number, offset in enumerate(offsets)
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
        answer = self.call(OFFSET_COMMIT, version, OffsetCommitRequest(group_id=group, topics=topics, **member))
        return ErrorCode(next((one.error_code for one in answer.topics[0].partitions if one.error_code), 0))

    def commit_in_transaction(
        self, group: str, topic: str, offset: int, name: str, producer: tuple[int, int], version: int = 5
    ) -> ErrorCode:
        """TxnOffsetCommit of the first partition; from version 5 on no AddOffsetsToTxn has to come before it (T16)."""
        request = txn_offset_request(group, topic, offset, name, producer)
        return ErrorCode(self.call(TXN_OFFSET_COMMIT, version, request).topics[0].partitions[0].error_code)

    def producers(self, topic: str, *partitions: int) -> list[Any]:
        """DescribeProducers; return the partitions' answers."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(partitions))])
        answers: list[Any] = self.call(DESCRIBE_PRODUCERS, 0, request).topics[0].partitions
        return answers

    def add_partitions(self, transactional_id: str, producer: tuple[int, int], topic: str, *partitions: int) -> None:
        """AddPartitionsToTxn as a TV1 client sends it."""
        response = self.call(ADD_PARTITIONS, 3, add_request(transactional_id, producer, topic, *partitions))
        codes = [
            part.partition_error_code
            for result in response.results_by_topic_v3_and_below
            for part in result.results_by_partition
        ]
        assert codes == [ErrorCode.NONE] * len(partitions), response

    def end_txn(self, transactional_id: str, producer: tuple[int, int], *, commit: bool, version: int = 3) -> Any:
        """EndTxn; return the answer."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        return self.call(END_TXN, version, request)


def add_request(transactional_id: str, producer: tuple[int, int], topic: str, *partitions: int) -> Any:
    """An AddPartitionsToTxn request of a client."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


def txn_offset_request(group: str, topic: str, offset: int, name: str, producer: tuple[int, int]) -> Any:
    """A TxnOffsetCommit request for the first partition, of no member."""
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def produce_request(
    topic: str, batch: Any, *, partition: int = 0, acks: int = -1, transactional_id: str | None = None
) -> Any:
    """A Produce request with one batch."""
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    isolation: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 10 << 20,
    **partition_fields: Any,
) -> Any:
    """A Fetch request of one partition."""
    ask = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes, **partition_fields
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[ask])],
    )


def batch_of(*values: bytes, timestamp_ms: int = NOW_MS, **header: Any) -> bytearray:
    """One batch of records without keys; `header` goes to build_batch (producer_id, base_sequence, ...)."""
    return build_batch([(timestamp_ms + n, None, value, ()) for n, value in enumerate(values)], **header)


def records_in(answer: Any) -> list[Record]:
    """The data records in a fetch answer's partition, as a read_uncommitted reader sees them."""
    data = b"" if answer.records is None else bytes(answer.records)
    return [
        record
        for position, header in iter_headers(data)
        if not header.is_control
        for record in decode_records(data, position, header)
    ]


def values_in(answer: Any) -> list[bytes | None]:
    """The values of `records_in`."""
    return [record.value for record in records_in(answer)]


def committed_values(answer: Any) -> list[bytes | None]:
    """The values a read_committed reader delivers: the aborted list applied as Kafka's consumer does (I2)."""
    data = b"" if answer.records is None else bytes(answer.records)
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ())
    skipped: set[int] = set()
    values: list[bytes | None] = []
    for position, header in iter_headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            values += [record.value for record in decode_records(data, position, header)]
    return values
