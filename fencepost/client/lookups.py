"""Serializers and deserializers that wait for a service do so in other threads, before the loop's thread calls them."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from fencepost.client.serializers import DeserializeCall, Header, LooksUp, SerializeCall

Item = tuple[str, Sequence[Header], Any, Any]
"""What a record is to a serializer: its topic, its headers, its key, its value."""


class Lookups:
    """What the serializers or deserializers of keys and values have to look up; false if neither ever does."""

    def __init__(
        self, key: SerializeCall | DeserializeCall | None, value: SerializeCall | DeserializeCall | None
    ) -> None:
        self._key: LooksUp | None = key.lookup if key is not None else None
        self._value: LooksUp | None = value.lookup if value is not None else None

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def missing(self, items: Iterable[Item]) -> list[Callable[[], None]]:
        """What must run in another thread before these are serialized or deserialized; each thing is there once."""
        calls: dict[tuple[LooksUp, Hashable], Callable[[], None]] = {}
        for topic, headers, key, value in items:
            for lookup, one in ((self._key, key), (self._value, value)):
                if lookup is not None and one is not None:
                    unknown = lookup.unknown(topic, headers, one)
                    if unknown is not None and (lookup, unknown) not in calls:
                        calls[lookup, unknown] = partial(lookup.look_up, topic, headers, one)
        return list(calls.values())

    async def look_up(self, items: Iterable[Item]) -> None:
        """Wait until everything was looked up once. A cancelled wait leaves the thread to end by itself."""
        calls = self.missing(items)
        if calls:
            await anyio.to_thread.run_sync(_call_all, calls, abandon_on_cancel=True)


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
