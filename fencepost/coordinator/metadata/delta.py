"""What a run of metadata records changes about an image; the one place where a record gets its meaning."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from fencepost.coordinator.metadata.image import (
    NOTHING,
    ConfigResource,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from fencepost.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)


class MetadataCorrupt(Exception):
    """The metadata log holds a record that cannot follow the ones before it; names the offset and the reason."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"metadata log at offset {offset}: {why}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic is there."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic went; `topic` is what it was."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew from `before` partitions to `topic.partitions`."""

    topic: TopicImage
    before: int


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """Something was set on, or taken off, a topic."""

    topic: TopicImage


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """Something was set on, or taken off, a broker; an empty name means all brokers."""

    name: str


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """A feature was finalized at another level."""

    features: Mapping[str, int]


Change = TopicCreated | TopicDeleted | PartitionsAdded | TopicConfigChanged | BrokerConfigChanged | FeaturesChanged
"""What an observer of the metadata is told once it is durable."""


@dataclass(slots=True)
class _Draft:
    """A topic that is being made or grown."""

    name: str
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class MetadataDelta:
    """Records on their way into an image. `replay` takes them one by one, `apply` gives the next image.

    The image it starts from is never touched: throwing the delta away undoes every record of it (KIP-868's abort).
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._drafts: dict[bytes, _Draft] = {}
        self._removed: dict[bytes, TopicImage] = {}
        self._new_names: dict[str, bytes] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._features: dict[str, int] = {}
        self._next_producer_id = image.next_producer_id

    def replay(self, offset: int, record: MetadataRecord) -> None:
        """Take in one record. Raises MetadataCorrupt where it cannot follow what was before."""
        match record:
            case TopicRecord():
                self._create(offset, record)
            case PartitionRecord():
                self._add_partition(offset, record)
            case ConfigRecord():
                self._set_config(offset, record)
            case RemoveTopicRecord():
                self._remove(offset, record)
            case FeatureLevelRecord():
                self._features[record.name] = record.feature_level
            case ProducerIdsRecord():
                if record.next_producer_id < self._next_producer_id:
                    raise MetadataCorrupt(offset, f"producer ids go back to {record.next_producer_id}")
                self._next_producer_id = record.next_producer_id
            case NoOpRecord():
                pass
            case BeginTransactionRecord() | EndTransactionRecord() | AbortTransactionRecord():
                raise AssertionError("transaction records are the loader's, not the delta's")
            case _:
                assert_never(record)

    def _create(self, offset: int, record: TopicRecord) -> None:
        taken = record.topic_id in self._drafts or record.topic_id in self.image.topics_by_id
        if taken or record.topic_id in self._removed:
            raise MetadataCorrupt(offset, f"topic id {record.topic_id.hex()} is in use")
        old = self.image.topics_by_name.get(record.name)
        if record.name in self._new_names or (old is not None and old.topic_id not in self._removed):
            raise MetadataCorrupt(offset, f"topic {record.name} is there already")
        self._drafts[record.topic_id] = _Draft(record.name)
        self._new_names[record.name] = record.topic_id

    def _draft(self, offset: int, topic_id: bytes) -> _Draft:
        draft = self._drafts.get(topic_id)
        if draft is not None:
            return draft
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None or topic_id in self._removed:
            raise MetadataCorrupt(offset, f"no topic has the id {topic_id.hex()}")
        draft = self._drafts[topic_id] = _Draft(topic.name, dict(enumerate(topic.assignment)))
        return draft

    def _add_partition(self, offset: int, record: PartitionRecord) -> None:
        draft = self._draft(offset, record.topic_id)
        if record.partition_id in draft.partitions or record.partition_id < 0:
            raise MetadataCorrupt(offset, f"partition {record.partition_id} of {draft.name} cannot be added")
        draft.partitions[record.partition_id] = PartitionImage(
            record.replicas, record.isr, record.leader, record.leader_epoch, record.partition_epoch
        )

    def _set_config(self, offset: int, record: ConfigRecord) -> None:
        try:
            resource = ConfigResource(ResourceType(record.resource_type), record.resource_name)
        except ValueError:
            raise MetadataCorrupt(offset, f"resource type {record.resource_type} is unknown") from None
        if resource not in self._configs:
            self._configs[resource] = dict(self.image.configs.get(resource, NOTHING))
        if record.value is None:
            self._configs[resource].pop(record.name, None)
        else:
            self._configs[resource][record.name] = record.value

    def _remove(self, offset: int, record: RemoveTopicRecord) -> None:
        name = self._draft(offset, record.topic_id).name
        del self._drafts[record.topic_id]
        self._new_names.pop(name, None)
        before = self.image.topics_by_id.get(record.topic_id)
        if before is not None:
            self._removed[record.topic_id] = before
        self._configs[ConfigResource(ResourceType.TOPIC, name)] = {}

    def apply(self, offset: int) -> tuple[MetadataImage, tuple[Change, ...]]:
        """The image with all records in it, up to `offset`, and what an observer should hear.

        Raises MetadataCorrupt where a topic's partitions have a hole.
        """
        configs = self._next_configs()
        topics = self._changed_topics(offset, configs)
        features = {**self.image.features, **self._features} if self._features else self.image.features
        image = replace(
            self.image,
            offset=offset,
            configs=configs,
            features={name: level for name, level in features.items() if level} if self._features else features,
            next_producer_id=self._next_producer_id,
        )
        if topics or self._removed:
            by_name, by_id = dict(self.image.topics_by_name), dict(self.image.topics_by_id)
            for topic_id, gone in self._removed.items():
                del by_id[topic_id]
                del by_name[gone.name]
            for topic in topics:
                by_id[topic.topic_id] = by_name[topic.name] = topic
            image = replace(image, topics_by_name=by_name, topics_by_id=by_id)
        return image, self._changes(image, topics)

    def _next_configs(self) -> Mapping[ConfigResource, Mapping[str, str]]:
        if not self._configs:
            return self.image.configs
        merged: dict[ConfigResource, Mapping[str, str]] = {**self.image.configs, **self._configs}
        return {resource: entries for resource, entries in merged.items() if entries}

    def _changed_topics(self, offset: int, configs: Mapping[ConfigResource, Mapping[str, str]]) -> list[TopicImage]:
        changed: list[TopicImage] = []
        for topic_id, draft in self._drafts.items():
            count = len(draft.partitions)
            if count == 0 or max(draft.partitions) != count - 1:
                raise MetadataCorrupt(offset, f"the partitions of topic {draft.name} are not 0 to n")
            assignment = tuple(draft.partitions[partition] for partition in range(count))
            entries = configs.get(ConfigResource(ResourceType.TOPIC, draft.name), NOTHING)
            changed.append(TopicImage(draft.name, topic_id, assignment, entries))
        for resource in self._configs:
            topic = self.image.topics_by_name.get(resource.name) if resource.type is ResourceType.TOPIC else None
            if topic is not None and topic.topic_id not in self._drafts and topic.topic_id not in self._removed:
                changed.append(replace(topic, configs=configs.get(resource, NOTHING)))
        return changed

    def _changes(self, image: MetadataImage, topics: list[TopicImage]) -> tuple[Change, ...]:
        changes: list[Change] = [TopicDeleted(topic) for topic in self._removed.values()]
        for topic in topics:
            before = self.image.topics_by_id.get(topic.topic_id)
            if before is None:
                changes.append(TopicCreated(topic))
                continue
            if topic.partitions > before.partitions:
                changes.append(PartitionsAdded(topic, before.partitions))
            if topic.configs != before.configs:
                changes.append(TopicConfigChanged(topic))
        for resource, entries in self._configs.items():
            if resource.type is ResourceType.BROKER and entries != self.image.configs.get(resource, NOTHING):
                changes.append(BrokerConfigChanged(resource.name))
        if image.features != self.image.features:
            changes.append(FeaturesChanged(image.features))
        return tuple(changes)
