"""Writing dead letters to the topics of share groups (KIP-1191; Kafka's `ShareGroupDLQStateManager`)."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import trio

from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.reading import load, read_batches
from fencepost.broker.log.results import Ticket
from fencepost.broker.ports import Broker
from fencepost.broker.share.letters import ENABLED, TOPIC_CONFIGS, Copies, TopicRules, batches, topic_problem
from fencepost.broker.share.values import DeadLetters
from fencepost.coordinator.metadata.commands import NewTopic, Outcome
from fencepost.protocol.batch_header import CorruptBatch, UnreadableBatch, check_crc, iter_headers, read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

ATTEMPTS = 5
"""How often a write is tried (MAX_REQUEST_ATTEMPTS)."""
FIRST_PAUSE_S, PAUSE_S_MAX = 2.0, 30.0
"""The wait after the first failure, which doubles with each one (REQUEST_BACKOFF_MS, REQUEST_BACKOFF_MAX_MS)."""
READ_BYTES = 1 << 20
"""How much of the source log is read at once (DLQ_MAX_FETCH_BYTES)."""
READ_BYTES_EACH = 4 << 10
"""How much is read for each record of a short range, but always a whole batch: most records are smaller."""
READ_WAIT_MS = 30_000
"""How long bytes may take that are not in this process."""
_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of an append after which it is tried again. A full disk is the second; Kafka gives up then. Another broker may
not have read of a new topic yet."""
_CREATE_AGAIN = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NOT_CONTROLLER}
)


class Failure(NamedTuple):
    """Why dead letters were not written, and whether another attempt may help."""

    why: str
    again: bool


class Target(NamedTuple):
    """Where the letters of a partition go."""

    tp: TopicPartition
    log: PartitionLog | None
    """None: `broker` leads it."""
    broker: int | None


class Written(NamedTuple):
    """What was appended of the letters of one range."""

    tickets: list[Ticket]
    """Those in a log of this broker, which may not be durable yet."""
    failure: Failure | None


class Chunk(NamedTuple):
    """What was read of the source."""

    end_offset: int
    """The offset behind it."""
    copies: Copies
    markers: frozenset[int]
    """Offsets of control records, which are no records for an application."""


class DeadLetterWriter:
    """Writes dead letters for all share partitions of this broker."""

    def __init__(self, node: Broker) -> None:
        self._node = node
        self._others = node.place.dead_letters(node)
        self._reading: defaultdict[int | None, trio.Lock] = defaultdict(trio.Lock)
        """For the letters of one leader (None: this broker) one chunk is in memory at a time."""

    async def write(self, group_id: str, source: PartitionLog, dead: Sequence[DeadLetters]) -> None:
        """Return when all are durable or given up, each with an error in the log: nothing here stops a share group.

        After a crash or a failure some may be written twice.
        """
        left, pause_s = list(dead), FIRST_PAUSE_S
        for attempt in range(1, ATTEMPTS + 1):
            failures = await self._try(group_id, source, left)
            again = []
            for each, failure in zip(left, failures, strict=True):
                if failure is None:
                    continue
                if failure.again and attempt < ATTEMPTS:
                    again.append(each)
                else:
                    self._give_up(group_id, source, each, failure)
            if not again:
                return
            left = again
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _give_up(self, group_id: str, source: PartitionLog, dead: DeadLetters, failure: Failure) -> None:
        self._node.metrics.dead_letters_failed += dead.last_offset - dead.first_offset + 1
        logger.error(
            "records of a share group are archived without a dead letter group=%s partition=%s offsets=%d-%d cause=%s",
            group_id,
            source.tp,
            dead.first_offset,
            dead.last_offset,
            failure.why,
        )

    async def _try(self, group_id: str, source: PartitionLog, dead: Sequence[DeadLetters]) -> list[Failure | None]:
        """Append all in their order, and wait for them together; what became of each."""
        try:
            target = await self._target(group_id, source.tp)
            if isinstance(target, Failure):
                return [target] * len(dead)
            written = [await self._append(group_id, source, target, each) for each in dead]
            await self._node.flusher.wait_all([ticket for of_one in written for ticket in of_one.tickets])
        except Exception as error:
            logger.exception("dead letters cannot be written group=%s partition=%s", group_id, source.tp)
            return [Failure(f"unexpected error: {error!r}", again=False)] * len(dead)
        return [of_one.failure or _failure(of_one.tickets) for of_one in written]

    # Where they go

    async def _target(self, group_id: str, tp: TopicPartition) -> Target | Failure:
        """Where the letters of a partition go (`populateDLQTopicData`); the topic is created if need be."""
        topic = self._node.share_settings(group_id).dead_letter_topic
        problem = topic_problem(group_id, topic, self._rules(topic))
        if problem is not None or topic is None:
            return Failure(problem or "", again=False)
        if topic not in self._node.metadata.image.topics_by_name:
            code, message = await self._create(NewTopic(topic, configs=TOPIC_CONFIGS))
            if code is not ErrorCode.NONE:
                why = f"the topic {topic} cannot be created: {code.name} {message or ''}"
                return Failure(why, again=code in _CREATE_AGAIN)
        found = self._node.metadata.image.topics_by_name.get(topic)
        if found is None:
            return Failure(f"the topic {topic} was deleted", again=True)
        target = TopicPartition(topic, tp.partition % found.partitions)
        log = self._node.partition(target)
        if log is not None:
            return Target(target, log, None)
        leader = self._node.place.leader(found.topic_id, target.partition).leader
        if self._others is not None and leader not in (None, self._node.place.node_id):
            return Target(target, None, leader)
        absence = self._node.absence(target)
        return Failure(f"{target} cannot be written: {absence.name}", again=absence in _AGAIN)

    async def _create(self, topic: NewTopic) -> Outcome:
        if self._others is not None and not self._node.place.is_controller:
            return await self._others.create(topic)
        [created] = await self._node.metadata.create_topics([topic])
        return created.outcome

    def _rules(self, topic: str | None) -> TopicRules:
        config, image = self._node.config, self._node.metadata.image
        return TopicRules(
            prefix=config.errors_deadletterqueue_topic_name_prefix,
            auto_create=config.errors_deadletterqueue_auto_create_topics_enable,
            exists=topic in image.topics_by_name,
            enabled=image.topic_config(topic or "").get(ENABLED, "false").strip().lower() == "true",
        )

    # What goes there

    async def _append(self, group_id: str, source: PartitionLog, target: Target, dead: DeadLetters) -> Written:
        """Append the letters of one range, until one batch of them is refused."""
        tickets: list[Ticket] = []
        config = self._node.metadata.log_config(target.tp.topic) if target.log is None else target.log.config
        max_bytes = min(config.max_message_bytes, config.segment_bytes)
        copying = self._node.share_settings(group_id).dead_letter_copy_record
        offset = dead.first_offset
        while offset <= dead.last_offset:
            async with self._reading[target.broker]:
                chunk = await self._read(source, offset, dead.last_offset, max_bytes if copying else None)
                offsets = [one for one in range(offset, chunk.end_offset) if one not in chunk.markers]
                now_ms = self._node.clock.now_ms()
                for batch in batches(group_id, source.tp, dead, offsets, chunk.copies, now_ms, max_bytes):
                    failure = await self._put(target, batch, now_ms, tickets)
                    if failure is not None:
                        return Written(tickets, failure)
                    self._node.metrics.dead_letters += read_header(batch).record_count
            offset = chunk.end_offset
        return Written(tickets, None)

    async def _put(self, target: Target, batch: bytearray, now_ms: int, tickets: list[Ticket]) -> Failure | None:
        """Append one batch to the log of its leader; that of another broker is durable then."""
        if target.log is None:
            assert self._others is not None, "only then a target has another leader"
            assert target.broker is not None, "it leads the partition"
            code, message = await self._others.append(target.broker, target.tp, batch)
            return None if code is ErrorCode.NONE else _refused(target.tp, code, message)
        counters = self._node.metrics.topic(target.tp.topic)
        ticket = target.log.append(batch, AppendOrigin.CLIENT, now_ms)
        if ticket.error:
            counters.failed_produce_requests += 1
            return _refused(target.tp, ticket.error, ticket.message)
        tickets.append(ticket)
        counters.messages_in += ticket.end_offset - ticket.base_offset
        counters.bytes_in += len(batch)
        await self._node.flusher.throttle([target.log])
        return None

    async def _read(self, log: PartitionLog, first: int, last: int, copy_max_bytes: int | None) -> Chunk:
        """The source from `first` on; what cannot be read has letters of their headers only (`resolveRound`)."""
        if first < log.log_start_offset:
            return Chunk(min(log.log_start_offset, last + 1), {}, frozenset())
        size = min((last - first + 1) * READ_BYTES_EACH, READ_BYTES)
        result = read_batches(log, first, size, IsolationLevel.READ_UNCOMMITTED)
        if (missing := result.missing) is not None:
            with self._node.purgatory.park([log]) as parked:
                await parked.wait_until(lambda: missing.arrived or log.disowned, READ_WAIT_MS)
            result = read_batches(log, first, size, IsolationLevel.READ_UNCOMMITTED)
        if result.error or result.missing is not None or not result.size_bytes:
            if copy_max_bytes is not None:
                logger.warning(
                    "records cannot be read, their dead letters have headers only partition=%s offsets=%d-%d cause=%s",
                    log.tp,
                    first,
                    last,
                    result.error.name,
                )
            return Chunk(last + 1, {}, frozenset())
        data = b"".join(map(load, result.parts))
        limit = log.config.message_max_decompressed_bytes
        look = partial(look_at, data, first, last, copy_max_bytes, limit)
        return look() if copy_max_bytes is None else await trio.to_thread.run_sync(look)


def look_at(data: bytes, first: int, last: int, copy_max_bytes: int | None, unpacked_max_bytes: int) -> Chunk:
    """What whole batches hold of a range of offsets: copies of records up to a size (None: no copies), and markers."""
    copies: dict[int, tuple[bytes | None, bytes | None]] = {}
    markers: set[int] = set()
    end_offset = first
    for start, header in iter_headers(data):
        if header.base_offset > last:
            end_offset = last + 1
            break
        end_offset = min(header.next_offset, last + 1)
        if header.is_control:
            markers.update(range(max(header.base_offset, first), end_offset))
        elif copy_max_bytes is not None and end_offset > first:
            try:
                if not check_crc(data, start, header):
                    raise CorruptBatch("its CRC-32C does not match its bytes")
                records = decode_records(data, start, header, unpacked_max_bytes)
            except UnreadableBatch as error:
                logger.warning("the batch at offset %d has no copies in dead letters: %s", header.base_offset, error)
                continue
            for offset, _, key, value, _ in records:
                if first <= offset <= last and len(key or b"") + len(value or b"") <= copy_max_bytes:
                    copies[offset] = (key, value)
    return Chunk(end_offset, copies, frozenset(markers))


def _refused(tp: TopicPartition, error: ErrorCode, message: str | None) -> Failure:
    return Failure(f"{tp} refused them: {error.name} {message or ''}", again=error in _AGAIN)


def _failure(tickets: Sequence[Ticket]) -> Failure | None:
    """What became of the letters of one range, whose tickets are settled, or their log offline."""
    for ticket in tickets:
        if ticket.error:
            return _refused(ticket.log.tp, ticket.error, ticket.message)
        if not ticket.is_settled:
            return Failure(f"{ticket.log.tp} went offline: a flush failed", again=True)
    return None
