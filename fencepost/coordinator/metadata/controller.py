"""Decides on the creation, deletion and growth of topics. Pure: it sees an image and returns records."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import (
    DONE,
    NO_ID,
    OVER_QUOTA,
    CreatedTopic,
    DeletedTopic,
    MorePartitions,
    NewTopic,
    Outcome,
    TopicRef,
)
from fencepost.coordinator.metadata.features import DIRECTORIES_SINCE
from fencepost.coordinator.metadata.image import METADATA_VERSION, MetadataImage, TopicImage
from fencepost.coordinator.metadata.ports import ClusterFacts, ConfigRules, IdSource, MutationQuota
from fencepost.coordinator.metadata.topic_names import colliding_name, topic_name_problem
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import UNASSIGNED_DIRECTORY, MetadataEntry, PartitionRun, record_count
from fencepost.protocol.metadata_record_types import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from fencepost.protocol.topics import METADATA_TOPIC

Topics = Decision[MetadataEntry, list[CreatedTopic], None]


class TopicController:
    """The rules of kafka-rules D1, for partitions with one replica."""

    def __init__(self, facts: ClusterFacts, rules: ConfigRules, new_id: IdSource) -> None:
        self.facts = facts
        self._rules = rules
        self._new_id = new_id

    def create_topics(
        self,
        image: MetadataImage,
        topics: Sequence[NewTopic],
        validate_only: bool = False,
        mutations: MutationQuota | None = None,
    ) -> Topics:
        """Decide on each topic separately; the valid ones are created together, in one atomic change.

        With `validate_only` the answers are the same and nothing is written. Topics that `mutations` refuses are
        OVER_QUOTA; a validation counts, too (Kafka's ReplicationControlManager).
        """
        twice = {name for name, count in Counter(topic.name for topic in topics).items() if count > 1}
        taken: dict[str, object] = {}
        records: list[MetadataEntry] = []
        count = 0
        replies: list[CreatedTopic] = []
        for topic in topics:
            if topic.name in twice:
                continue
            reply, added = self._create_topic(image, topic, taken, self.facts.change_records_max - count, mutations)
            if reply.outcome.code is ErrorCode.NONE:
                records += added
                count += record_count(added)
                taken[topic.name] = None
            replies.append(reply)
        for name in sorted(twice):
            replies.append(CreatedTopic(name, Outcome(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
        return Decision(replies, () if validate_only else tuple(records))

    def _create_topic(
        self,
        image: MetadataImage,
        topic: NewTopic,
        taken: Mapping[str, object],
        room: int,
        mutations: MutationQuota | None,
    ) -> tuple[CreatedTopic, list[MetadataEntry]]:
        problem = self._name_problem(image, topic.name, taken) or self._config_problem(topic)
        if problem is None:
            placed = self._place(topic)
            if isinstance(placed, Outcome):
                problem = placed
            elif 1 + len(topic.configs) + len(placed) > room:
                problem = Outcome(
                    ErrorCode.POLICY_VIOLATION,
                    f"The request needs more than the {self.facts.change_records_max} metadata records it may have",
                )
            elif mutations is not None and not mutations(len(placed)):
                problem = OVER_QUOTA
            else:
                return self._creation(image, topic, placed)
        return CreatedTopic(topic.name, problem), []

    def _creation(
        self, image: MetadataImage, topic: NewTopic, placed: Sequence[tuple[int, ...]]
    ) -> tuple[CreatedTopic, list[MetadataEntry]]:
        topic_id = self._new_id()
        configs = {name: value for name, value in topic.configs.items() if value is not None}
        # Kafka's order: the topic, its settings, its partitions
        records: list[MetadataEntry] = [TopicRecord(topic.name, topic_id)]
        records += [ConfigRecord(ConfigResourceType.TOPIC, topic.name, name, value) for name, value in configs.items()]
        records += _partitions(image, topic_id, 0, placed)
        return CreatedTopic(topic.name, DONE, topic_id, len(placed), len(placed[0]), configs), records

    def _name_problem(self, image: MetadataImage, name: str, taken: Mapping[str, object]) -> Outcome | None:
        if name == METADATA_TOPIC:
            return Outcome(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in image.topics_by_name:
            return Outcome(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        problem = topic_name_problem(name)
        if problem is not None:
            return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        other = colliding_name(name, image.topics_by_name) or colliding_name(name, taken)
        if other is not None:
            return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
        return None

    def _config_problem(self, topic: NewTopic) -> Outcome | None:
        nulls = [name for name, value in topic.configs.items() if value is None]
        if nulls:
            names = ",".join(nulls)
            return Outcome(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {names}")
        given = {name: value for name, value in topic.configs.items() if value is not None}
        problem = self._rules.topic_problem(given)
        return None if problem is None else Outcome(ErrorCode.INVALID_CONFIG, problem)

    def _place(self, topic: NewTopic) -> list[tuple[int, ...]] | Outcome:
        """The replicas of each partition, or the error."""
        if topic.assignment:
            return self._place_by_hand(topic)
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            return Outcome(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.partitions < -1 or topic.partitions == 0:
            return Outcome(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        wanted = topic.replication_factor
        if wanted > 1:
            why = "only 1 broker(s) are registered" if len(self.facts.brokers) == 1 else "each partition has 1 replica"
            return Outcome(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {wanted} time(s): The target replication factor of {wanted} "
                f"cannot be reached because {why}.",
            )
        count = self.facts.default_partitions if topic.partitions == -1 else topic.partitions
        return self._too_many(count) or self._spread(topic.name, 0, count)

    def _spread(self, name: str, first: int, count: int) -> list[tuple[int, ...]]:
        """The replica of each partition: the brokers in turns, each topic from another one (StripedReplicaPlacer)."""
        brokers = self.facts.brokers
        begin = first + crc32(name.encode())
        return [(brokers[(begin + number) % len(brokers)],) for number in range(count)]

    def _too_many(self, count: int) -> Outcome | None:
        most = self.facts.topic_partitions_max
        if count <= most:
            return None
        return Outcome(ErrorCode.INVALID_PARTITIONS, f"{count} partitions are more than the {most} a topic may have")

    def _place_by_hand(self, topic: NewTopic) -> list[tuple[int, ...]] | Outcome:
        given = "A manual partition assignment was specified, but"
        if topic.replication_factor != -1:
            return Outcome(ErrorCode.INVALID_REQUEST, f"{given} replication factor was not set to -1.")
        if topic.partitions != -1:
            return Outcome(ErrorCode.INVALID_REQUEST, f"{given} numPartitions was not set to -1.")
        placed: dict[int, tuple[int, ...]] = {}
        for partition, replicas in topic.assignment:
            if partition in placed:
                return Outcome(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {partition}",
                )
            problem = replicas_problem(replicas, self.facts.brokers)
            if problem is not None:
                return problem
            placed[partition] = replicas
        if sorted(placed) != list(range(len(placed))):
            return Outcome(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return self._too_many(len(placed)) or [placed[partition] for partition in range(len(placed))]

    def delete_topics(
        self, image: MetadataImage, topics: Sequence[TopicRef], mutations: MutationQuota | None = None
    ) -> Decision[MetadataRecord, list[DeletedTopic], None]:
        """Decide on each reference; a topic that is named twice, also once by name and once by id, is not deleted."""
        if not self.facts.delete_topics:
            off = Outcome(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            return Decision([DeletedTopic(ref.name, ref.topic_id, off) for ref in topics])
        replies: list[DeletedTopic] = []
        targets: dict[bytes, list[tuple[TopicRef, TopicImage]]] = {}
        for ref, count in Counter(topics).items():
            topic = self._resolve(image, ref)
            given = ref.topic_id != NO_ID if ref.name is None else ref.topic_id == NO_ID
            if count > 1 and given:
                what = "name" if ref.name is not None else "id"
                why = Outcome(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
                replies.append(DeletedTopic(ref.name, ref.topic_id, why))
            elif isinstance(topic, Outcome):
                replies.append(DeletedTopic(ref.name, ref.topic_id, topic))
            elif topic.internal:
                why = Outcome(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is the broker's own.")
                replies.append(DeletedTopic(ref.name, ref.topic_id, why))
            else:
                targets.setdefault(topic.topic_id, []).append((ref, topic))
        records: list[MetadataRecord] = []
        for topic_id, found in targets.items():
            if len(found) > 1:
                why = Outcome(
                    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                )
                replies.append(DeletedTopic(found[0][1].name, topic_id, why))
            elif mutations is not None and not mutations(found[0][1].partitions):
                replies.append(DeletedTopic(found[0][0].name, found[0][0].topic_id, OVER_QUOTA))
            else:
                records.append(RemoveTopicRecord(topic_id))
                replies.append(DeletedTopic(found[0][1].name, topic_id, DONE))
        return Decision(replies, tuple(records))

    def _resolve(self, image: MetadataImage, ref: TopicRef) -> TopicImage | Outcome:
        if ref.name is not None:
            if ref.topic_id != NO_ID:
                return Outcome(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
            by_name = image.topics_by_name.get(ref.name)
            return by_name or Outcome(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        if ref.topic_id == NO_ID:
            return Outcome(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        return image.topics_by_id.get(ref.topic_id) or Outcome(
            ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        )

    def create_partitions(
        self,
        image: MetadataImage,
        topics: Sequence[MorePartitions],
        validate_only: bool = False,
        mutations: MutationQuota | None = None,
    ) -> Decision[MetadataEntry, list[tuple[str, Outcome]], None]:
        """Decide on each topic separately; the valid ones grow together."""
        counts = Counter(topic.name for topic in topics)
        records: list[MetadataEntry] = []
        count = 0
        replies: list[tuple[str, Outcome]] = []
        for topic in {topic.name: topic for topic in topics}.values():
            if counts[topic.name] > 1:
                replies.append((topic.name, Outcome(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
                continue
            added = self._grow(image, topic, self.facts.change_records_max - count, mutations)
            if isinstance(added, Outcome):
                replies.append((topic.name, added))
            else:
                records += added
                count += record_count(added)
                replies.append((topic.name, DONE))
        return Decision(replies, () if validate_only else tuple(records))

    def _grow(
        self, image: MetadataImage, wanted: MorePartitions, room: int, mutations: MutationQuota | None
    ) -> list[MetadataEntry] | Outcome:
        topic = image.topics_by_name.get(wanted.name)
        if topic is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        if topic.internal:
            return Outcome(
                ErrorCode.INVALID_REQUEST,
                f"Topic '{topic.name}' is the broker's own: its keys are placed by its count.",
            )
        before, added = topic.partitions, wanted.count - topic.partitions
        if added == 0:
            return Outcome(ErrorCode.INVALID_PARTITIONS, f"Topic already has {before} partition(s).")
        if added < 0:
            return Outcome(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {wanted.name} currently has {before} partition(s); "
                f"{wanted.count} would not be an increase.",
            )
        problem = self._too_many(wanted.count)
        if wanted.assignments is not None and len(wanted.assignments) != added:
            problem = Outcome(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        if problem is None and added > room:
            problem = Outcome(
                ErrorCode.POLICY_VIOLATION,
                f"The request needs more than the {self.facts.change_records_max} metadata records it may have",
            )
        for replicas in wanted.assignments or ():
            problem = problem or replicas_problem(replicas, self.facts.brokers)
        if problem is None and mutations is not None and not mutations(added):
            problem = OVER_QUOTA
        if problem is not None:
            return problem
        placed = wanted.assignments or self._spread(topic.name, before, added)
        return _partitions(image, topic.topic_id, before, placed)


def replicas_problem(replicas: tuple[int, ...], brokers: Collection[int]) -> Outcome | None:
    """Why a manual assignment of a partition to these replicas is invalid, in Kafka's words, or None."""
    assigned = "The manual partition assignment includes"
    unknown = [broker for broker in sorted(replicas) if broker not in brokers]
    why = None
    if not replicas:
        why = f"{assigned} an empty replica list."
    elif unknown:
        why = f"{assigned} broker {unknown[0]}, but no such broker is registered."
    elif len(set(replicas)) < len(replicas):
        why = f"{assigned} the broker {max(replicas, key=replicas.count)} more than once."
    elif len(replicas) > 1:
        why = f"{assigned} {len(replicas)} brokers, but each partition has 1 replica."
    return None if why is None else Outcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _partitions(
    image: MetadataImage, topic_id: bytes, first: int, placed: Sequence[tuple[int, ...]]
) -> list[MetadataEntry]:
    """The records of partitions from `first` on, with these replicas; consecutive equal ones are one run."""
    has_directories = image.features.get(METADATA_VERSION, DIRECTORIES_SINCE) >= DIRECTORIES_SINCE
    found: list[MetadataEntry] = []
    start = 0
    while start < len(placed):
        replicas, stop = placed[start], start + 1
        while stop < len(placed) and placed[stop] == replicas:
            stop += 1
        directories = (UNASSIGNED_DIRECTORY,) * len(replicas) if has_directories else ()
        record = PartitionRecord(
            first + start, topic_id, replicas, isr=replicas, leader=replicas[0], directories=directories
        )
        found.append(record if stop == start + 1 else PartitionRun(record, stop - start))
        start = stop
    return found
