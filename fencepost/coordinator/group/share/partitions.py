"""The partitions that a share group has begun to consume: pure (Kafka's ShareGroupStatePartitionMetadataInfo).

The share coordinator keeps the state of each share partition. The group assigns a partition only after that coordinator
has initialised its state. The record of a group says which partitions are initialised, for which this is asked, and of
which topics the state is being deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.coordinator.group.consumer.member import Assignment
from fencepost.coordinator.group.timers import within
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.share.values import UNINITIALIZED, InitialState, ShareKey

_EPOCHS_SINCE_S = 1_577_836_800
"""1 January 2020, in seconds since 1970."""


class Begun(NamedTuple):
    """Partitions of one topic."""

    name: str
    partitions: frozenset[int]
    since_ms: int = 0
    """When the initialisation was asked for; not in the log: after a restart the next heartbeat asks again at once."""


Topics = Mapping[bytes, Begun]


def new_state_epoch(group_epoch: int, now_ms: int) -> int:
    """The epoch of states that begin now: higher than all that the group had before, also before it was deleted.

    Kafka takes the group's epoch. That begins again with a group that is created again, and several resets of a group
    without members have the same: a leader that knows the old state could write to the new one. Here the clock counts
    seconds since 2020, so that 31 bits last until 2088.
    """
    return max(group_epoch, now_ms // 1000 - _EPOCHS_SINCE_S)


@dataclass(frozen=True, slots=True)
class GroupPartitions:
    """All partitions of one group; every change creates a new value."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)
    """The names of topics by their ids."""

    @property
    def assignable(self) -> Assignment:
        return {topic_id: topic.partitions for topic_id, topic in self.initialized.items()}

    def missing(self, names: Iterable[str], image: MetadataImage, now_ms: int, retry_ms: int) -> dict[bytes, Begun]:
        """The partitions of subscribed topics that are neither initialised nor asked for in the last `retry_ms`."""
        recent = {key: one for key, one in self.initializing.items() if within(one.since_ms, retry_ms, now_ms)}
        found: dict[bytes, Begun] = {}
        for topic in (image.topics_by_name[name] for name in sorted(names) if name in image.topics_by_name):
            known = _numbers(self.initialized, topic.topic_id) | _numbers(recent, topic.topic_id)
            if numbers := frozenset(range(topic.partitions)) - known:
                found[topic.topic_id] = Begun(topic.name, numbers, now_ms)
        return found

    def first_states(self, group_id: str, epoch: int, asked: Topics) -> dict[ShareKey, InitialState]:
        """From where each partition begins.

        A partition that was added to a topic which the group consumes already begins at its first record: no record is
        lost if it was written before the group noticed the partition. All others begin by `share.auto.offset.reset`.
        """
        states: dict[ShareKey, InitialState] = {}
        for topic_id, topic in asked.items():
            waiting = _numbers(self.initializing, topic_id)
            for number in sorted(topic.partitions):
                added = topic_id in self.initialized or (waiting and number not in waiting)
                states[ShareKey(group_id, topic_id, number)] = InitialState(epoch, 0 if added else UNINITIALIZED)
        return states

    def asking(self, asked: Topics) -> "GroupPartitions":
        """With these partitions asked for; what is initialised stays so, and what was being deleted is not any more."""
        deleting = {key: name for key, name in self.deleting.items() if key not in asked}
        return GroupPartitions(_plus(self.initializing, asked), self.initialized, deleting)

    def settled(self, done: Assignment, failed: Assignment) -> "GroupPartitions":
        """After an answer: what is done is initialised, what failed will be asked for again.

        Only for partitions that are still asked for: the topic or the group may have been deleted meanwhile.
        """
        finished: dict[bytes, Begun] = {}
        left: dict[bytes, Begun] = {}
        for topic_id, topic in self.initializing.items():
            over = done.get(topic_id, frozenset()) | failed.get(topic_id, frozenset())
            if numbers := topic.partitions - over:
                left[topic_id] = topic._replace(partitions=numbers)
            if numbers := topic.partitions & done.get(topic_id, frozenset()):
                finished[topic_id] = Begun(topic.name, numbers)
        return GroupPartitions(left, _plus(self.initialized, finished), self.deleting)

    def without(self, topic_ids: Iterable[bytes]) -> "GroupPartitions":
        """Without deleted topics, or topics whose state is deleted."""
        gone = set(topic_ids)
        return GroupPartitions(
            {key: topic for key, topic in self.initializing.items() if key not in gone},
            {key: topic for key, topic in self.initialized.items() if key not in gone},
            {key: name for key, name in self.deleting.items() if key not in gone},
        )

    def deleting_topics(self, names: Mapping[bytes, str]) -> "GroupPartitions":
        """With the state of these topics to be deleted."""
        rest = self.without(names)
        return GroupPartitions(rest.initializing, rest.initialized, {**rest.deleting, **names})

    def with_state(self, topic_id: bytes, image: MetadataImage) -> frozenset[int]:
        """The partitions of a topic that may have a state: all of the topic if a deletion was begun before."""
        topic = image.topics_by_id.get(topic_id)
        again = frozenset(range(topic.partitions)) if topic is not None and topic_id in self.deleting else frozenset()
        return again | _numbers(self.initialized, topic_id) | _numbers(self.initializing, topic_id)

    @property
    def topic_ids(self) -> set[bytes]:
        return {*self.initializing, *self.initialized, *self.deleting}

    def name_of(self, topic_id: bytes) -> str:
        found = self.initialized.get(topic_id) or self.initializing.get(topic_id)
        return self.deleting.get(topic_id, "") if found is None else found.name


def _numbers(topics: Topics, topic_id: bytes) -> frozenset[int]:
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions


def _plus(topics: Topics, more: Topics) -> dict[bytes, Begun]:
    joined = dict(topics)
    for topic_id, topic in more.items():
        joined[topic_id] = topic._replace(partitions=topic.partitions | _numbers(topics, topic_id))
    return joined


def by_topic(keys: Iterable[ShareKey]) -> Assignment:
    """The partitions of these keys, by topic id."""
    found: dict[bytes, frozenset[int]] = {}
    for key in keys:
        found[key.topic_id] = found.get(key.topic_id, frozenset()) | {key.partition}
    return found
