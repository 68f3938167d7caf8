"""ListOffsets (2): offsets by name or by time, in either isolation level (I6).

v0-11 are served. v0 returns a list of offsets; librdkafka before 1.8 sends it without looking at ApiVersions. v1
returns one offset and its timestamp, v2 brings isolation, v4 leader epochs, v7 the maximum timestamp (KIP-734), v8 the
earliest local, v9 the latest tiered, v11 the earliest offset not yet tiered; this broker has no tiered storage.
"""

import logging
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Any

from fencepost.broker.durable_ends import when_durable
from fencepost.broker.fetch.reads import leader_epoch_error
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import max_timestamp_offset, offset_for_timestamp
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.reply import Reply, Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.topics import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = -1
MISSING_WAIT_MS = 30_000
"""How long a lookup by time waits for bytes that are not in this process yet; Kafka's default for remote logs."""
_Found = tuple[int, int, int]
"""Timestamp, offset and leader epoch."""


class _Missed(Exception):
    """The response needs bytes of `log` that are not in this process yet."""

    def __init__(self, log: PartitionLog, missing: Missing) -> None:
        super().__init__(f"bytes of {log.tp} are not here yet")
        self.log = log
        self.missing = missing


def handle(node: Broker, request: ListOffsetsRequest, context: RequestContext) -> Reply:
    """Look up each partition's offset once the ends of all logs are durable."""
    if request.isolation_level not in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        raise CloseConnection(f"isolation level {request.isolation_level} does not exist")
    asked = [TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    return when_durable(node, map(node.partition, asked), partial(_answer_all, node, request, context, asked))


def _answer_all(
    node: Broker,
    request: ListOffsetsRequest,
    context: RequestContext,
    asked: list[TopicPartition],
    *,
    may_wait: bool = True,
) -> Response | Coroutine[Any, Any, Response]:
    try:
        return _answers(node, request, context, asked, may_wait)
    except _Missed as missed:
        return _answer_when_arrived(node, request, context, asked, missed)


async def _answer_when_arrived(
    node: Broker, request: ListOffsetsRequest, context: RequestContext, asked: list[TopicPartition], missed: _Missed
) -> Response:
    log, missing = missed.log, missed.missing
    with node.purgatory.park([log]) as parked:
        await parked.wait_until(lambda: missing.arrived or log.disowned, MISSING_WAIT_MS)
    answer = _answer_all(node, request, context, asked, may_wait=missing.arrived)
    return answer if isinstance(answer, Response) else await answer


def _answers(
    node: Broker, request: ListOffsetsRequest, context: RequestContext, asked: list[TopicPartition], may_wait: bool
) -> Response:
    isolation = IsolationLevel(request.isolation_level)
    refused = denied_topics(node, context, AclOperation.DESCRIBE, (topic.name for topic in request.topics))
    repeated = _repeated(asked, context)
    topics = []
    for topic in request.topics:
        answers = []
        for ask in topic.partitions:
            tp = TopicPartition(topic.name, ask.partition_index)
            if topic.name in refused:
                answers.append(_refuse(ask, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif tp in repeated:
                answers.append(_refuse(ask, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(_answer(node, tp, ask, isolation, context.api_version, may_wait))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def _repeated(asked: list[TopicPartition], context: RequestContext) -> set[TopicPartition]:
    """The partitions that the whole request has more than once."""
    large = context.large
    if large is None:
        return {tp for tp, times in Counter(asked).items() if times > 1}
    if large.shared is None:
        every = (
            TopicPartition(topic.name, part.partition_index)
            for topic in large.whole.topics
            for part in topic.partitions
        )
        large.shared = {tp for tp, times in Counter(every).items() if times > 1}
    repeated: set[TopicPartition] = large.shared
    return repeated


def _refuse(ask: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=ask.partition_index, error_code=error)


def _answer(
    node: Broker, tp: TopicPartition, ask: ListOffsetsPartition, isolation: IsolationLevel, version: int, may_wait: bool
) -> ListOffsetsPartitionResponse:
    log = node.partition(tp)
    if log is None:
        return _refuse(ask, node.absence(tp))
    error = leader_epoch_error(ask.current_leader_epoch, log)
    if error:
        return _refuse(ask, error)
    if version == 0:
        offsets = _offsets_before(log, ask.timestamp, ask.max_num_offsets)
        return ListOffsetsPartitionResponse(partition_index=ask.partition_index, old_style_offsets=offsets)
    if ask.timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(ask.timestamp, 0):
        return _refuse(ask, ErrorCode.UNSUPPORTED_VERSION)
    try:
        timestamp, offset, epoch = _find(log, ask.timestamp, isolation)
    except _Missed:
        if may_wait:
            raise
        return _refuse(ask, ErrorCode.REQUEST_TIMED_OUT)
    except (OSError, CorruptLogFile) as failure:
        logger.error("cannot look up offsets partition=%s cause=%s", tp, failure)
        return _refuse(ask, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=ask.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _find(log: PartitionLog, timestamp: int, isolation: IsolationLevel) -> _Found:
    """One offset by name or time, below the reader's limit (I6). Raises _Missed if bytes are missing."""
    committed = isolation is IsolationLevel.READ_COMMITTED
    end_offset = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return UNKNOWN, end_offset, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start_offset = log.log_start_offset
        epoch = log.leader_epoch if start_offset == log.log_end_offset else log.epochs.epoch_of(start_offset)
        return UNKNOWN, start_offset, epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return UNKNOWN, UNKNOWN, UNKNOWN
    if timestamp == MAX_TIMESTAMP:
        found = max_timestamp_offset(log, isolation)
    else:
        found = offset_for_timestamp(log, timestamp, isolation)
    if isinstance(found, Missing):
        raise _Missed(log, found)
    return (UNKNOWN, UNKNOWN, UNKNOWN) if found is None else (found.timestamp_ms, found.offset, found.leader_epoch)


def _offsets_before(log: PartitionLog, timestamp: int, count_max: int) -> list[int]:
    """v0: the segments' base offsets and the log's end, newest first, at or before `timestamp`."""
    start_offset, end_offset = log.log_start_offset, log.high_watermark
    if timestamp == EARLIEST:
        found = {start_offset}
    else:
        reached = timestamp if timestamp >= 0 else None
        base_offset, found = log.segments.first_offset, set()
        for piece in log.segments.facts():
            if reached is None or piece.last_time_ms <= reached:
                found.add(min(max(base_offset, start_offset), end_offset))
            base_offset = piece.next_offset
        if reached is None:
            found.add(end_offset)
    return sorted(found, reverse=True)[: max(0, count_max)]
