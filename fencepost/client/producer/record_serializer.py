"""Builds a record from a program's arguments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

from fencepost.client.config import ProducerConfig
from fencepost.client.lookups import Lookups
from fencepost.client.producer.accumulator import NewRecord

_LAST_MS = 2**63 - 1
NO_HEADERS: tuple[tuple[str, bytes | None], ...] = ()
Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Pairs of name and value, or a mapping if each name is used once."""


class RecordSerializer:
    """Serializes keys and values, checks headers and timestamps."""

    def __init__(self, config: ProducerConfig, wall_clock: Callable[[], float]) -> None:
        self._key = config.key_serializer
        self._value = config.value_serializer
        self._lookups = Lookups(self._key, self._value)
        self.looks_up = bool(self._lookups)
        """Whether `look_up` must be called before `record`."""
        self._wall_clock = wall_clock
        self.is_plain = self._key is None and self._value is None
        """Whether keys and values are bytes already."""

    async def look_up(self, topic: str, pairs: Iterable[tuple[Any, Any]], headers: Headers) -> None:
        """Let the serializers look up what `record` needs for (key, value) pairs, in another thread.

        Raises TypeError for a wrong header.
        """
        checked = _checked_headers(headers)
        await self._lookups.look_up((topic, checked, key, value) for key, value in pairs)

    def would_wait(self, topic: str, value: Any, key: Any, headers: Headers) -> bool:
        return self.looks_up and bool(self._lookups.missing([(topic, _checked_headers(headers), key, value)]))

    def record(self, topic: str, value: Any, key: Any, headers: Headers, timestamp_ms: int | None) -> NewRecord:
        """The record as it is sent. Raises SerializationError, TypeError, ValueError."""
        if timestamp_ms is None:
            timestamp_ms = int(self._wall_clock() * 1000)
        elif type(timestamp_ms) is not int:
            timestamp_ms = _whole_ms(timestamp_ms)
        if not 0 <= timestamp_ms <= _LAST_MS:
            raise ValueError(f"a timestamp must be from 0 to {_LAST_MS} ms since 1970, not {timestamp_ms}")
        pairs = NO_HEADERS if not headers else _checked_headers(headers)
        if self._key is not None or self._value is not None:
            more = list(pairs)
            if self._key is not None and key is not None:
                key = self._key(topic, more, key)
            if self._value is not None and value is not None:
                value = self._value(topic, more, value)
            pairs = tuple(more) if len(more) == len(pairs) else _checked_headers(more)
        if key is not None and type(key) is not bytes:
            key = _bytes_of(key, "key")
        if value is not None and type(value) is not bytes:
            value = _bytes_of(value, "value")
        return timestamp_ms, key, value, pairs


def headers_size(headers: Iterable[tuple[str, bytes | None]]) -> int:
    return sum(10 + 3 * len(name) + len(content or b"") for name, content in headers)


def _checked_headers(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: list[tuple[str, bytes | None]] = []
    for name, content in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be str, not {type(name).__name__}")
        if not name.isascii():
            name.encode()  # raises UnicodeEncodeError, a ValueError, here and not in the sender
        found.append((name, None if content is None else _bytes_of(content, f"header {name!r}")))
    return tuple(found)


def _whole_ms(timestamp_ms: Any) -> int:
    try:
        return index(timestamp_ms)
    except TypeError:
        raise TypeError(f"a timestamp must be an int (ms since 1970), not {type(timestamp_ms).__name__}") from None


def _bytes_of(value: Any, what: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a record's {what} must be bytes, not {type(value).__name__}: give a serializer for it")
