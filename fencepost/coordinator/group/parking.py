"""Requests that wait for other members of their group: a Join for the rest to join, a Sync for the leader."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from fencepost.coordinator.group.shards import GroupShard, coordinator_error
from fencepost.coordinator.ports import LogWriteFailed
from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")


class Parked(Generic[ReplyT]):
    """One waiting request."""

    __slots__ = ("_wake", "answered")

    def __init__(self) -> None:
        self.answered: tuple[ReplyT, int] | None = None
        """The reply, which may leave once the log is durable below the offset beside it; None while it waits."""
        self._wake: Callable[[], None] | None = None

    def answer(self, reply: ReplyT, end_offset: int) -> None:
        """Wake it with a reply that may leave once the log is durable below `end_offset`; only the first one counts."""
        if self.answered is None:
            self.answered = (reply, end_offset)
            if self._wake is not None:
                self._wake()

    def then(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when it is answered."""
        self._wake = wake
        if self.answered is not None:
            wake()


class Parking(Generic[ReplyT]):
    """The requests of one kind, by group and member; one each."""

    def __init__(self, displaced: ReplyT) -> None:
        self._parked: dict[tuple[str, str], Parked[ReplyT]] = {}
        self._displaced = displaced

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, group_id: str, member_id: str) -> Parked[ReplyT]:
        """A place for a request. Whoever waited there before gave up, or will not mind being told to try again."""
        key = (group_id, member_id)
        former = self._parked.get(key)
        parked: Parked[ReplyT] = Parked()
        self._parked[key] = parked
        if former is not None:
            former.answer(self._displaced, 0)
        return parked

    def wake(self, group_id: str, member_id: str, reply: ReplyT, end_offset: int) -> None:
        """Answer the member's request, if one waits."""
        parked = self._parked.pop((group_id, member_id), None)
        if parked is not None:
            parked.answer(reply, end_offset)

    def leave(self, group_id: str, member_id: str, parked: Parked[ReplyT]) -> None:
        """The request is no longer waited for (its connection is gone)."""
        if self._parked.get((group_id, member_id)) is parked:
            del self._parked[group_id, member_id]

    def wake_all(self, reply: ReplyT) -> None:
        """Answer everybody, for the broker is about to stop."""
        waiting, self._parked = self._parked, {}
        for parked in waiting.values():
            parked.answer(reply, 0)


class Asked(Generic[ReplyT]):
    """A request that waits for the turn of another member, and then perhaps for the disk."""

    __slots__ = ("_group_id", "_member_id", "_parked", "_parking", "_refused", "_shard")

    def __init__(
        self,
        shard: GroupShard,
        parking: Parking[ReplyT],
        group_id: str,
        member_id: str,
        refused: Callable[[ErrorCode], ReplyT],
    ) -> None:
        """Parks it. `refused` makes the reply where its log is lost."""
        self._shard = shard
        self._parking = parking
        self._group_id = group_id
        self._member_id = member_id
        self._refused = refused
        self._parked = parking.park(group_id, member_id)

    def then(self, wake: Callable[[], None]) -> None:
        """Have `wake` called once there is a reply: in the middle of that turn, so it must ask nothing of groups."""
        self._parked.then(wake)

    @property
    def is_answered(self) -> bool:
        """Whether there is a reply, which may have to wait for the disk."""
        return self._parked.answered is not None

    def now(self) -> ReplyT | None:
        """The reply, if it is there and may leave at once."""
        answered = self._parked.answered
        return answered[0] if answered is not None and self._shard.is_settled(answered[1]) else None

    async def settled(self) -> ReplyT:
        """The reply, which is there, once it may leave."""
        assert self._parked.answered is not None
        reply, end_offset = self._parked.answered
        return await settled(self._shard, end_offset, reply, self._refused)

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self._parking.leave(self._group_id, self._member_id, self._parked)


async def settled(shard: GroupShard, end_offset: int, reply: ReplyT, refused: Callable[[ErrorCode], ReplyT]) -> ReplyT:
    """The reply once the log is durable below `end_offset`; `refused` makes the one where it never will be."""
    error = await shard.settled(end_offset)
    return refused(coordinator_error(error)) if error else reply


async def unless_refused(waiting: Coroutine[Any, Any, ReplyT], refused: Callable[[ErrorCode], ReplyT]) -> ReplyT:
    """What is waited for, or `refused` where the log did not take it."""
    try:
        return await waiting
    except LogWriteFailed as failed:
        return refused(coordinator_error(failed.code))
