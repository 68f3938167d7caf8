"""The topic `_schemas`, read and written with the rights of the user who asks."""

import logging
from collections.abc import Sequence
from typing import Any, Final

import trio

from fencepost.client import KafkaError
from fencepost.client.admin.fetching import fetch
from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.lag import reaches
from fencepost.client.admin.parts import AdminParts
from fencepost.client.errors import code_of, error_for
from fencepost.protocol.batch_header import CorruptBatch, iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import build_own_batch
from fencepost.protocol.records import Record as LogRecord
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.schema_registry.changes import Change
from fencepost.schema_registry.errors import TOO_LARGE, RegistryError
from fencepost.schema_registry.records import TOPIC, Record
from fencepost.schema_registry.state import State

logger = logging.getLogger(__name__)

PARTITION: Final = TopicPartition(TOPIC, 0)
READ_BYTES: Final = 128 << 10
"""What is folded at once: the broker's loop waits for it."""
ATTEMPTS: Final = 5
"""How often a change is decided again because another registry wrote at the same time."""
STORE_ERROR: Final = 50001
_LAST_WITH_NAMES: Final = 12
"""The last version of Produce that names topics."""
_NO_TOPIC: Final = bytes(16)


class Store:
    """The state that all users share. Each request first reads what it lacks, as its own user.

    So the broker decides who may read and write, and what another registry appended counts at once.
    """

    def __init__(self) -> None:
        self.state = State()
        self._topic_id = _NO_TOPIC
        self._next_offset = 0
        self._lock = trio.Lock()

    async def read(self, admin: AdminParts) -> State:
        """The state with all that is in the topic; it is valid until the next checkpoint. Raises KafkaError."""
        async with self._lock:
            await self._catch_up(admin)
        return self.state

    async def compute(self, admin: AdminParts, question: Any) -> Any:
        """What `question` answers of the state, in a thread: it may take long. Raises KafkaError, RegistryError."""
        async with self._lock:
            await self._catch_up(admin)
            return await trio.to_thread.run_sync(question, self.state)

    async def change(self, admin: AdminParts, change: Change) -> Any:
        """Decide a change, append its records, and return its answer. Raises KafkaError, RegistryError."""
        async with self._lock:
            for _ in range(ATTEMPTS):
                await self._catch_up(admin)
                decision = await trio.to_thread.run_sync(change, self.state)
                if not decision.records:
                    return decision.answer
                if await self._prepare_topic(admin):
                    continue
                topic_id = self._topic_id
                base = await _append(admin, decision.records)
                self.state.reserve(decision.records)
                refused = await self._catch_up(admin)
                if self._topic_id != topic_id:
                    continue  # the topic was deleted, perhaps with these records
                lost = [one for index, one in enumerate(decision.records) if base + index in refused]
                if not lost:
                    return decision.answer
                await _append(admin, [self.state.current(one.key) for one in lost])  # what the other one wrote there
        raise RegistryError(STORE_ERROR, "Another registry writes to _schemas all the time.")

    async def _catch_up(self, admin: AdminParts) -> dict[int, str]:
        """Fold what the topic has; returns what was skipped: the reason by offset."""
        topic = await _topic(admin)
        if topic is None or topic.topic_id != self._topic_id:
            if self._topic_id != _NO_TOPIC:
                logger.warning("the topic _schemas was deleted, and with it all schemas")
            # Ids of deleted schemas may still be in records: this process does not give them again.
            self.state, self._next_offset = State(self.state.max_id), 0
            self._topic_id = _NO_TOPIC if topic is None else topic.topic_id
            if topic is None:
                return {}
        skipped: dict[int, str] = {}
        while True:
            before = self._next_offset
            try:
                part = await fetch(
                    admin, PARTITION, before, READ_BYTES, isolation=IsolationLevel.READ_UNCOMMITTED, wait_ms=0
                )
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self.state = State(self.state.max_id)
                self._next_offset = (await reaches(admin, [PARTITION]))[PARTITION].start
                continue
            skipped |= self._fold(part.records)
            if self._next_offset >= part.high_watermark:
                break
            if self._next_offset == before:
                raise KafkaError(f"{PARTITION} has no whole batch at offset {before}", code=ErrorCode.CORRUPT_MESSAGE)
        if skipped:
            first = min(skipped)
            logger.warning(
                "records of _schemas are skipped count=%d first_offset=%d cause=%s", len(skipped), first, skipped[first]
            )
        return skipped

    def _fold(self, data: bytes) -> dict[int, str]:
        """Apply the records at and behind the position; returns what was skipped. Raises KafkaError."""
        skipped = {}
        try:
            for position, header in iter_headers(data):
                records: list[LogRecord] = [] if header.is_control else decode_records(data, position, header)
                for record in records:
                    if record.offset < self._next_offset:
                        continue
                    try:
                        self.state.apply(record.key, record.value)
                    except ValueError as error:
                        skipped[record.offset] = str(error)
                self._next_offset = max(self._next_offset, header.next_offset)
        except CorruptBatch as error:
            raise KafkaError(f"{PARTITION}: {error}", code=ErrorCode.CORRUPT_MESSAGE, api="Fetch") from error
        return skipped

    async def _prepare_topic(self, admin: AdminParts) -> bool:
        """Create the topic, or check that it keeps what is written to it; returns whether it was not there.

        Another program may have created and filled it meanwhile. Raises KafkaError, RegistryError.
        """
        if self._topic_id == _NO_TOPIC:
            await admin.topics.create_topics(TOPIC, 1, configs={"cleanup.policy": "compact"}, if_not_exists=True)
            return True
        try:
            entries = await admin.configs.describe_configs(topic=TOPIC)
        except KafkaError as error:
            logger.debug("the settings of _schemas are not checked cause=%s", error)
        else:
            policy = entries["cleanup.policy"].value
            if policy != "compact":
                raise RegistryError(
                    STORE_ERROR,
                    f"The topic _schemas has cleanup.policy={policy}, which deletes schemas; set it to compact.",
                )
        return False


async def _topic(admin: AdminParts) -> Any:
    """The topic's description, None if it does not exist. Raises KafkaError."""
    try:
        return (await admin.topics.describe_topics([TOPIC]))[TOPIC]
    except ItemsFailedError as several:
        error = several.errors[TOPIC]
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise error from None


async def _append(admin: AdminParts, records: Sequence[Record]) -> int:
    """Append the records in one batch, and return the first one's offset. Raises KafkaError.

    A repetition does no harm: the same records, folded twice, are the same state.
    """
    batch, _ = build_own_batch(admin.now_ms(), records)
    part = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=admin.cluster.config.request_timeout_ms,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[part])],
    )

    async def attempt() -> int:
        node = await admin.cluster.leader_of(PARTITION)
        response = await admin.cluster.ask(node, request, at_most=_LAST_WITH_NAMES)
        (found,) = response.responses[0].partition_responses
        code = code_of(found.error_code)
        if code is ErrorCode.NONE:
            return found.base_offset
        if code.retriable:
            await admin.cluster.refresh([TOPIC])
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            raise RegistryError(TOO_LARGE, "The schema is too large for a record of _schemas.")
        raise error_for(code, f"writing to {TOPIC} failed", api="Produce", node=node)

    return await admin.cluster.policy.run(attempt, what=f"writing to {TOPIC}")
