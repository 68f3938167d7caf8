"""Moves of partitions between the cores of a broker, as `kafka-reassign-partitions.sh` asks for them."""

from collections.abc import Mapping, Sequence

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from fencepost.protocol.messages.api45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fencepost.protocol.messages.api46_list_partition_reassignments import ListPartitionReassignmentsRequest
from fencepost.protocol.topics import TopicPartition
from tests.kit.cores_broker import METADATA, Cores
from tests.kit.waiting import until

ALTER, LIST = 45, 46
FIRST_ID = 1


def reassign(
    cores: Cores, wanted: Mapping[TopicPartition, Sequence[int] | None], asked: int = 0
) -> dict[TopicPartition, ErrorCode]:
    """Assign partitions to cores, or cancel; the error of each."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for tp, targets in wanted.items():
        replicas = None if targets is None else [FIRST_ID + core for core in targets]
        topics.setdefault(tp.topic, []).append(ReassignablePartition(partition_index=tp.partition, replicas=replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()]
    )
    answer = cores.retried(asked, lambda wire: wire.call(ALTER, 1, request), lambda answer: int(answer.error_code))
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.error_code)
        for topic in answer.responses
        for one in topic.partitions
    }


def ongoing(cores: Cores, asked: int = 0) -> dict[TopicPartition, tuple[list[int], list[int], list[int]]]:
    """The moves under way: replicas, adding and removing, as cores."""
    request = ListPartitionReassignmentsRequest(topics=None)
    answer = cores.retried(asked, lambda wire: wire.call(LIST, 0, request), lambda answer: int(answer.error_code))
    return {
        TopicPartition(topic.name, one.partition_index): (
            [node - FIRST_ID for node in one.replicas],
            [node - FIRST_ID for node in one.adding_replicas],
            [node - FIRST_ID for node in one.removing_replicas],
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def move(cores: Cores, wanted: Mapping[TopicPartition, int]) -> None:
    """Return when the partitions are led by these cores, and no move is under way."""
    answers = reassign(cores, {tp: [core] for tp, core in wanted.items()})
    assert set(answers.values()) <= {ErrorCode.NONE}, answers
    until(lambda: ongoing(cores), lambda found: not found, "moves do not end", seconds=60)
    topics = sorted({tp.topic for tp in wanted})
    led = {topic: cores.leaders(topic) for topic in topics}
    assert {tp: led[tp.topic][tp.partition] for tp in wanted} == wanted


def ask_for(cores: Cores, count: int, asked: int = 0) -> str | None:
    """Ask for another number of cores; why that is refused."""
    request = AlterPartitionReassignmentsRequest(topics=[], cores=count)
    answer = cores.retried(asked, lambda wire: wire.call(ALTER, 1, request), lambda answer: int(answer.error_code))
    assert (answer.error_code == ErrorCode.INVALID_REQUEST) == (answer.error_message is not None)
    return None if answer.error_message is None else str(answer.error_message)


def wait_for(cores: Cores, count: int) -> None:
    """Return when this many cores are registered, and no partition is under way."""

    def known() -> int:
        return len(cores.retried(0, lambda wire: wire.call(METADATA, 12, MetadataRequest()), lambda _: 0).brokers)

    until(known, lambda found: found == count, "the number of cores does not change", seconds=100)
    until(lambda: ongoing(cores), lambda found: not found, "moves do not end", seconds=100)
