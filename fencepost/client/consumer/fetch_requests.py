"""A consumer's requests to brokers: Fetch, ListOffsets and OffsetForLeaderEpoch. No retries here."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import anyio

from fencepost.client.config import ConsumerConfig
from fencepost.client.core.fetch_session import SessionRequest
from fencepost.client.core.partitions import NO_LEADER
from fencepost.client.errors import ConnectionLostError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.network.cluster import Cluster, topic_error
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.topics import IsolationLevel, TopicPartition

FETCH_WITHOUT_IDS = 12
EPOCH_ENDS_SINCE = 3
"""Before this version the request needs a permission on the cluster, as in Java's client."""
_CLOSE_GRACE_S = 1.0
Failures = dict[TopicPartition, KafkaError]
Attempt = Callable[[int, dict[str, list[TopicPartition]]], Awaitable[None]]


class EpochEnd(NamedTuple):
    """The end of `leader_epoch`, or of the largest epoch before it, in the log; -1 if the broker knows none."""

    leader_epoch: int
    end_offset: int


def fetch_request(config: ConsumerConfig, session: SessionRequest, max_bytes: int) -> FetchRequest:
    """A Fetch request for `session`, with a response of at most about `max_bytes`."""
    topics: dict[tuple[str, bytes], Any] = {}
    for (name, number), wanted in session.named.items():
        entry = topics.get((name, wanted.topic_id))
        if entry is None:
            entry = FetchTopic(topic=name, topic_id=wanted.topic_id, partitions=[])
            topics[name, wanted.topic_id] = entry
        entry.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=wanted.leader_epoch,
                fetch_offset=wanted.fetch_offset,
                partition_max_bytes=wanted.max_bytes,
            )
        )
    forgotten: dict[tuple[str, bytes], Any] = {}
    for (name, number), topic_id in session.forgotten:
        gone = forgotten.get((name, topic_id))
        if gone is None:
            gone = forgotten[name, topic_id] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        gone.partitions.append(number)
    return FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=max_bytes,
        isolation_level=config.isolation_level,
        session_id=session.session_id,
        session_epoch=session.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
        rack_id=config.client_rack,
    )


async def end_session(
    cluster: Cluster, config: ConsumerConfig, node: int, purpose: str, request: SessionRequest
) -> None:
    """Close a fetch session at its broker. A failure is harmless: the broker ends idle sessions when it needs room."""
    try:
        connection = await cluster.connection(node, purpose)
        version = connection.version_for(ApiKey.FETCH, at_most=1 << 15 if request.with_ids else FETCH_WITHOUT_IDS)
        body = fetch_request(config, request, 0)
        body.max_wait_ms = 0
        await connection.ask(body, cluster.request_timeout_s, version=version)
    except KafkaError:
        return


async def end_sessions(
    cluster: Cluster, config: ConsumerConfig, closing: list[tuple[int, str, SessionRequest]], purposes: list[str]
) -> None:
    """`end_session` for each (node, purpose, request), within one second; then release the purposes' connections."""
    try:
        with anyio.move_on_after(_CLOSE_GRACE_S):
            async with anyio.create_task_group() as nursery:
                for node, purpose, request in closing:
                    nursery.start_soon(end_session, cluster, config, node, purpose, request)
    finally:
        for purpose in purposes:
            cluster.release(purpose)


async def offsets_by_time(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel, purpose: str
) -> tuple[dict[TopicPartition, tuple[int, int, int]], Failures]:
    """ListOffsets: timestamps in ms, or EARLIEST, LATEST -> (offset, timestamp, leader epoch), -1 if there is none.

    LATEST is the last stable offset for read_committed (row I6). One request to each leader; failed partitions are in
    the second dict, and their stale metadata was refreshed.
    """
    found: dict[TopicPartition, tuple[int, int, int]] = {}
    failed: Failures = {}

    async def ask(node: int, topics: dict[str, list[TopicPartition]]) -> None:
        entries = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=p.partition, timestamp=wanted[p]) for p in partitions],
            )
            for name, partitions in topics.items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=entries, timeout_ms=cluster.config.request_timeout_ms
        )
        response = await cluster.ask(node, request, purpose=purpose, at_least=1)
        for topic in response.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                code = code_of(entry.error_code)
                if code is ErrorCode.NONE:
                    found[partition] = (entry.offset, entry.timestamp, entry.leader_epoch)
                else:
                    failed[partition] = error_for(
                        code, f"listing offsets of {partition} failed", api="ListOffsets", node=node
                    )

    await _ask_leaders(cluster, wanted, ask, failed)
    return found, failed


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int], purpose: str
) -> tuple[dict[TopicPartition, EpochEnd | None], Failures]:
    """OffsetForLeaderEpoch for the epochs of positions; None if the broker is too old for the request (KIP-320)."""
    found: dict[TopicPartition, EpochEnd | None] = {}
    failed: Failures = {}

    async def ask(node: int, topics: dict[str, list[TopicPartition]]) -> None:
        connection = await cluster.connection(node, purpose)
        if connection.session.versions.get(ApiKey.OFFSET_FOR_LEADER_EPOCH, (0, -1))[1] < EPOCH_ENDS_SINCE:
            found.update(dict.fromkeys((p for partitions in topics.values() for p in partitions), None))
            return
        request = OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=p.partition, current_leader_epoch=cluster.leader_epoch(p), leader_epoch=epochs[p]
                        )
                        for p in partitions
                    ],
                )
                for name, partitions in topics.items()
            ],
        )
        response = await cluster.ask(node, request, purpose=purpose, at_least=EPOCH_ENDS_SINCE)
        for topic in response.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.topic, entry.partition)
                code = code_of(entry.error_code)
                if code is ErrorCode.NONE:
                    found[partition] = EpochEnd(entry.leader_epoch, entry.end_offset)
                else:
                    what = f"looking up the end of an epoch of {partition} failed"
                    failed[partition] = error_for(code, what, api="OffsetForLeaderEpoch", node=node)

    await _ask_leaders(cluster, epochs, ask, failed)
    return found, failed


async def _ask_leaders(cluster: Cluster, wanted: Iterable[TopicPartition], ask: Attempt, failed: Failures) -> None:
    """One request to each leader, all at once. An error of a leader counts for all of its partitions."""
    partitions = list(wanted)
    unknown = {p.topic for p in partitions if cluster.leader(p) == NO_LEADER}
    rejected = await cluster.refresh(unknown) if unknown else {}
    by_node: dict[int, dict[str, list[TopicPartition]]] = {}
    for partition in partitions:
        leader = cluster.leader(partition)
        if leader != NO_LEADER:
            by_node.setdefault(leader, {}).setdefault(partition.topic, []).append(partition)
            continue
        topic = cluster.topics.get(partition.topic)
        if partition.topic in rejected:
            failed[partition] = topic_error(partition.topic, rejected[partition.topic])
        elif topic is not None and partition.partition >= len(topic.partitions):
            code, count = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, len(topic.partitions)
            what = f"{partition} does not exist: topic {partition.topic!r} has {count} partitions"
            failed[partition] = error_for(code, what, api="Metadata")
        else:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            failed[partition] = error_for(code, f"{partition} has no leader", api="Metadata")

    async def attempt(node: int, topics: dict[str, list[TopicPartition]]) -> None:
        try:
            await ask(node, topics)
        except KafkaError as error:
            failed.update(dict.fromkeys((p for entries in topics.values() for p in entries), error))

    async with anyio.create_task_group() as nursery:
        for node, topics in by_node.items():
            nursery.start_soon(attempt, node, topics)
    stale = {partition.topic for partition, error in failed.items() if isinstance(error, RetriableError)}
    if stale:
        try:
            await cluster.refresh(stale)
        except ConnectionLostError:
            return  # the next attempt refreshes again; `failed` has the errors in any case
