"""The metadata of the cluster in its log: replayed at start, changed by decisions, shown once whole and durable."""

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import trio

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.bootstrap import bootstrap_records
from fencepost.coordinator.metadata.commands import (
    ConfigEdits,
    CreatedTopic,
    DeletedTopic,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    Outcome,
    TopicRef,
)
from fencepost.coordinator.metadata.config_controller import ConfigController
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.delta import Change, MetadataCorrupt, TopicDeleted
from fencepost.coordinator.metadata.features import SUPPORTED, FeatureView, update_features
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, METADATA_VERSION, MetadataImage
from fencepost.coordinator.metadata.ports import ClusterFacts, ConfigRules, IdSource, Observer
from fencepost.coordinator.metadata.topic_names import topic_name_problem
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.coordinator.ports import Clock, CoordinatorLog, LogWriteFailed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    MetadataRecordError,
    ProducerIdsRecord,
    decode_metadata_record,
    encode_metadata_records,
)
from fencepost.protocol.topics import TopicPartition

PRODUCER_ID_BLOCK = 1000
BATCH_RECORDS_MAX = 10_000
BATCH_BYTES_MAX = 8 << 20
ReplyT = TypeVar("ReplyT")
_AUTO_CREATION = {
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER: ErrorCode.LEADER_NOT_AVAILABLE,
}
"""What somebody who only wants to use a topic hears for the outcome of its creation, where that is another code."""


class _Pending(NamedTuple):
    """A state that is in the log and waits to be durable."""

    end_offset: int
    image: MetadataImage
    changes: Sequence[Change]


class MetadataService:
    """The one controller of the cluster and its view on the metadata.

    Decisions are made on the newest state, durable or not; `image` is the newest durable one, replaced as a whole.
    Between a decision and its append there is no checkpoint, so decisions and the records of one change never mix.
    Also the coordinators' `TopicView` and `ProducerIdSource`.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        facts: ClusterFacts,
        rules: ConfigRules,
        new_id: IdSource,
        observer: Observer | None = None,
    ) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.facts = facts
        self.observer = observer
        """Told of every change after `start`, once it is durable and in `image`."""
        self._log = log
        self._clock = clock
        self.rules = rules
        self._topics = TopicController(facts, rules, new_id)
        self._configs = ConfigController(facts, rules)
        self._loader = MetadataLoader()
        self._pending: deque[_Pending] = deque()
        self.deleted_topic_ids: set[bytes] = set()
        """Every topic that the log knows to have been deleted."""
        self._id_lock = trio.Lock()
        self._next_id = self._last_id = 0

    async def start(self, first_free_producer_id: int = 0) -> None:
        """Replay the log; end what a crash left open; write the first records of a new cluster.

        Producer ids below `first_free_producer_id` may be in use though the log does not know of them. Raises
        MetadataCorrupt where an undamaged record can not be understood, LogUnreadable for damage.
        """
        loader = MetadataLoader()
        for batch in self._log.replay():
            records = _decode(batch.base_offset, [value for _, value in batch.records])
            self._remember_deleted(loader.load_batch(batch.base_offset, records))
        self._loader = loader
        if METADATA_VERSION not in loader.image.features:
            self._write(bootstrap_records(self.facts, self._topics), "Bootstrap records")
        elif loader.open is not None:
            self._write([])
        if self._loader.image.next_producer_id < first_free_producer_id:
            self._write([ProducerIdsRecord(self.facts.node_id, -1, first_free_producer_id)])
        await self._log.durable(self._log.end_offset)
        self._pending.clear()
        self.image = self._loader.image

    # ---- what others ask

    @property
    def features(self) -> FeatureView:
        """What ApiVersions says of features."""
        return FeatureView(SUPPORTED, self.image.features, self.image.offset)

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the partition is in the cluster's metadata."""
        topic = self.image.topics_by_name.get(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partitions

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name behind a 16-byte topic id."""
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, topic: str) -> bytes | None:
        """The 16-byte id of a topic."""
        found = self.image.topics_by_name.get(topic)
        return None if found is None else found.topic_id

    def log_config(self, topic: str) -> Any:
        """How the partitions of a topic keep their data (`fencepost.broker.log.config.LogConfig`)."""
        return self.rules.log_config(self.image, topic)

    async def next_producer_id(self) -> int:
        """A fresh producer id. Ids are reserved 1000 at a time before the first of them is given out, so that none
        comes twice; those of a block that were not used when the broker stopped are lost.

        Raises LogWriteFailed.
        """
        async with self._id_lock:
            if self._next_id >= self._last_id:
                start = self._loader.image.next_producer_id
                after = start + PRODUCER_ID_BLOCK
                await self._commit([ProducerIdsRecord(self.facts.node_id, -1, after)])
                self._next_id, self._last_id = start, after
            taken = self._next_id
            self._next_id += 1
            return taken

    # ---- what others want changed. All return once the change is durable and in `image`; where the log refuses it,
    # ---- nothing is changed and everything that was asked for is answered NOT_CONTROLLER.

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool = False) -> list[CreatedTopic]:
        """Create topics; one answer each."""
        decision = self._topics.create_topics(self._loader.image, topics, validate_only)
        refused = await self._try(decision)
        return [CreatedTopic(topic.name, refused) for topic in topics] if refused else decision.reply

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[DeletedTopic]:
        """Delete topics; one answer for each different reference."""
        decision = self._topics.delete_topics(self._loader.image, topics)
        refused = await self._try(decision)
        return [DeletedTopic(ref.name, ref.topic_id, refused) for ref in topics] if refused else decision.reply

    async def create_partitions(
        self, topics: Sequence[MorePartitions], validate_only: bool = False
    ) -> list[tuple[str, Outcome]]:
        """Grow topics; one answer for each name."""
        decision = self._topics.create_partitions(self._loader.image, topics, validate_only)
        refused = await self._try(decision)
        return [(topic.name, refused) for topic in topics] if refused else decision.reply

    async def alter_configs(self, changes: Sequence[ConfigEdits], validate_only: bool = False) -> list[Outcome]:
        """Change configurations; one outcome per resource, in their order."""
        decision = self._configs.alter(self._loader.image, changes, validate_only)
        refused = await self._try(decision)
        return [refused] * len(changes) if refused else decision.reply

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> Outcome:
        """Finalize features at other levels, all or none."""
        decision = update_features(self._loader.image, updates, validate_only)
        return await self._try(decision) or decision.reply

    async def create_topic_if_allowed(self, name: str) -> ErrorCode:
        """As `create_topics_if_allowed`, for one."""
        return (await self.create_topics_if_allowed([name]))[name]

    async def create_topics_if_allowed(self, names: Collection[str]) -> dict[str, ErrorCode]:
        """Make sure that topics exist which somebody asked for; NONE for those that do now, however many ask at once.

        UNKNOWN_TOPIC_OR_PARTITION where auto.create.topics.enable is off, INVALID_TOPIC_EXCEPTION for a bad name,
        LEADER_NOT_AVAILABLE (ask again) where the metadata log takes nothing.
        """
        codes = dict.fromkeys(names, ErrorCode.NONE)
        missing = [name for name in codes if name not in self.image.topics_by_name]
        if not missing:
            return codes
        if not self.facts.auto_create_topics:
            for name in missing:
                bad = topic_name_problem(name) is not None
                codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION if bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return codes
        for created in await self.create_topics([NewTopic(name) for name in missing]):
            codes[created.name] = _AUTO_CREATION.get(created.outcome.code, created.outcome.code)
        return codes

    # ---- the log

    async def _try(self, decision: Decision[MetadataRecord, ReplyT, None]) -> Outcome | None:
        """As `_commit`; what a client hears where the log refused, or None."""
        try:
            await self._commit(decision.log)
        except LogWriteFailed as error:
            return Outcome(ErrorCode.NOT_CONTROLLER, f"The metadata log refused the change: {error}")
        return None

    async def _commit(self, records: Sequence[MetadataRecord]) -> None:
        """Append, wait, show. A decision that writes nothing waits, too: it may rest on what is not durable yet.

        Raises LogWriteFailed; nothing is changed then.
        """
        if records:
            self._write(records)
        end_offset = self._log.end_offset
        with trio.CancelScope(shield=True):  # what is in the log must come to show, whoever still waits for it
            await self._log.durable(end_offset)
        self._show(end_offset)

    def _show(self, end_offset: int) -> None:
        """Put every state up to `end_offset` into `image`, in order, and tell the observer."""
        while self._pending and self._pending[0].end_offset <= end_offset:
            pending = self._pending.popleft()
            self.image = pending.image
            self._remember_deleted(pending.changes)
            if self.observer is not None and pending.changes:
                self.observer(pending.changes)

    def _remember_deleted(self, changes: Sequence[Change]) -> None:
        self.deleted_topic_ids.update(change.topic.topic_id for change in changes if isinstance(change, TopicDeleted))

    def _write(self, records: Sequence[MetadataRecord], transaction: str | None = None) -> None:
        """Append one change: one atomic batch, or a KIP-868 transaction over several where it does not fit in one.

        `transaction` names it and asks for one in any case. A transaction that a crash, or a log that refused
        everything, left open is aborted first, in the same batch.
        """
        encoded = encode_metadata_records(records)
        large = len(records) > BATCH_RECORDS_MAX or sum(map(len, encoded)) > BATCH_BYTES_MAX
        before: list[MetadataRecord] = []
        after: list[MetadataRecord] = []
        if self._loader.open is not None:
            before.append(AbortTransactionRecord("Controller failover"))
        if large or transaction is not None:
            before.append(BeginTransactionRecord(transaction))
            after.append(EndTransactionRecord())
        records = [*before, *records, *after]
        encoded = [*encode_metadata_records(before), *encoded, *encode_metadata_records(after)]
        changes: list[Change] = []
        try:
            for start, stop in _batches(encoded):
                self._append(records[start:stop], encoded[start:stop], changes)
        except LogWriteFailed:
            if self._loader.open is not None:
                abort = [AbortTransactionRecord("The log refused a batch")]
                with suppress(LogWriteFailed):
                    self._append(abort, encode_metadata_records(abort), changes)
            raise
        assert self._loader.open is None, "every change is whole"
        self._pending.append(_Pending(self._log.end_offset, self._loader.image, changes))

    def _append(self, records: Sequence[MetadataRecord], encoded: Sequence[bytes], changes: list[Change]) -> None:
        base_offset = self._log.end_offset
        self._log.append([(None, value) for value in encoded], self._clock.now_ms())
        changes += self._loader.load_batch(base_offset, list(records))


def _batches(encoded: Sequence[bytes]) -> list[tuple[int, int]]:
    """Where to cut records into batches of at most 10,000 records and 8 MiB (kafka-rules E.6)."""
    cuts: list[tuple[int, int]] = []
    start = size = 0
    for index, value in enumerate(encoded):
        if index > start and (index - start >= BATCH_RECORDS_MAX or size + len(value) > BATCH_BYTES_MAX):
            cuts.append((start, index))
            start, size = index, 0
        size += len(value)
    return [*cuts, (start, len(encoded))]


def _decode(base_offset: int, values: Sequence[bytes | None]) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for index, value in enumerate(values):
        try:
            records.append(decode_metadata_record(value or b""))
        except MetadataRecordError as error:
            raise MetadataCorrupt(base_offset + index, str(error)) from error
    return records
