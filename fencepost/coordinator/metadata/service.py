"""The cluster's metadata in its log: replayed at start, changed by decisions, published once whole and durable."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import trio

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.acl_controller import AclController
from fencepost.coordinator.metadata.commands import (
    DONE,
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
from fencepost.coordinator.metadata.edits import AppliedEdits, ClusterEdit, EditsController
from fencepost.coordinator.metadata.features import SUPPORTED, FeatureView, loses_transactions, update_features
from fencepost.coordinator.metadata.image import METADATA_VERSION, Acl, MetadataImage, QuotaEntity
from fencepost.coordinator.metadata.journal import ChangeRefused, MetadataJournal
from fencepost.coordinator.metadata.ports import (
    Bounds,
    ClusterFacts,
    ConfigRules,
    IdSource,
    MetadataLog,
    MutationQuota,
    Observer,
    Snapshots,
)
from fencepost.coordinator.metadata.quota_controller import QuotaEdits, alter_quotas
from fencepost.coordinator.metadata.reassignments import HandedOver, Reassignment, reassign
from fencepost.coordinator.metadata.start_records import Registration, bootstrap_records, registration_record
from fencepost.coordinator.metadata.topic_names import topic_name_problem
from fencepost.coordinator.metadata.user_controller import CredentialDeletion, CredentialUpsertion, alter_credentials
from fencepost.coordinator.ports import Clock, LogWriteFailed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import MetadataEntry
from fencepost.protocol.metadata_record_types import ProducerIdsRecord
from fencepost.protocol.topics import TopicPartition

PRODUCER_ID_BLOCK = 1000
logger = logging.getLogger(__name__)
ReplyT = TypeVar("ReplyT")
Edits = Callable[[MetadataImage], Sequence[ClusterEdit]]
"""Computes the edits from the newest metadata at the time of the decision: no other change can come in between."""
_AUTO_CREATION = {
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorCode.LEADER_NOT_AVAILABLE,
}
"""The error of an automatic creation, by the outcome of the topic's creation, where the two differ."""


class MetadataService:
    """The one controller of the cluster and its view of the metadata.

    Decisions are made on the newest state, durable or not; `image` is the newest durable one, replaced as a whole.
    Between a decision and its append there is no checkpoint, so decisions and the records of one change never mix. A
    change over several appends is a transaction; other decisions wait for its end.
    Also the coordinators' `TopicView` and `ProducerIdSource`.
    """

    def __init__(
        self,
        log: MetadataLog,
        clock: Clock,
        facts: ClusterFacts,
        rules: ConfigRules,
        new_id: IdSource,
        observer: Observer | None = None,
        *,
        snapshots: Snapshots | None = None,
        bounds: Bounds = Bounds(),  # noqa: B008 - an immutable value
    ) -> None:
        self.facts = facts
        self.observer = observer
        """Called with every change after `start`, once it is durable and in `image`."""
        self.rules = rules
        self.journal = MetadataJournal(log, clock, bounds, lambda: self.observer)
        self._snapshots = snapshots
        self._topics = TopicController(facts, rules, new_id)
        self._configs = ConfigController(facts, rules)
        self._acls = AclController(new_id)
        self._edits = EditsController(self._topics, self._configs, self._acls, facts.change_records_max)
        self._id_lock = trio.Lock()
        self._next_id = self._last_id = 0
        self.producer_ids_from: Callable[[], int] = lambda: 0
        """Lower ones may be in use even if the log does not have them."""

    @property
    def image(self) -> MetadataImage:
        return self.journal.image

    @property
    def deleted_topic_ids(self) -> set[bytes]:
        """The deleted topics in the log, without those that `forget_deleted` removed."""
        return self.journal.deleted_topic_ids

    def forget_deleted(self, lingering: Collection[bytes]) -> None:
        """Keep only the deleted topics that still have logs: no other part needs the ids of the others."""
        self.journal.deleted_topic_ids.intersection_update(lingering)

    # ---- start, standby and take-over

    async def start(self, first_free_producer_id: int = 0, *, standby: bool = False) -> None:
        """Load the newest snapshot and the log after it; abort an open transaction; bootstrap a new log.

        Producer ids below `first_free_producer_id` may be in use even if the log does not have them. With `standby`
        nothing is written until `take_over`. Raises MetadataCorrupt if an undamaged record cannot be decoded or
        applied, LogUnreadable for damage, LogWriteFailed.
        """
        journal = self.journal
        journal.begin(None if self._snapshots is None else self._snapshots.newest())
        if standby:
            return
        if METADATA_VERSION not in journal.newest.features:
            journal.active = True
            journal.write_at_once(bootstrap_records(self.facts, self._topics), "Bootstrap records")
        else:
            journal.claim()
        if journal.newest.next_producer_id < first_free_producer_id:
            journal.write_at_once([ProducerIdsRecord(self.facts.node_id, -1, first_free_producer_id)])
        observer, self.observer = self.observer, None
        await journal.settle()
        self.observer = observer

    async def register_broker(self, registration: Registration) -> int:
        """Register this broker and its addresses in the metadata; once per process, replacing the former registration.

        Returns the broker epoch, which is the record's offset. Raises LogWriteFailed; the broker works without, too.
        """
        await self.journal.wait_writable()
        epoch = self.journal.next_record_offset
        await self.journal.write([registration_record(self.facts, registration, epoch)])
        await self.journal.settle()
        return epoch

    def place_on(self, node_ids: Sequence[int]) -> None:
        """Place partitions on these brokers from now on."""
        self.facts = self._topics.facts = replace(self.facts, node_ids=tuple(node_ids))

    async def follow(self) -> None:
        """As a standby, read and publish the controller's new records. Raises as `start`."""
        self.journal.catch_up()
        await self.journal.settle()

    async def take_over(self) -> None:
        """Become the controller in place of another one, which learns of it at its next append.

        The first record aborts the open transaction. If there is none, a NoOp is written, so that the log no longer
        ends where the other controller expects. Raises as `start`.
        """
        self.journal.catch_up()
        was_open = self.journal.open is not None
        self.journal.claim()
        if not was_open:
            self.journal.fence()
        self._next_id = self._last_id = 0
        await self.journal.settle()

    async def step_down(self) -> None:
        """Let another broker become the controller: finish the change under way, and make no other. Raises
        LogWriteFailed.
        """
        async with self.journal.exclusive():
            self.journal.active = False

    async def take_snapshot(self) -> bool:
        """Write the image to a snapshot, unless the last one has it already.

        Returns False, and writes nothing, while a transaction or an append is under way, and where another broker is
        the controller. Raises OSError.
        """
        if self._snapshots is None or not (self.journal.active and self.journal.is_aligned):
            return False
        await self._snapshots.write(self.image)
        return True

    # ---- read access

    @property
    def features(self) -> FeatureView:
        """The features, for clients. A finalized one that this broker does not support is left out."""
        finalized = {name: level for name, level in self.image.features.items() if name in SUPPORTED}
        return FeatureView(SUPPORTED, finalized, self.image.offset)

    def exists(self, partition: TopicPartition) -> bool:
        topic = self.image.topics_by_name.get(partition.topic)
        return topic is not None and 0 <= partition.partition < topic.partitions

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, topic: str) -> bytes | None:
        found = self.image.topics_by_name.get(topic)
        return None if found is None else found.topic_id

    def log_config(self, topic: str) -> Any:
        """The log settings of a topic's partitions (`fencepost.broker.log.config.LogConfig`)."""
        return self.rules.log_config(self.image, topic)

    async def next_producer_id(self) -> int:
        """A new producer id. The log reserves 1000 ids before the first of them is returned, so that no id is returned
        twice; unused ids of a block are lost when the broker stops.

        Raises LogWriteFailed.
        """
        async with self._id_lock:
            if self._next_id >= self._last_id:
                await self.journal.wait_writable()
                start = max(self.journal.newest.next_producer_id, self.producer_ids_from())
                after = start + PRODUCER_ID_BLOCK
                await self.journal.write([ProducerIdsRecord(self.facts.node_id, -1, after)])
                await self.journal.settle()
                self._next_id, self._last_id = start, after
            taken = self._next_id
            self._next_id += 1
            return taken

    # ---- changes. All return once the change is durable and in `image`; if the log refuses it, nothing is changed and
    # ---- every answer is NOT_CONTROLLER.

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool = False, mutations: MutationQuota | None = None
    ) -> list[CreatedTopic]:
        reply = await self._change(lambda image: self._topics.create_topics(image, topics, validate_only, mutations))
        return [CreatedTopic(topic.name, reply) for topic in topics] if isinstance(reply, Outcome) else reply

    async def delete_topics(
        self, topics: Sequence[TopicRef], mutations: MutationQuota | None = None
    ) -> list[DeletedTopic]:
        """Delete topics; one answer for each different reference."""
        reply = await self._change(lambda image: self._topics.delete_topics(image, topics, mutations))
        return [DeletedTopic(*ref, reply) for ref in map(_parts, topics)] if isinstance(reply, Outcome) else reply

    async def create_partitions(
        self, topics: Sequence[MorePartitions], validate_only: bool = False, mutations: MutationQuota | None = None
    ) -> list[tuple[str, Outcome]]:
        """Grow topics; one answer for each name."""
        reply = await self._change(
            lambda image: self._topics.create_partitions(image, topics, validate_only, mutations)
        )
        return [(topic.name, reply) for topic in topics] if isinstance(reply, Outcome) else reply

    async def reassign(self, wanted: Sequence[Reassignment | HandedOver]) -> list[Outcome]:
        """Begin, cancel and end moves of partitions; one outcome for each, in their order."""
        reply = await self._change(lambda image: reassign(image, wanted, self.facts.brokers))
        return [reply] * len(wanted) if isinstance(reply, Outcome) else reply

    async def alter_configs(self, changes: Sequence[ConfigEdits], validate_only: bool = False) -> list[Outcome]:
        """Change configurations; one outcome per resource, in their order."""
        reply = await self._change(lambda image: self._configs.alter(image, changes, validate_only))
        return [reply] * len(changes) if isinstance(reply, Outcome) else reply

    async def alter_credentials(
        self, deletions: Sequence[CredentialDeletion], upsertions: Sequence[CredentialUpsertion]
    ) -> dict[str, Outcome]:
        """Change SCRAM credentials; one outcome for each user."""
        reply = await self._change(lambda image: alter_credentials(image, deletions, upsertions))
        if isinstance(reply, Outcome):
            return dict.fromkeys([*(one.user for one in deletions), *(one.user for one in upsertions)], reply)
        return reply

    async def alter_quotas(
        self, changes: Sequence[QuotaEdits], validate_only: bool = False
    ) -> dict[QuotaEntity, Outcome]:
        """Change client quotas; one outcome for each entity."""
        reply = await self._change(lambda image: alter_quotas(image, changes, validate_only))
        return {change.entity: reply for change in changes} if isinstance(reply, Outcome) else reply

    async def create_acls(self, acls: Sequence[Acl]) -> list[Outcome]:
        """Create ACLs, except those that exist; one outcome each, in their order."""
        reply = await self._change(lambda image: self._acls.create(image, acls))
        return [reply] * len(acls) if isinstance(reply, Outcome) else reply

    async def delete_acls(self, acls: Collection[Acl]) -> Outcome:
        reply = await self._change(lambda image: self._acls.delete(image, list(acls)))
        return reply if isinstance(reply, Outcome) else DONE

    async def update_features(self, updates: Sequence[FeatureUpdate], validate_only: bool = False) -> Outcome:
        """Finalize features at other levels, all or none.

        If metadata.version falls below the level that introduced transactions, a snapshot is taken before the answer:
        older software starts from it and reads no transaction record (KIP-868, KIP-778).
        """
        before = self.journal.newest
        reply = await self._change(lambda image: update_features(image, updates, validate_only))
        if reply.code is ErrorCode.NONE and not validate_only and loses_transactions(before, updates):
            await self._snapshot_for_older_software()
        return reply

    async def _snapshot_for_older_software(self) -> None:
        """Take a snapshot once no change is under way. If the disk refuses, the next scheduled one is enough."""
        try:
            async with self.journal.exclusive():  # without it, constant changes could prevent the snapshot
                if not await self.take_snapshot() and self._snapshots is not None:
                    logger.error("metadata.version was lowered, but a transaction is open: no snapshot was written")
        except (LogWriteFailed, OSError) as error:
            logger.error("metadata.version was lowered, but no snapshot could be written: %s", error)

    async def apply(
        self,
        edits: Edits | Sequence[ClusterEdit],
        validate_only: bool = False,
        name: str | None = "apply",
        mutations: MutationQuota | None = None,
    ) -> AppliedEdits:
        """Make many changes as one metadata transaction of that name: all of them, or none and an error for the first.

        Each is decided on the result of those before it. With `validate_only` nothing is written, and the answer's
        `delta` has the changes that would be made. `edits` may be a function of the newest image. If the log refuses
        the change, or it exceeds a bound, all outcomes are that error.
        """
        count = 0

        def decide(image: MetadataImage) -> Decision[MetadataEntry, AppliedEdits, None]:
            nonlocal count
            wanted = edits(image) if callable(edits) else edits
            count = len(wanted)
            applied, records = self._edits.decide(image, wanted, mutations)
            return Decision(applied, () if validate_only else records)

        reply = await self._change(decide, name)
        return AppliedEdits([reply] * max(count, 1), None) if isinstance(reply, Outcome) else reply

    async def create_topics_if_allowed(
        self, names: Collection[str], mutations: MutationQuota | None = None
    ) -> dict[str, ErrorCode]:
        """Create the requested topics that do not exist; NONE for each that exists then, also under concurrent calls.

        UNKNOWN_TOPIC_OR_PARTITION if auto.create.topics.enable is off, INVALID_TOPIC_EXCEPTION for an invalid name,
        LEADER_NOT_AVAILABLE (retry) if the metadata log or `mutations` refuses it.
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
        for created in await self.create_topics([NewTopic(name) for name in missing], mutations=mutations):
            codes[created.name] = _AUTO_CREATION.get(created.outcome.code, created.outcome.code)
        return codes

    # ---- the log

    async def _change(
        self, decide: Callable[[MetadataImage], Decision[Any, ReplyT, None]], transaction: str | None = None
    ) -> ReplyT | Outcome:
        """Decide on the newest state, append, wait, publish; return the reply, or the error if the log refused.

        A decision without records waits, too: it may rest on records that are not durable yet.
        """
        try:
            await self.journal.wait_writable()
            decision = decide(self.journal.newest)
            if decision.log:
                await self.journal.write(decision.log, transaction)
            await self.journal.settle()
        except ChangeRefused as error:
            return Outcome(error.code, str(error))
        except LogWriteFailed as error:
            return Outcome(ErrorCode.NOT_CONTROLLER, f"The metadata log refused the change: {error}")
        return decision.reply


def _parts(ref: TopicRef) -> tuple[str | None, bytes]:
    return ref.name, ref.topic_id
