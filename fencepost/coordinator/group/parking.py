"""Requests that wait for other members of their group: a Join for the rest to join, a Sync for the leader."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

ReplyT = TypeVar("ReplyT")


class Event(Protocol):
    """Something that happens once; trio's, in a broker."""

    def set(self) -> None:
        """It happens."""
        ...

    async def wait(self) -> None:
        """Wait until it happened."""
        ...


class Parked(Generic[ReplyT]):
    """One waiting request."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._answer: tuple[ReplyT, int] | None = None

    def answer(self, reply: ReplyT, end_offset: int) -> None:
        """Wake it with a reply that may leave once the log is durable below `end_offset`; only the first one counts."""
        if self._answer is None:
            self._answer = (reply, end_offset)
            self._event.set()

    async def wait(self) -> tuple[ReplyT, int]:
        """Wait for the reply and the offset it depends on."""
        await self._event.wait()
        assert self._answer is not None
        return self._answer


class Parking(Generic[ReplyT]):
    """The requests of one kind, by group and member; one each."""

    def __init__(self, displaced: ReplyT, new_event: Callable[[], Event]) -> None:
        self._parked: dict[tuple[str, str], Parked[ReplyT]] = {}
        self._displaced = displaced
        self._new_event = new_event

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, group_id: str, member_id: str) -> Parked[ReplyT]:
        """A place for a request. Whoever waited there before gave up, or will not mind being told to try again."""
        key = (group_id, member_id)
        former = self._parked.get(key)
        if former is not None:
            former.answer(self._displaced, 0)
        parked: Parked[ReplyT] = Parked(self._new_event())
        self._parked[key] = parked
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
        for parked in self._parked.values():
            parked.answer(reply, 0)
        self._parked.clear()
