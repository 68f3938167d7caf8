"""Replicas: elect leaders, and reassign partitions to brokers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fencepost.client.admin.cluster_types import Reassignment
from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.requests import AdminRequests, failure, listed
from fencepost.client.errors import KafkaError
from fencepost.client.group.requests import by_topic
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api43_elect_leaders import ElectLeadersRequest, TopicPartitions
from fencepost.protocol.messages.api45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fencepost.protocol.messages.api46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from fencepost.protocol.topics import TopicPartition

_UNCLEAN_SINCE, _KEEP_FACTOR_SINCE = 1, 1
_FINAL = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
)


class ReplicaAdmin:
    """The part of the admin client for leaders and replicas."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def elect_leaders(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, bool]:
        """Elect the preferred replica as leader, of these partitions or of all (Kafka 2.2). False: it leads already.

        `unclean` (2.4) allows a replica that is not in sync if no other is available; this loses records. For all
        partitions, brokers report only those that changed or failed. Raises ItemsFailedError by partition
        (PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, ...).
        """
        what = "electing leaders"
        asked = None if partitions is None else [TopicPartition(*one) for one in listed(partitions, TopicPartition)]

        async def ask(node: int | None, some: list[TopicPartition] | None) -> dict[TopicPartition, bool | KafkaError]:
            topics = None
            if some is not None:
                topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(some).items()]
            request = ElectLeadersRequest(
                election_type=int(unclean), topic_partitions=topics, timeout_ms=self._rpc.timeout_ms
            )
            response = await self._rpc.ask(node, request, what, at_least=_UNCLEAN_SINCE if unclean else 0)
            return {
                TopicPartition(topic.topic, one.partition_id): _elected(topic.topic, one, node)
                for topic in response.replica_election_results
                for one in topic.partition_result
            }

        if asked is not None:
            return await self._rpc.each(asked, self._rpc.controller, ask, what)

        async def ask_all(node: int | None) -> dict[TopicPartition, bool | KafkaError]:
            return await ask(node, None)

        responses = await self._rpc.one("", self._rpc.controller, ask_all, what)
        failed = {partition: one for partition, one in responses.items() if isinstance(one, KafkaError)}
        elected = {partition: one for partition, one in responses.items() if not isinstance(one, KafkaError)}
        if failed:
            raise ItemsFailedError(what, failed, elected)
        return elected

    async def list_partition_reassignments(
        self, partitions: TopicPartition | Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The ongoing reassignments of these partitions or of all (Kafka 2.4). Raises KafkaError."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(listed(partitions, TopicPartition)).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self._rpc.timeout_ms, topics=topics)
        response = await self._rpc.response("", self._rpc.controller, request, "listing reassignments")
        return {
            TopicPartition(topic.name, one.partition_index): Reassignment(
                tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
            )
            for topic in response.topics
            for one in topic.partitions
        }

    async def alter_partition_reassignments(
        self, changes: Mapping[TopicPartition, Sequence[int] | None], *, keep_replication_factor: bool = False
    ) -> None:
        """Move partitions to these brokers, the preferred leader first; None cancels a reassignment (Kafka 2.4).

        `keep_replication_factor` (4.1) rejects changes of the number of replicas. Returns when the moves have begun.
        Raises ItemsFailedError by partition (NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT, ...).
        """
        asked = {TopicPartition(*partition): brokers for partition, brokers in changes.items()}
        what = "altering reassignments"

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            topics = by_topic((p.topic, _reassigned(p.partition, asked[p])) for p in some)
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._rpc.timeout_ms,
                allow_replication_factor_change=not keep_replication_factor,
                topics=[ReassignableTopic(name=name, partitions=entries) for name, entries in topics.items()],
            )
            least = _KEEP_FACTOR_SINCE if keep_replication_factor else 0
            response = await self._rpc.ask(node, request, what, at_least=least)
            return {
                TopicPartition(topic.name, one.partition_index): failure(
                    one,
                    f"reassigning {topic.name}-{one.partition_index}",
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                    node,
                    final=_FINAL,
                )
                for topic in response.responses
                for one in topic.partitions
            }

        await self._rpc.each(asked, self._rpc.controller, ask, what)


def _reassigned(number: int, brokers: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=number, replicas=None if brokers is None else list(brokers))


def _elected(topic: str, one: Any, node: int | None) -> bool | KafkaError:
    if one.error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return False
    error = failure(one, f"electing a leader of {topic}-{one.partition_id}", ApiKey.ELECT_LEADERS, node, final=_FINAL)
    return True if error is None else error
