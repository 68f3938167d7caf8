"""The option commitGroup: commits a query's position to a group, for tools that show the lag of groups."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fencepost.client.errors import code_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api08_offset_commit, api10_find_coordinator
from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.network.wire import Address, BrokerError
from fencepost.spark_connector.offsets import Offsets

log = logging.getLogger(__name__)

_GROUP = 0
_NO_GENERATION = -1
_NO_EPOCH = -1
_METADATA = "fencepost-spark"


class GroupPosition:
    """Commits offsets to a group without joining it. Kafka allows this while the group has no members.

    The query never reads these offsets. Its position is in Spark's checkpoint.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._committed: Offsets | None = None
        self._coordinator: Address | None = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets if they changed. An unavailable coordinator is only logged: the query can continue.

        Raises BrokerError for permanent errors: the query is not authorized for the group, or the group has members.
        """
        if not offsets or offsets == self._committed:
            return
        try:
            self._cluster.with_retries(lambda: self._commit(offsets))
        except BrokerError as error:
            if not error.code.retriable:
                raise
            log.warning("the position could not be committed to group %s: %s", self._group, error)
            return
        self._committed = dict(offsets)

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[Any]] = {}
        for tp, offset in offsets.items():
            entry = api08_offset_commit.OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=offset,
                committed_leader_epoch=_NO_EPOCH,
                committed_metadata=_METADATA,
            )
            topics.setdefault(tp.topic, []).append(entry)
        request = api08_offset_commit.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=_NO_GENERATION,
            topics=[api08_offset_commit.OffsetCommitRequestTopic(name=n, partitions=p) for n, p in topics.items()],
        )
        address = self._coordinator or self._find()
        self._coordinator = None  # until a commit succeeds there
        response = self._cluster.connection_to(address).call("OffsetCommit", request)
        for topic in response.topics:
            for partition in topic.partitions:
                code = code_of(partition.error_code)
                if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    log.warning(
                        "group %s: %s-%d does not exist any more", self._group, topic.name, partition.partition_index
                    )
                elif code is not ErrorCode.NONE:
                    where = f"{topic.name}-{partition.partition_index}"
                    raise BrokerError(f"committing {where} to group {self._group}", code)
        self._coordinator = address

    def _find(self) -> Address:
        connection = self._cluster.any_connection()
        # Version 4 and later send a list of keys.
        request = api10_find_coordinator.FindCoordinatorRequest(
            key=self._group, key_type=_GROUP, coordinator_keys=[self._group]
        )
        response = connection.call("FindCoordinator", request)
        found = response.coordinators[0] if response.coordinators else response
        code = code_of(found.error_code)
        if code is not ErrorCode.NONE:
            raise BrokerError(f"finding the coordinator of group {self._group}", code)
        return Address(found.host, found.port)
