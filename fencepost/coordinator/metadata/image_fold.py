"""The changes that metadata records make to an image; the only place that defines what a record means."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from fencepost.coordinator.metadata.access_fold import AccessFold, AccessRecord
from fencepost.coordinator.metadata.delta import (
    AssignmentChanged,
    BrokerConfigChanged,
    Change,
    FeaturesChanged,
    MetadataCorrupt,
    MetadataDelta,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from fencepost.coordinator.metadata.image import (
    NOTHING,
    STORED_RESOURCES,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.metadata_entries import MetadataEntry, PartitionRun
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NO_LEADER_CHANGE = -2


@dataclass(slots=True)
class _Draft:
    """A topic that is being created or changed."""

    name: str
    partitions: list[PartitionImage] = field(default_factory=list)
    """The partitions from 0 on without a gap."""
    beyond: dict[int, PartitionImage] = field(default_factory=dict)
    """Partitions whose records came before those of lower partitions."""

    def add(self, number: int, length: int, partition: PartitionImage) -> bool:
        """Add equal partitions from `number` on; False if one of them exists already."""
        if number == len(self.partitions) and not self.beyond:
            self.partitions += [partition] * length
            return True
        for place in range(number, number + length):
            if place < len(self.partitions) or place in self.beyond:
                return False
            self.beyond[place] = partition
        while len(self.partitions) in self.beyond:
            self.partitions.append(self.beyond.pop(len(self.partitions)))
        return True


class ImageFold:
    """Collects records on top of an image. `replay` adds them one by one, `apply` returns the next image.

    The base image never changes: dropping the fold undoes all its records (KIP-868's abort).
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.removed_ids: set[bytes] = set()
        """Every topic that was removed, also one that these records created."""
        self._drafts: dict[bytes, _Draft] = {}
        self._removed: dict[bytes, TopicImage] = {}
        self._new_names: dict[str, bytes] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._next_producer_id = image.next_producer_id
        self._access: AccessFold | None = None

    def replay(self, offset: int, entry: MetadataEntry) -> None:
        """Apply one record, or a run of them. Raises MetadataCorrupt if it contradicts the records before it."""
        match entry:
            case TopicRecord():
                self._create(offset, entry)
            case PartitionRun():
                self._add_partitions(offset, entry.first, entry.length)
            case PartitionRecord():
                self._add_partitions(offset, entry, 1)
            case PartitionChangeRecord():
                self._change_partition(offset, entry)
            case ClearElrRecord():
                self._clear_eligible(offset, entry.topic_name)
            case ConfigRecord():
                self._set_config(offset, entry)
            case RemoveTopicRecord():
                self._remove(offset, entry)
            case FeatureLevelRecord():
                self._features[entry.name] = entry.feature_level
            case ProducerIdsRecord():
                if entry.next_producer_id < self._next_producer_id:
                    raise MetadataCorrupt(offset, f"producer ids go back to {entry.next_producer_id}")
                self._next_producer_id = entry.next_producer_id
            case NoOpRecord():
                pass
            case BeginTransactionRecord() | EndTransactionRecord() | AbortTransactionRecord():
                raise AssertionError("transaction records are the loader's, not the fold's")
            case _:
                self._replay_access(offset, entry)

    def _replay_access(self, offset: int, record: AccessRecord) -> None:
        if self._access is None:
            self._access = AccessFold(self.image)
        self._access.replay(offset, record)

    def _create(self, offset: int, record: TopicRecord) -> None:
        taken = record.topic_id in self._drafts or record.topic_id in self.image.topics_by_id
        if taken or record.topic_id in self._removed:
            raise MetadataCorrupt(offset, f"topic id {record.topic_id.hex()} is in use")
        old = self.image.topics_by_name.get(record.name)
        if record.name in self._new_names or (old is not None and old.topic_id not in self._removed):
            raise MetadataCorrupt(offset, f"topic {record.name} exists already")
        self._drafts[record.topic_id] = _Draft(record.name)
        self._new_names[record.name] = record.topic_id

    def _draft(self, offset: int, topic_id: bytes) -> _Draft:
        draft = self._drafts.get(topic_id)
        if draft is not None:
            return draft
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None or topic_id in self._removed:
            raise MetadataCorrupt(offset, f"no topic has the id {topic_id.hex()}")
        draft = self._drafts[topic_id] = _Draft(topic.name, list(topic.assignment))
        return draft

    def _add_partitions(self, offset: int, first: PartitionRecord, length: int) -> None:
        draft = self._draft(offset, first.topic_id)
        if first.partition_id < 0 or not draft.add(first.partition_id, length, _partition_of(first[2:])):
            raise MetadataCorrupt(offset, f"partition {first.partition_id} of {draft.name} cannot be added")

    def _change_partition(self, offset: int, record: PartitionChangeRecord) -> None:
        draft = self._draft(offset, record.topic_id)
        if not 0 <= record.partition_id < len(draft.partitions):
            raise MetadataCorrupt(offset, f"there is no partition {record.partition_id} of {draft.name} to change")
        draft.partitions[record.partition_id] = changed_partition(draft.partitions[record.partition_id], record)

    def _clear_eligible(self, offset: int, name: str) -> None:
        """Remove the eligible leader replicas of a topic, or of every topic if none is named (KIP-966)."""
        there = {topic.name: topic_id for topic_id, topic in self.image.topics_by_id.items()} | self._new_names
        if name and name not in there:
            raise MetadataCorrupt(offset, f"there is no topic {name}")
        for topic_id in [there[name]] if name else list(there.values()):
            topic = self.image.topics_by_id.get(topic_id)
            known = topic.assignment if topic_id not in self._drafts and topic else ()
            if topic_id in self._removed or (topic_id not in self._drafts and not any(map(_has_eligible, known))):
                continue
            draft = self._draft(offset, topic_id)
            draft.partitions = [
                partition._replace(eligible_leader_replicas=(), last_known_elr=()) for partition in draft.partitions
            ]

    def _set_config(self, offset: int, record: ConfigRecord) -> None:
        if record.resource_type not in STORED_RESOURCES:
            raise MetadataCorrupt(offset, f"resource type {record.resource_type} is unknown")
        resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        if resource not in self._configs:
            self._configs[resource] = dict(self.image.configs.get(resource, NOTHING))
        if record.value is None:
            self._configs[resource].pop(record.name, None)
        else:
            self._configs[resource][record.name] = record.value

    def _remove(self, offset: int, record: RemoveTopicRecord) -> None:
        name = self._draft(offset, record.topic_id).name
        del self._drafts[record.topic_id]
        self.removed_ids.add(record.topic_id)
        self._new_names.pop(name, None)
        before = self.image.topics_by_id.get(record.topic_id)
        if before is not None:
            self._removed[record.topic_id] = before
        self._configs[ConfigResource(ConfigResourceType.TOPIC, name)] = {}

    def apply(self, offset: int) -> MetadataDelta:
        """The step to the image with all records, up to `offset`.

        Raises MetadataCorrupt if a topic's partitions have a gap.
        """
        configs = self._next_configs()
        topics = self._changed_topics(offset, configs)
        features = self.image.features
        if self._features:
            features = {name: level for name, level in {**features, **self._features}.items() if level}
        image = replace(
            self.image, offset=offset, configs=configs, features=features, next_producer_id=self._next_producer_id
        )
        if topics or self._removed:
            by_name, by_id = dict(self.image.topics_by_name), dict(self.image.topics_by_id)
            for topic_id, gone in self._removed.items():
                del by_id[topic_id]
                del by_name[gone.name]
            for topic in topics:
                by_id[topic.topic_id] = by_name[topic.name] = topic
            image = replace(image, topics_by_name=by_name, topics_by_id=by_id)
        changes = self._changes(image, topics)
        if self._access is not None:
            image = self._access.apply(image)
            changes += self._access.changes()
        return MetadataDelta(self.image, image, tuple(changes))

    def _next_configs(self) -> Mapping[ConfigResource, Mapping[str, str]]:
        if not self._configs:
            return self.image.configs
        merged: dict[ConfigResource, Mapping[str, str]] = dict(self.image.configs)
        for resource, entries in self._configs.items():
            if entries:
                merged[resource] = entries
            else:
                merged.pop(resource, None)
        return merged

    def _changed_topics(self, offset: int, configs: Mapping[ConfigResource, Mapping[str, str]]) -> list[TopicImage]:
        changed: list[TopicImage] = []
        for topic_id, draft in self._drafts.items():
            if draft.beyond or not draft.partitions:
                raise MetadataCorrupt(offset, f"the partitions of topic {draft.name} are not 0 to n")
            entries = configs.get(ConfigResource(ConfigResourceType.TOPIC, draft.name), NOTHING)
            changed.append(TopicImage(draft.name, topic_id, tuple(draft.partitions), entries))
        for resource in self._configs:
            topic = self.image.topics_by_name.get(resource.name) if resource.type is ConfigResourceType.TOPIC else None
            if topic is not None and topic.topic_id not in self._drafts and topic.topic_id not in self._removed:
                changed.append(replace(topic, configs=configs.get(resource, NOTHING)))
        return changed

    def _changes(self, image: MetadataImage, topics: list[TopicImage]) -> list[Change]:
        changes: list[Change] = [TopicDeleted(topic) for topic in self._removed.values()]
        for topic in topics:
            before = self.image.topics_by_id.get(topic.topic_id)
            if before is None:
                changes.append(TopicCreated(topic))
                continue
            if topic.partitions > before.partitions:
                changes.append(PartitionsAdded(topic, before.partitions))
            if topic.assignment[: before.partitions] != before.assignment:
                changes.append(AssignmentChanged(topic, before))
            if topic.configs != before.configs:
                changes.append(TopicConfigChanged(topic))
        for resource, entries in self._configs.items():
            if resource.type is ConfigResourceType.BROKER and entries != self.image.configs.get(resource, NOTHING):
                changes.append(BrokerConfigChanged(resource.name))
        if image.features != self.image.features:
            changes.append(FeaturesChanged(image.features))
        return changes


def _has_eligible(partition: PartitionImage) -> bool:
    return bool(partition.eligible_leader_replicas or partition.last_known_elr)


@lru_cache(maxsize=1024)
def _partition_of(fields: tuple[Any, ...]) -> PartitionImage:
    """A PartitionRecord's fields besides partition and topic id: equal partitions, which are many, share one value."""
    return PartitionImage._make(() if part is None else part for part in fields)


def changed_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """The partition after a change: every change raises its epoch, one of the leader also the leader epoch."""
    elected = record.leader != NO_LEADER_CHANGE
    changes = {
        name: value
        for name in (
            "replicas",
            "isr",
            "removing_replicas",
            "adding_replicas",
            "directories",
            "eligible_leader_replicas",
            "last_known_elr",
        )
        if (value := getattr(record, name)) is not None
    }
    if record.leader_recovery_state >= 0:
        changes["leader_recovery_state"] = record.leader_recovery_state
    return partition._replace(
        leader=record.leader if elected else partition.leader,
        leader_epoch=partition.leader_epoch + elected,
        partition_epoch=partition.partition_epoch + 1,
        **changes,
    )
