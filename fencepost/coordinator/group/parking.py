"""Requests that wait for other members of their group: a Join for the rest to join, a Sync for the leader."""

from collections.abc import Callable
from typing import Generic, TypeVar

from fencepost.coordinator.deferred import Deferred
from fencepost.coordinator.group.shards import GroupShard
from fencepost.coordinator.ports import Ticket, coordinator_error
from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")


class ParkedRequest(Deferred[ReplyT]):
    """A request that another member's request completes."""

    __slots__ = ("_asked_as", "_key", "_parking", "shard")

    def __init__(self, shard: GroupShard, parking: "Parking[ReplyT]", key: tuple[str, str], asked_as: str) -> None:
        """`asked_as` is the member's id in the request, which may have been a newcomer's: empty."""
        Deferred.__init__(self)
        self.shard = shard
        self._parking = parking
        self._key = key
        self._asked_as = asked_as

    async def settled(self, ticket: Ticket) -> ErrorCode:
        """As the shard says."""
        return await self.shard.settled(ticket)

    def refusal(self, error: ErrorCode) -> ReplyT:
        """The reply where the log did not become durable."""
        return self._parking.refused(self._asked_as, coordinator_error(error))

    def abandon(self) -> None:
        """Its connection is gone."""
        self._parking.leave(self._key, self)


class Parking(Generic[ReplyT]):
    """The requests of one kind, by group and member; one each."""

    def __init__(self, displaced: ReplyT, refused: Callable[[str, ErrorCode], ReplyT]) -> None:
        """`displaced` is the reply to a request whose place another one takes."""
        self.refused = refused
        """Makes the reply to a request of that member id where its log did not take it, or is lost."""
        self._parked: dict[tuple[str, str], ParkedRequest[ReplyT]] = {}
        self._displaced = displaced

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, shard: GroupShard, group_id: str, member_id: str, asked_as: str) -> ParkedRequest[ReplyT]:
        """A place for a request. The request that waited there before has to try again."""
        key = (group_id, member_id)
        former = self._parked.get(key)
        parked = self._parked[key] = ParkedRequest(shard, self, key, asked_as)
        if former is not None:
            former.complete(self._displaced)
        return parked

    def wake(self, group_id: str, member_id: str, reply: ReplyT, ticket: Ticket | None) -> None:
        """Answer the member's request, if one waits."""
        parked = self._parked.pop((group_id, member_id), None)
        if parked is not None:
            parked.complete(reply, ticket)

    def leave(self, key: tuple[str, str], parked: ParkedRequest[ReplyT]) -> None:
        """The request no longer waits."""
        if self._parked.get(key) is parked:
            del self._parked[key]

    def wake_all(self, reply: ReplyT, shard: GroupShard | None = None) -> None:
        """Answer every request, of this shard or (None) of all: they have to look for another coordinator."""
        for key, parked in list(self._parked.items()):
            if shard is None or parked.shard is shard:
                del self._parked[key]
                parked.complete(reply)


async def settled(shard: GroupShard, ticket: Ticket, reply: ReplyT, refused: Callable[[ErrorCode], ReplyT]) -> ReplyT:
    """The reply once `ticket` is durable; `refused` makes the one where it never will be."""
    error = await shard.settled(ticket)
    return refused(coordinator_error(error)) if error else reply
