"""A cluster for readers: topics, leaders, offsets, and retries while a broker is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from fencepost.client.errors import code_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api02_list_offsets, api03_metadata, api61_describe_producers
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.wire import (
    Address,
    BrokerError,
    Connection,
    ConnectionLostError,
    ConnectionSettings,
    PartitionGone,
)
from fencepost.spark_connector.offsets import Offsets

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 1.0
_CONSUMER = -1


class OpenTransaction(NamedTuple):
    """The open transaction that determines a partition's last stable offset."""

    producer_id: int
    first_offset: int


class Cluster:
    """Connections to the brokers of one cluster, made when needed.

    `leaders` come from the planner, so that a reader's first fetch needs no metadata request. After a retriable error,
    or without a response, the cluster fetches metadata and repeats the request until `api_timeout_ms` has passed. Then
    it raises the last BrokerError.
    """

    def __init__(self, settings: ConnectionSettings, leaders: Mapping[TopicPartition, Address] | None = None) -> None:
        self.settings = settings
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[TopicPartition, Address] = dict(leaders or {})
        self.topic_ids: dict[str, bytes] = {}
        """The topic ids in the last metadata response, by name (KIP-516). Brokers before 2.8 have none."""

    def close(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Close the connections and forget the leaders. The next request fetches metadata again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    def with_retries(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` again after each retriable BrokerError, until the time for one operation ends."""
        deadline = time.monotonic() + self.settings.api_timeout_ms / 1000
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except BrokerError as error:
                self.forget()
                if (
                    isinstance(error, PartitionGone)
                    or not error.code.retriable
                    or time.monotonic() + pause_seconds > deadline
                ):
                    raise
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    def topics(self, names: Collection[str] | None) -> dict[str, tuple[int, ...]]:
        """The partitions of the named topics, or of all topics that are not internal. Unknown topics are left out.

        Creates no topic. It also updates the known leaders.
        """
        return self.with_retries(lambda: self._topics(names))

    def leader_of(self, tp: TopicPartition) -> Address:
        """The leader's address. Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE."""
        if tp not in self._leaders:
            found = self._topics([tp.topic])
            if tp.partition not in found.get(tp.topic, ()):
                raise BrokerError(f"partition {tp} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if tp not in self._leaders:
            raise BrokerError(f"partition {tp} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[tp]

    def leaders_of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Address]:
        return {tp: self._leaders[tp] for tp in partitions if tp in self._leaders}

    def connection_to(self, address: Address) -> Connection:
        """The connection to a broker. It is made on first use, and replaced before its session ends."""
        found = self._connections.get(address)
        if found is not None and found.session_ends_soon:
            del self._connections[address]
            found.close()
            found = None
        if found is None:
            found = self._connections[address] = Connection(address, self.settings)
        return found

    def list_offsets(
        self, times_ms: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        """Offsets by time (ms since 1970), EARLIEST or LATEST; -1 if no record has that time or a later one.

        With READ_COMMITTED, LATEST is the last stable offset, and the search by time ends there. Raises PartitionGone.
        """
        return self.with_retries(lambda: self._list_of_those_there(times_ms, isolation)) if times_ms else {}

    def open_transaction(self, tp: TopicPartition) -> OpenTransaction | None:
        """The oldest open transaction of a partition (KIP-664); None if there is none or the request fails."""
        try:
            return self._open_transaction(tp)
        except BrokerError:
            return None

    def any_connection(self) -> Connection:
        """A connection to any broker. Raises ConnectionLostError if no broker can be reached."""
        for address in self._connections:
            return self.connection_to(address)
        last: BrokerError | None = None
        for address in self.settings.bootstrap:
            try:
                return self.connection_to(address)
            except ConnectionLostError as error:
                last = error
        assert last is not None, "the options require an address"
        raise last

    def _topics(self, names: Collection[str] | None) -> dict[str, tuple[int, ...]]:
        wanted = None if names is None else [api03_metadata.MetadataRequestTopic(name=name) for name in names]
        request = api03_metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self.any_connection().call("Metadata", request)
        nodes = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        found: dict[str, tuple[int, ...]] = {}
        for topic in response.topics:
            code = code_of(topic.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if code is not ErrorCode.NONE:
                raise BrokerError(f"topic {topic.name}", code)
            if names is None and topic.is_internal:
                continue
            if any(topic.topic_id):
                self.topic_ids[topic.name] = bytes(topic.topic_id)
            found[topic.name] = tuple(sorted(partition.partition_index for partition in topic.partitions))
            for partition in topic.partitions:
                if partition.leader_id in nodes:
                    self._leaders[TopicPartition(topic.name, partition.partition_index)] = nodes[partition.leader_id]
        return found

    def _list_of_those_there(
        self, times_ms: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        try:
            return self._list_offsets(times_ms, isolation)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                found = self._topics(sorted({tp.topic for tp in times_ms}))
                for tp in times_ms:
                    if tp.partition not in found.get(tp.topic, ()):
                        raise PartitionGone(f"partition {tp} does not exist any more", error.code) from error
            raise

    def _list_offsets(self, times_ms: Mapping[TopicPartition, int], isolation: IsolationLevel) -> Offsets:
        by_leader: dict[Address, dict[str, list[Any]]] = {}
        for tp, time_ms in times_ms.items():
            item = api02_list_offsets.ListOffsetsPartition(partition_index=tp.partition, timestamp=time_ms)
            by_leader.setdefault(self.leader_of(tp), {}).setdefault(tp.topic, []).append(item)
        found: Offsets = {}
        for address, topics in by_leader.items():
            request = api02_list_offsets.ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=int(isolation),
                topics=[api02_list_offsets.ListOffsetsTopic(name=n, partitions=parts) for n, parts in topics.items()],
                timeout_ms=self.settings.request_timeout_ms,
            )
            response = self.connection_to(address).call("ListOffsets", request)
            for topic in response.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.name, partition.partition_index)
                    if partition.error_code != ErrorCode.NONE:
                        raise BrokerError(f"offsets of {tp}", code_of(partition.error_code))
                    found[tp] = partition.offset
        if found.keys() != times_ms.keys():
            raise BrokerError("the ListOffsets response lacks partitions", ErrorCode.UNKNOWN_SERVER_ERROR)
        return found

    def _open_transaction(self, tp: TopicPartition) -> OpenTransaction | None:
        connection = self.connection_to(self.leader_of(tp))
        if not connection.supports("DescribeProducers"):
            return None
        topic = api61_describe_producers.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])
        response = connection.call(
            "DescribeProducers", api61_describe_producers.DescribeProducersRequest(topics=[topic])
        )
        open_transactions = [
            OpenTransaction(producer.producer_id, producer.current_txn_start_offset)
            for topic in response.topics
            for partition in topic.partitions
            for producer in partition.active_producers
            if producer.current_txn_start_offset >= 0
        ]
        return min(open_transactions, key=lambda found: found.first_offset, default=None)
