"""Single Fetch requests, for tools that look at batches: the lag of groups, and the console's pictures and tails."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fencepost.client.admin.parts import AdminParts
from fencepost.client.errors import KafkaError, code_of, error_for
from fencepost.client.group.requests import by_topic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.topics import IsolationLevel, TopicPartition

LAST_WITH_NAMES = 12
"""The last version of Fetch that names topics."""
WAIT_MS = 500


class Fetched(NamedTuple):
    """One partition's part of a Fetch response.

    `records` are whole batches and perhaps a part of one more; the first may begin below the requested offset.
    `aborted` has the producer id and the first offset of each aborted transaction in it; it is empty for
    read_uncommitted.
    """

    records: bytes
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    aborted: tuple[tuple[int, int], ...]


async def fetch(
    admin: AdminParts,
    partition: TopicPartition,
    offset: int,
    size_bytes: int,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    wait_ms: int = WAIT_MS,
) -> Fetched:
    """Read one partition from `offset`; waits up to `wait_ms` for a record. Repeats retriable errors.

    Raises KafkaError (OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED, ...).
    """

    async def attempt() -> Fetched:
        parts, errors = await fetch_once(
            admin, {partition: offset}, size_bytes, size_bytes, isolation=isolation, wait_ms=wait_ms
        )
        if partition in errors:
            raise errors[partition]
        return parts[partition]

    return await admin.cluster.policy.run(attempt, what=f"reading {partition}")


async def fetch_once(
    admin: AdminParts,
    offsets: Mapping[TopicPartition, int],
    size_bytes: int,
    partition_bytes: int,
    *,
    isolation: IsolationLevel,
    wait_ms: int = WAIT_MS,
) -> tuple[dict[TopicPartition, Fetched], dict[TopicPartition, KafkaError]]:
    """Read several partitions, each from its offset, with one request to each leader, one after the other.

    The first partition in `offsets` gets its first batch whole, whatever its size; the last ones may get nothing.

    Returns what was read, and the error of each partition that could not be.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    found: dict[TopicPartition, Fetched] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for partition in offsets:
        try:
            by_leader.setdefault(await admin.cluster.leader_of(partition), []).append(partition)
        except KafkaError as error:
            errors[partition] = error
    for node, some in by_leader.items():
        entries = by_topic(
            (
                p.topic,
                FetchPartition(partition=p.partition, fetch_offset=offsets[p], partition_max_bytes=partition_bytes),
            )
            for p in some
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size_bytes,
            isolation_level=isolation,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=name, partitions=partitions) for name, partitions in entries.items()],
        )
        try:
            response = await admin.cluster.ask(node, request, at_most=LAST_WITH_NAMES)
        except KafkaError as error:
            errors |= dict.fromkeys(some, error)
            continue
        code = code_of(response.error_code)
        if code is not ErrorCode.NONE:
            errors |= {p: error_for(code, f"reading {p} failed", api="Fetch", node=node) for p in some}
            continue
        for topic in response.responses:
            for one in topic.partitions:
                partition = TopicPartition(topic.topic, one.partition_index)
                code = code_of(one.error_code)
                if code is ErrorCode.NONE:
                    found[partition] = _fetched(one)
                    continue
                if code.retriable:
                    await admin.cluster.refresh([partition.topic])
                what = f"reading {partition} at offset {offsets[partition]} failed"
                errors[partition] = error_for(code, what, api="Fetch", node=node)
    return found, errors


def _fetched(part: Any) -> Fetched:
    aborted = tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ())
    return Fetched(
        bytes(part.records or b""), part.log_start_offset, part.last_stable_offset, part.high_watermark, aborted
    )
