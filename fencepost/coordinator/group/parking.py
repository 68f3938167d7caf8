"""Requests that wait for other members of their group: a Join for the rest to join, a Sync for the leader."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from fencepost.coordinator.group.shards import GroupShard, coordinator_error
from fencepost.coordinator.ports import LogWriteFailed, Ticket
from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")

AT_ONCE = None
"""In place of a ticket: nothing has to become durable first."""


class Asked(Generic[ReplyT]):
    """A request that waits for the turn of another member, and then perhaps for the disk."""

    __slots__ = ("_asked_as", "_key", "_parking", "_wake", "answered", "shard")

    def __init__(self, shard: GroupShard, parking: "Parking[ReplyT]", key: tuple[str, str], asked_as: str) -> None:
        """`asked_as` is the member's id in the request, which may have been a newcomer's: empty."""
        self.answered: tuple[ReplyT, Ticket | None] | None = None
        """The reply, which may leave once the ticket beside it is durable; None while it waits."""
        self.shard = shard
        self._parking = parking
        self._key = key
        self._asked_as = asked_as
        self._wake: Callable[[], None] | None = None

    def answer(self, reply: ReplyT, ticket: Ticket | None) -> None:
        """Wake it with a reply that may leave once `ticket` is durable; only the first one counts."""
        if self.answered is None:
            self.answered = (reply, ticket)
            if self._wake is not None:
                self._wake()

    def then(self, wake: Callable[[], None]) -> None:
        """Have `wake` called once there is a reply: in the middle of that turn, so it must ask nothing of groups."""
        self._wake = wake
        if self.answered is not None:
            wake()

    def now(self) -> ReplyT | None:
        """The reply, if it is there and may leave at once."""
        if self.answered is None:
            return None
        reply, ticket = self.answered
        return reply if ticket is None or ticket.is_durable else None

    async def settled(self) -> ReplyT:
        """The reply, which is there, once it may leave."""
        assert self.answered is not None
        reply, ticket = self.answered
        if ticket is None:
            return reply
        return await settled(self.shard, ticket, reply, partial(self._parking.refused, self._asked_as))

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self._parking.leave(self._key, self)


class Parking(Generic[ReplyT]):
    """The requests of one kind, by group and member; one each."""

    def __init__(self, displaced: ReplyT, refused: Callable[[str, ErrorCode], ReplyT]) -> None:
        """`displaced` is said to whoever is not waited for any more."""
        self.refused = refused
        """Makes the reply to a request of that member id where its log did not take it, or is lost."""
        self._asked: dict[tuple[str, str], Asked[ReplyT]] = {}
        self._displaced = displaced

    def __len__(self) -> int:
        return len(self._asked)

    def park(self, shard: GroupShard, group_id: str, member_id: str, asked_as: str) -> Asked[ReplyT]:
        """A place for a request. Whoever waited there before gave up, or will not mind being told to try again."""
        key = (group_id, member_id)
        former = self._asked.get(key)
        asked = self._asked[key] = Asked(shard, self, key, asked_as)
        if former is not None:
            former.answer(self._displaced, AT_ONCE)
        return asked

    def wake(self, group_id: str, member_id: str, reply: ReplyT, ticket: Ticket | None) -> None:
        """Answer the member's request, if one waits."""
        asked = self._asked.pop((group_id, member_id), None)
        if asked is not None:
            asked.answer(reply, ticket)

    def leave(self, key: tuple[str, str], asked: Asked[ReplyT]) -> None:
        """The request is no longer waited for (its connection is gone)."""
        if self._asked.get(key) is asked:
            del self._asked[key]

    def wake_all(self, reply: ReplyT, shard: GroupShard | None = None) -> None:
        """Answer every request, of this shard or (None) of all: they have to look for another coordinator."""
        for key, asked in list(self._asked.items()):
            if shard is None or asked.shard is shard:
                del self._asked[key]
                asked.answer(reply, AT_ONCE)


async def settled(shard: GroupShard, ticket: Ticket, reply: ReplyT, refused: Callable[[ErrorCode], ReplyT]) -> ReplyT:
    """The reply once `ticket` is durable; `refused` makes the one where it never will be."""
    error = await shard.settled(ticket)
    return refused(coordinator_error(error)) if error else reply


async def unless_refused(waiting: Coroutine[Any, Any, ReplyT], refused: Callable[[ErrorCode], ReplyT]) -> ReplyT:
    """What is waited for, or `refused` where the log did not take it."""
    try:
        return await waiting
    except LogWriteFailed as failed:
        return refused(coordinator_error(failed.code))
