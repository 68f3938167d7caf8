"""Requests that wait for other members of their group: a Join for all to join, a Sync for the leader."""

from collections.abc import Callable
from typing import Generic, TypeVar

from fencepost.coordinator.deferred import Deferred
from fencepost.coordinator.group.shards import GroupShard
from fencepost.coordinator.ports import Ticket, coordinator_error
from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")


class ParkedRequest(Deferred[ReplyT]):
    """A request that another member's request completes."""

    __slots__ = ("_key", "_parking", "_request_member_id", "shard")

    def __init__(
        self, shard: GroupShard, parking: "Parking[ReplyT]", key: tuple[str, str], request_member_id: str
    ) -> None:
        """`request_member_id` is the member id in the request; a newcomer's is empty."""
        Deferred.__init__(self)
        self.shard = shard
        self._parking = parking
        self._key = key
        self._request_member_id = request_member_id

    async def settled(self, ticket: Ticket) -> ErrorCode:
        return await self.shard.settled(ticket)

    def refusal(self, error: ErrorCode) -> ReplyT:
        return self._parking.refused(self._request_member_id, coordinator_error(error))

    def abandon(self) -> None:
        """Remove the request, because its connection is closed."""
        self._parking.remove(self._key, self)


class Parking(Generic[ReplyT]):
    """The waiting requests of one kind, one for each group and member."""

    def __init__(self, displaced: ReplyT, refused: Callable[[str, ErrorCode], ReplyT]) -> None:
        """`displaced` is the reply to a request that another one of the same member replaces."""
        self.refused = refused
        """Makes the reply to a request of that member id if the log refuses its records or does not keep them."""
        self._parked: dict[tuple[str, str], ParkedRequest[ReplyT]] = {}
        self._displaced = displaced

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, shard: GroupShard, group_id: str, member_id: str, request_member_id: str) -> ParkedRequest[ReplyT]:
        """Park a request. An earlier request of the same member is answered with `displaced`."""
        key = (group_id, member_id)
        former = self._parked.get(key)
        parked = self._parked[key] = ParkedRequest(shard, self, key, request_member_id)
        if former is not None:
            former.complete(self._displaced)
        return parked

    def wake(self, group_id: str, member_id: str, reply: ReplyT, ticket: Ticket | None) -> None:
        """Answer the member's request, if one waits."""
        parked = self._parked.pop((group_id, member_id), None)
        if parked is not None:
            parked.complete(reply, ticket)

    def remove(self, key: tuple[str, str], parked: ParkedRequest[ReplyT]) -> None:
        if self._parked.get(key) is parked:
            del self._parked[key]

    def wake_all(self, reply: ReplyT, shard: GroupShard | None = None) -> None:
        """Answer every request, of this shard or (None) of all: its client looks up the coordinator again."""
        for key, parked in list(self._parked.items()):
            if shard is None or parked.shard is shard:
                del self._parked[key]
                parked.complete(reply)


async def settled(shard: GroupShard, ticket: Ticket, reply: ReplyT, refused: Callable[[ErrorCode], ReplyT]) -> ReplyT:
    """The reply once `ticket` is durable; `refused` makes the reply if it never becomes durable."""
    error = await shard.settled(ticket)
    return refused(coordinator_error(error)) if error else reply
