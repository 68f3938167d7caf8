"""Runs the look-ups of serializers and deserializers in other threads, before the event loop's thread calls them."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from fencepost.client.serializers import DeserializeCall, Header, LooksUp, SerializeCall

Item = tuple[str, Sequence[Header], Any, Any]
"""A record for a serializer: its topic, its headers, its key, its value."""


class Lookups:
    """The look-ups of the serializers or deserializers of keys and values; false if neither has any."""

    def __init__(
        self, key: SerializeCall | DeserializeCall | None, value: SerializeCall | DeserializeCall | None
    ) -> None:
        self._key: LooksUp | None = key.lookup if key is not None else None
        self._value: LooksUp | None = value.lookup if value is not None else None

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def missing(self, items: Iterable[Item]) -> list[Callable[[], None]]:
        """The look-ups that must run in another thread before these items are converted, each once."""
        calls: dict[tuple[LooksUp, Hashable], Callable[[], None]] = {}
        for topic, headers, key, value in items:
            for lookup, one in ((self._key, key), (self._value, value)):
                if lookup is not None and one is not None:
                    unknown = lookup.unknown(topic, headers, one)
                    if unknown is not None and (lookup, unknown) not in calls:
                        calls[lookup, unknown] = partial(lookup.look_up, topic, headers, one)
        return list(calls.values())

    async def look_up(self, items: Iterable[Item]) -> None:
        """Wait until all look-ups have run once. After a cancellation the thread continues to its end."""
        calls = self.missing(items)
        if calls:
            await anyio.to_thread.run_sync(_call_all, calls, abandon_on_cancel=True)


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
