"""A consumer group as the fold of its records, with the counts and reverse maps that decisions need.

Only `apply` changes it, the same at an append and in replay. The time of the next check of the topics is not in the
log: its loss costs one more check.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, assert_never

from fencepost.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    NOTHING,
    NOTHING_OWNED,
    Assignment,
    ConsumerMember,
    MemberState,
    Owned,
)
from fencepost.coordinator.group.consumer.records import (
    ConsumerRecord,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    RegexRecord,
    ResolvedRegex,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)

INITIAL_EPOCH = 1
"""Group and assignment epoch of a group without a record of either: a member without topics needs no assignment."""
NO_EPOCH = -1


class Subscribers(NamedTuple):
    """How many members name a topic, and how many resolved regular expressions match it."""

    names: int
    regexes: int


class ConsumerGroup:
    """One group; all of its records have its `group_id`."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        """By id, in the order in which they joined."""
        self.static: dict[str, str] = {}
        """Member ids by instance id (KIP-345)."""
        self.target: dict[str, Assignment] = {}
        self.target_owners: dict[bytes, dict[int, str]] = {}
        """The reverse of `target`: the member that each partition is meant for."""
        self.topics: dict[str, Subscribers] = {}
        """Every topic that a member subscribes to; it need not exist."""
        self.regexes: dict[str, int] = {}
        """How many members subscribe to each regular expression."""
        self.resolved: dict[str, ResolvedRegex] = {}
        self.assignors: dict[str, int] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        """How many classic members support each assignor."""
        self.has_topics_record = False
        self.refresh_at_ms = 0
        """When the topics are checked again, unless a change of the metadata comes first; not in the log."""
        self.refresh_epoch = 0
        self._partition_epochs: dict[bytes, dict[int, int]] = {}

    # ---- questions of decisions

    @property
    def state(self) -> str:
        """The phase under its name in ConsumerGroupDescribe and ListGroups."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        held_by = None if instance_id is None else self.static.get(instance_id)
        return None if held_by is None else self.members[held_by]

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that has the partition, or must still give it back; -1 if it is free."""
        return self._partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """The target assignment of a member, or of the former member with its instance id."""
        if instance_id is not None:
            member_id = self.static.get(instance_id, "")
        return self.target.get(member_id, NOTHING)

    def waits_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether another member still has a partition of this member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.partition_epoch(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.target.get(member.member_id, NOTHING).items()
            for partition in partitions
        )

    def needs_refresh(self, now_ms: int) -> bool:
        return now_ms >= self.refresh_at_ms or self.epoch < self.refresh_epoch

    # ---- records

    def apply(self, record: ConsumerRecord) -> None:
        """Apply one record. A tombstone of an absent key has no effect (compaction may have left only tombstones)."""
        match record:
            case EpochRecord():
                if record.value is not None:
                    self.epoch, self.metadata_hash = record.value
            case TopicsRecord():
                self.has_topics_record = record.there
            case MemberRecord():
                self._apply_member(record)
            case TargetEpochRecord():
                self.assignment_epoch, self.assignment_timestamp_ms = record.value or (NO_EPOCH, 0)
            case TargetRecord():
                self._put_target(record.member_id, record.value)
            case CurrentRecord():
                self._apply_current(record)
            case RegexRecord():
                self._put_regex(record.regex, record.value)
            case _:
                assert_never(record)

    def _apply_member(self, record: MemberRecord) -> None:
        old = self.members.get(record.member_id)
        if record.value is None:
            if old is not None:
                self._drop(old)
            return
        value = record.value
        base = old or ConsumerMember(member_id=record.member_id)
        self._put(
            replace(
                value,
                epoch=base.epoch,
                previous_epoch=base.previous_epoch,
                state=base.state,
                assigned=base.assigned,
                revoking=base.revoking,
            )
        )

    def _apply_current(self, record: CurrentRecord) -> None:
        old = self.members.get(record.member_id)
        if record.value is None:
            if old is not None:
                gone = replace(old, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, state=MemberState.STABLE)
                self._put(replace(gone, assigned=NOTHING_OWNED, revoking=NOTHING_OWNED))
            return
        value = record.value
        self._put(
            replace(
                old or ConsumerMember(member_id=record.member_id),
                epoch=value.epoch,
                previous_epoch=value.previous_epoch,
                state=value.state,
                assigned=value.assigned,
                revoking=value.revoking,
            )
        )

    def _put(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def _drop(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self._count(member, -1)
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    def _count(self, member: ConsumerMember, step: int) -> None:
        """Add a member to the counts, or remove it."""
        count_names(self.topics, member.topics, step)
        if member.regex:
            count(self.regexes, member.regex, step)
        if member.assignor is not None:
            count(self.assignors, member.assignor, step)
        if member.classic is not None:
            self.classic_members += step
            for name, _ in member.classic.protocols:
                count(self.classic_protocols, name, step)
        for owned in (member.assigned, member.revoking):
            self._hold(owned, member.epoch, step)

    def _hold(self, owned: Owned, epoch: int, step: int) -> None:
        """Note the owner's epoch of partitions; a release counts only if the noted epoch is still the same."""
        for topic_id, partitions in owned.items():
            noted = self._partition_epochs.setdefault(topic_id, {})
            for partition in partitions:
                if step > 0:
                    noted[partition] = max(epoch, noted.get(partition, NO_EPOCH - 1))
                elif noted.get(partition) == epoch:
                    del noted[partition]
            if not noted:
                del self._partition_epochs[topic_id]

    def _put_target(self, member_id: str, assignment: Assignment | None) -> None:
        old = self.target.get(member_id, NOTHING)
        new = NOTHING if assignment is None else assignment
        for topic_id in {*old, *new}:
            owners = self.target_owners.setdefault(topic_id, {})
            before, after = old.get(topic_id, frozenset()), new.get(topic_id, frozenset())
            for partition in before - after:
                if owners.get(partition) == member_id:
                    del owners[partition]
            owners.update(dict.fromkeys(after - before, member_id))
            if not owners:
                del self.target_owners[topic_id]
        if assignment is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = assignment

    def _put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved.pop(regex, None)
        if old is not None:
            count_regex(self.topics, old.topics, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            count_regex(self.topics, resolved.topics, 1)


def count(counts: dict[str, int], name: str, step: int) -> None:
    """Add `step` to a count, and remove a count of zero."""
    counts[name] = counts.get(name, 0) + step
    if counts[name] <= 0:
        del counts[name]


def count_names(topics: dict[str, Subscribers], names: Iterable[str], step: int) -> None:
    """Count topics that a member names (1), or no longer names (-1)."""
    _count_topics(topics, names, step, 0)


def count_regex(topics: dict[str, Subscribers], names: Iterable[str], step: int) -> None:
    """Count topics that a regular expression matches (1), or no longer matches (-1)."""
    _count_topics(topics, names, 0, step)


def _count_topics(topics: dict[str, Subscribers], names: Iterable[str], by_name: int, by_regex: int) -> None:
    for name in names:
        old = topics.get(name, Subscribers(0, 0))
        new = Subscribers(max(old.names + by_name, 0), max(old.regexes + by_regex, 0))
        if new == (0, 0):
            topics.pop(name, None)
        else:
            topics[name] = new


def tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    group_id, members = group.group_id, list(group.members)
    return [
        *(CurrentRecord(group_id, member_id, None) for member_id in members),
        *(TargetRecord(group_id, member_id, None) for member_id in members),
        TargetEpochRecord(group_id, None),
        *(MemberRecord(group_id, member_id, None) for member_id in members),
        *(RegexRecord(group_id, regex, None) for regex in group.resolved),
        TopicsRecord(group_id, False),
        EpochRecord(group_id, None),
    ]


def is_homogeneous(regexes: Mapping[str, int], topics: Mapping[str, Subscribers], members: int) -> bool:
    """Whether all members subscribe to the same topics: by the same names, or all by one regular expression only."""
    if not regexes:
        return all(found.names == members for found in topics.values())
    if len(regexes) > 1 or next(iter(regexes.values())) != members:
        return False
    return all(found.regexes == 1 and not found.names for found in topics.values())
