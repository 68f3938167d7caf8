"""OffsetCommit and TxnOffsetCommit as one decision (rows G6, T5; KIP-447)."""

from dataclasses import dataclass

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.group.classic import check_commit
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import offsets
from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.offsets import TopicId
from fencepost.coordinator.group.offsets import OffsetCommitItem, commit_records
from fencepost.coordinator.group.records import GroupRecord, OffsetPending
from fencepost.coordinator.group.shard_state import GroupShardState
from fencepost.coordinator.group.state import Dead, PreparingRebalance, Stable
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.coordinator.ports import ProducerTag
from fencepost.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Commit:
    group_id: str
    items: tuple[OffsetCommitItem, ...]
    member_id: str = ""
    group_instance_id: str | None = None
    generation: int = -1
    retention_ms: int = -1
    """Only OffsetCommit v2-4 has one; -1 means the broker's."""
    unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION
    """The error for a sender with a generation and an unknown group; GROUP_ID_NOT_FOUND from OffsetCommit v9 on."""
    producer: ProducerTag | None = None
    """Set for a transactional commit: its offsets become visible when the transaction commits."""


def decide_commit(
    state: GroupShardState, command: Commit, config: GroupConfig, now_ms: int, topic_id: TopicId
) -> Decision[GroupRecord, list[ErrorCode], SetTimer]:
    """Check the sender and write the offsets; the reply is an error per item, in order.

    While the group is stable or rejoins, a commit restarts its member's session, as a heartbeat does.
    """
    group = state.group(command.group_id)
    transactional = command.producer is not None
    consumers = state.consumers.get(command.group_id)
    if consumers is not None:
        error = _check_consumer(consumers, command, topic_id)
    elif command.group_id in state.shares:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif isinstance(group, Dead) and command.generation >= 0:
        error = command.unknown_group
    else:
        error = check_commit(
            group, command.member_id, command.group_instance_id, command.generation, transactional=transactional
        )
    if error:
        return Decision([error] * len(command.items))
    retention_ms = -1 if transactional else command.retention_ms
    commits, errors = commit_records(
        command.group_id, command.items, retention_ms, config.offset_metadata_max_bytes, now_ms
    )
    records: tuple[GroupRecord, ...] = tuple(commits)
    if command.producer is not None:
        producer_id = command.producer.producer_id
        records = tuple(OffsetPending(producer_id, commit) for commit in commits)
    timers: tuple[SetTimer, ...] = ()
    if not transactional and isinstance(group, Stable | PreparingRebalance):
        member = group.members[command.member_id]
        timers = (SetTimer(TimerKind.SESSION, member.session_timeout_ms, member.member_id),)
    return Decision(errors, records, timers)


def _check_consumer(group: ConsumerGroup, command: Commit, topic_id: TopicId) -> ErrorCode:
    return offsets.check_commit(
        group,
        command.member_id,
        command.group_instance_id,
        command.generation,
        transactional=command.producer is not None,
        knows_epochs=command.unknown_group is ErrorCode.GROUP_ID_NOT_FOUND,
        partitions=tuple(item.partition for item in command.items),
        topic_id=topic_id,
    )
