"""Carries out decisions about groups of both protocols: records, timers, answers to waiting requests."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fencepost.coordinator.group.commands import JoinAnswer, JoinReply, SyncAnswer, SyncReply
from fencepost.coordinator.group.decision import GroupDecision
from fencepost.coordinator.group.parking import Parking
from fencepost.coordinator.group.shards import GroupRuntime, GroupShard
from fencepost.coordinator.group.timers import REBALANCE, SetTimer, TimerKey, new_key
from fencepost.protocol.errors import ErrorCode


class Effects:
    """Carries out decisions, and holds the requests that wait for them."""

    def __init__(self, runtime: GroupRuntime) -> None:
        self.joins: Parking[JoinReply] = Parking(JoinReply("", ErrorCode.REBALANCE_IN_PROGRESS), JoinReply)
        self.syncs: Parking[SyncReply] = Parking(
            SyncReply(ErrorCode.REBALANCE_IN_PROGRESS), lambda _, error: SyncReply(error)
        )
        self.closed = False
        """Whether the broker stops: then no request may start to wait."""
        self._runtime = runtime
        self._awaited_epochs: dict[TimerKey, int] = {}
        """By rebalance timer: if the member is still in this epoch when it expires, the member is removed."""

    def carry_out(self, shard: GroupShard, group_id: str, decision: GroupDecision[Any]) -> None:
        """Append and apply the records, then make the change; answers are sent once all of it is durable.

        Raises LogWriteFailed; nothing has changed then.
        """
        (change,) = decision.then
        if decision.log:
            shard.write(decision.log)
        if change.group is not None:
            shard.state.put(group_id, change.group)
        if change.timers:
            self.set_timers(group_id, change.timers)
        if change.answers:
            self._answer(shard, group_id, change.answers)

    def _answer(self, shard: GroupShard, group_id: str, answers: Sequence[JoinAnswer | SyncAnswer]) -> None:
        newest = shard.log.newest
        ticket = None if newest.is_durable else newest
        for answer in answers:
            if isinstance(answer, JoinAnswer):
                self.joins.wake(group_id, answer.member_id, answer.reply, ticket)
            else:
                self.syncs.wake(group_id, answer.member_id, answer.reply, ticket)

    def answer_all(self, code: ErrorCode, shard: GroupShard | None = None) -> None:
        """Answer every waiting request of this shard, or (None) of all: its member looks up the coordinator again."""
        self.joins.wake_all(JoinReply("", code), shard)
        self.syncs.wake_all(SyncReply(code), shard)

    def set_timers(self, group_id: str, timers: Iterable[SetTimer]) -> None:
        self._runtime.set_timers(self._delays(group_id, timers))

    def _delays(self, group_id: str, timers: Iterable[SetTimer]) -> Iterator[tuple[TimerKey, int | None]]:
        running = self._runtime.timers
        for kind, delay_ms, member_id, epoch, if_absent in timers:
            key = new_key(TimerKey, (kind, group_id, member_id))
            if if_absent and key in running:
                continue
            if kind is REBALANCE:
                self._awaited_epochs[key] = epoch
                if delay_ms is None:
                    del self._awaited_epochs[key]
            yield key, delay_ms

    def awaited_epoch(self, key: TimerKey) -> int | None:
        """The epoch of this rebalance timer: a member that is still in it at its expiry is removed."""
        return self._awaited_epochs.get(key)

    def unloading(self, shard: GroupShard, code: ErrorCode) -> None:
        """Answer the waiting requests of a shard, and release the data kept beside its state."""
        self.answer_all(code, shard)
        for key in [key for key in self._awaited_epochs if self._runtime.find(key.group_id) is shard]:
            del self._awaited_epochs[key]
