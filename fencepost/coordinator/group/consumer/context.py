"""One decision about a consumer group while it is made: its inputs, its records so far, and its steps.

The steps are those of every request that may change a group (Kafka's GroupMetadataManager). They note the member and
the effect of its subscription on the group's epoch. They compute a new target assignment if the epochs require one, and
take the member one step towards it. All see the group as it was before; it changes when the records are applied.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.coordinator.decision import Decision, ReplyT
from fencepost.coordinator.group.config import GroupConfig
from fencepost.coordinator.group.consumer import regexes
from fencepost.coordinator.group.consumer.group import (
    ConsumerGroup,
    Subscribers,
    count,
    count_names,
    count_regex,
    is_homogeneous,
)
from fencepost.coordinator.group.consumer.member import Assignment, ConsumerMember, MemberState
from fencepost.coordinator.group.consumer.reconcile import Reconciliation, Reported, reconcile
from fencepost.coordinator.group.consumer.records import (
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberRecord,
    RegexRecord,
    TopicsRecord,
)
from fencepost.coordinator.group.consumer.target import is_due, new_target, preferred_assignor
from fencepost.coordinator.group.consumer.topics import metadata_hash, subscribed_names, topic_ids
from fencepost.coordinator.group.decision import DecisionBuilder, GroupChange, GroupDecision
from fencepost.coordinator.group.state import Group
from fencepost.coordinator.group.timers import SetTimer, TimerKind
from fencepost.coordinator.metadata.image import MetadataImage

METADATA_REFRESH_MS = 3_600_000
"""The longest time between two checks of a group's topics, if no change of the metadata triggers one."""


class View(NamedTuple):
    """The inputs of a decision besides the group and the request."""

    image: MetadataImage
    new_topics_at: int
    """The metadata offset at which topics were last created: older regular expressions are resolved again."""
    config: GroupConfig
    now_ms: int


class GroupContext(DecisionBuilder):
    """A consumer group, its view, and the parts of the decision so far."""

    def __init__(self, group: ConsumerGroup, view: View) -> None:
        super().__init__(group.group_id)
        self.group = group
        self.view = view
        self.refresh: tuple[int, int] | None = None
        self.resolve: frozenset[str] = frozenset()
        self.classic: Group | None = None
        """The new state of the group, if it becomes one of the classic protocol."""

    def decided(self, reply: ReplyT) -> GroupDecision[ReplyT]:
        change = GroupChange(self.classic, tuple(self.timers), tuple(self.answers), "", self.refresh, self.resolve)
        return Decision(reply, tuple(self.log), (change,))

    def stop_timers(self, member_ids: Iterable[str]) -> None:
        kinds = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.CLASSIC_JOIN, TimerKind.CLASSIC_SYNC)
        self.timers += [SetTimer(kind, None, member_id) for member_id in member_ids for kind in kinds]

    # ---- the steps

    def note_member(self, old: ConsumerMember, new: ConsumerMember) -> bool:
        """Write the member's record if it changed; return whether the topics that it names changed."""
        if new == old:
            return False
        self.log.append(MemberRecord(self.group.group_id, new.member_id, new))
        return new.topics != old.topics

    def note_regex(self, old: ConsumerMember, new: ConsumerMember) -> "regexes.Change":
        """Remove a regular expression with its last subscriber, and have a new one resolved."""
        change, unused, self.resolve = regexes.note(self.group, old.regex, new.regex, self.view)
        if unused is not None:
            self.log.append(RegexRecord(self.group.group_id, unused, None))
        return change

    def epoch(self, bump: bool, old: ConsumerMember, new: ConsumerMember) -> tuple[int, bool]:
        """The group's epoch, raised if `bump` is set or its topics changed, and whether all members have the same
        subscription, with `new` in the place of `old`."""
        group = self.group
        if not bump and not group.needs_refresh(self.view.now_ms):
            return group.epoch, is_homogeneous(group.regexes, group.topics, len(group.members))
        return self._look_at_topics(bump, old, new)

    def _look_at_topics(self, bump: bool, old: ConsumerMember, new: ConsumerMember) -> tuple[int, bool]:
        group = self.group
        subscriptions = dict(group.regexes)
        topics: dict[str, Subscribers] = dict(group.topics)
        count_names(topics, old.topics, -1)
        count_names(topics, new.topics, 1)
        if old.regex != new.regex:
            if old.regex:
                if subscriptions.get(old.regex) == 1 and old.regex in group.resolved:
                    count_regex(topics, group.resolved[old.regex].topics, -1)
                count(subscriptions, old.regex, -1)
            if new.regex:
                count(subscriptions, new.regex, 1)
        is_new = new.member_id not in group.members and group.static_member(new.instance_id) is None
        homogeneous = is_homogeneous(subscriptions, topics, len(group.members) + is_new)
        found = metadata_hash(topics, self.view.image)
        epoch = group.epoch
        if bump or found != group.metadata_hash:
            epoch += 1
            self.log.append(EpochRecord(group.group_id, GroupEpoch(epoch, found)))
        self.refresh = (self.view.now_ms + METADATA_REFRESH_MS, epoch)
        if group.has_topics_record:
            self.log.append(TopicsRecord(group.group_id, False))
        return epoch, homogeneous

    def assign(self, epoch: int, homogeneous: bool, old: ConsumerMember, new: ConsumerMember) -> tuple[int, Assignment]:
        """The epoch of the target assignment and the member's part of it; computes a new target if one is due."""
        group, config = self.group, self.view.config
        interval_ms = config.group_consumer_assignment_interval_ms
        due = is_due(group.assignment_timestamp_ms, interval_ms, self.view.now_ms)
        if group.assignment_epoch >= epoch or not due:
            return group.assignment_epoch, group.target_of(new.member_id, new.instance_id)
        assignor = preferred_assignor(group, config.group_consumer_assignors[0], old, new)
        now_ms = self.view.now_ms
        records, target = new_target(group, epoch, assignor, homogeneous, new, self.view.image, lambda: now_ms)
        self.log += records
        return epoch, target

    def step(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Assignment,
        subscription_changed: bool,
        reported: Reported | None,
    ) -> ConsumerMember:
        """Take the member one step towards its target. Raises Refused."""
        if not subscription_changed and member.reconciled_to(target_epoch):
            return member
        subscribed = topic_ids(subscribed_names(member, self.group.resolved), self.view.image)
        towards = Reconciliation(
            target_epoch, target, subscribed, self.group.partition_epoch, reported, subscription_changed
        )
        after = reconcile(member, towards)
        if after != member:
            self.log.append(CurrentRecord(self.group.group_id, after.member_id, after))
            if after.classic is None:
                waits = after.state is MemberState.UNREVOKED_PARTITIONS
                delay_ms = after.rebalance_timeout_ms if waits else None
                self.timers.append(SetTimer(TimerKind.REBALANCE, delay_ms, after.member_id, after.epoch))
        return after
