"""Requests to a group's coordinator: fetch committed offsets, and commit offsets."""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.client.errors import STALE_MEMBER, RetriableError, code_of, error_for
from fencepost.client.network.cluster import GROUP, Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fencepost.protocol.messages.api09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from fencepost.protocol.topics import TopicPartition

T = TypeVar("T")
BY_NAME = 9
"""From version 10 on these two APIs name topics by id; groups store names, so the client sends names."""


def by_topic(entries: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Entries of partitions, or their numbers, grouped by topic."""
    topics: dict[str, list[T]] = {}
    for topic, entry in entries:
        topics.setdefault(topic, []).append(entry)
    return topics


async def fetch_committed(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    purpose: str = "",
    *,
    stable: bool = True,
    member: GroupMetadata | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """A group's committed offsets, of `partitions` or of all; partitions without one are left out.

    Raises RetriableError while an open transaction has some, if `stable` (row T6; brokers before Kafka 2.5 ignore it),
    and where a KIP-848 `member` has an old epoch. One attempt.
    """
    topics = None if partitions is None else by_topic(partitions)
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    request = OffsetFetchRequest(groups=[group], require_stable=stable, group_id=group_id, topics=None)
    if topics is not None:
        group.topics = [OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in topics.items()]
        request.topics = [OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in topics.items()]
    if member is not None and member.generation > 0:
        group.member_id, group.member_epoch = member.member_id, member.generation
    response = await cluster.ask_coordinator(GROUP, group_id, request, _fetch_code, purpose=purpose, at_most=BY_NAME)
    code = code_of(_fetch_code(response))
    if member is not None and code in STALE_MEMBER:
        raise RetriableError(
            f"this member does not have the current epoch of its group {group_id!r}", code=code, api="OffsetFetch"
        )
    if code is not ErrorCode.NONE:
        raise error_for(code, f"fetching committed offsets of group {group_id!r} failed", api="OffsetFetch")
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in response.groups[0].topics if response.groups else response.topics:
        for entry in topic.partitions:
            code = code_of(entry.error_code)
            what = f"{topic.name}-{entry.partition_index}"
            if code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise RetriableError(
                    f"the committed offset of {what} is part of an open transaction", code=code, api="OffsetFetch"
                )
            if code is not ErrorCode.NONE:
                raise error_for(code, f"fetching the committed offset of {what} failed", api="OffsetFetch")
            if entry.committed_offset >= 0:
                found[TopicPartition(topic.name, entry.partition_index)] = CommittedOffset(
                    entry.committed_offset, entry.committed_leader_epoch, entry.metadata or ""
                )
    return found


def commit_request(group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> OffsetCommitRequest:
    """A commit outside of any transaction, by the member in `group`."""
    topics = by_topic(
        (
            topic,
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            ),
        )
        for (topic, partition), committed in offsets.items()
    )
    return OffsetCommitRequest(
        group_id=group.group_id,
        generation_id_or_member_epoch=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )


async def commit_offsets(
    cluster: Cluster, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset], purpose: str = ""
) -> None:
    """Commit outside of any transaction, by the member in `group`. One attempt; raises the first error."""
    request = commit_request(group, offsets)
    response = await cluster.ask_coordinator(
        GROUP, group.group_id, request, _commit_code, purpose=purpose, at_most=BY_NAME
    )
    for topic in response.topics:
        for entry in topic.partitions:
            code = code_of(entry.error_code)
            if code is not ErrorCode.NONE:
                place = f"{topic.name}-{entry.partition_index}"
                what = f"committing an offset of {place} for group {group.group_id!r} failed"
                raise error_for(code, what, api="OffsetCommit")


def _fetch_code(response: OffsetFetchResponse) -> int:
    return int(response.groups[0].error_code if response.groups else response.error_code)


def _commit_code(response: OffsetCommitResponse) -> int:
    return next((int(p.error_code) for topic in response.topics for p in topic.partitions if p.error_code), 0)
