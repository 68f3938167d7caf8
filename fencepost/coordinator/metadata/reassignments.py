"""Decides on reassignments of partitions to other brokers (KIP-455), for partitions with one replica. Pure.

begin      replicas [new, old], adding [new], removing [old]; the old broker still leads
hand over  the old broker has closed the log and put it where the new one finds it: the new one leads, alone
cancel     replicas [old], as before
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.controller import replicas_problem
from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import UNASSIGNED_DIRECTORY
from fencepost.protocol.metadata_record_types import PartitionChangeRecord
from fencepost.protocol.topics import TopicPartition


class Reassignment(NamedTuple):
    """The replicas that a partition is to have; None: cancel what is under way."""

    tp: TopicPartition
    replicas: tuple[int, ...] | None


class HandedOver(NamedTuple):
    """The leader has handed a partition over, as it was to do in this partition epoch.

    The epoch fences what was sent before a cancellation, as in Kafka's AlterPartition.
    """

    tp: TopicPartition
    topic_id: bytes
    partition_epoch: int


def reassign(
    image: MetadataImage, wanted: Sequence[Reassignment | HandedOver], brokers: Collection[int]
) -> Decision[PartitionChangeRecord, list[Outcome], None]:
    """Decide on each partition separately; those that change do so together."""
    decided = [_decide(image, one, brokers) for one in wanted]
    records = tuple(one for one in decided if isinstance(one, PartitionChangeRecord))
    return Decision([one if isinstance(one, Outcome) else DONE for one in decided], records)


def _decide(
    image: MetadataImage, wanted: Reassignment | HandedOver, brokers: Collection[int]
) -> PartitionChangeRecord | Outcome:
    """ReplicationControlManager.alterPartitionReassignment, and the end of one in its alterPartition."""
    name, number = wanted.tp
    topic = image.topics_by_name.get(name)
    if topic is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= number < topic.partitions:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    now = topic.assignment[number]
    if isinstance(wanted, HandedOver):
        if topic.topic_id != wanted.topic_id:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
        if not now.adding_replicas or now.partition_epoch != wanted.partition_epoch:
            return Outcome(ErrorCode.INVALID_UPDATE_VERSION)
        return assigned(number, topic.topic_id, now, now.adding_replicas, leader=now.adding_replicas[0])
    if wanted.replicas is None:
        if not now.adding_replicas:
            return Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return assigned(number, topic.topic_id, now, (now.leader,))
    problem = replicas_problem(wanted.replicas, brokers)
    if problem is not None or wanted.replicas == (now.adding_replicas or now.replicas):
        return problem or DONE
    return assigned(number, topic.topic_id, now, wanted.replicas)


def assigned(
    number: int, topic_id: bytes, now: PartitionImage, target: tuple[int, ...], leader: int | None = None
) -> PartitionChangeRecord:
    """The replicas are those of `target`, and until one of these leads also the leader (PartitionReassignmentReplicas).

    With `leader` this one is elected.
    """
    begins = leader is None and now.leader not in target
    replicas = (*target, now.leader) if begins else target
    record = PartitionChangeRecord(
        number,
        topic_id,
        replicas=replicas,
        adding_replicas=target if begins else (),
        removing_replicas=(now.leader,) if begins else (),
        directories=(UNASSIGNED_DIRECTORY,) * len(replicas) if now.directories else None,
    )
    return record if leader is None else record._replace(leader=leader, isr=target)
