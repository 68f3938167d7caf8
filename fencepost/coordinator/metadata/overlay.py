"""Changes over a mapping that itself stays unchanged."""

from collections.abc import Mapping
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Overlay(Generic[KeyT, ValueT]):
    """`base` with changes on top; only `result` merges them, so dropping the overlay undoes them."""

    def __init__(self, base: Mapping[KeyT, ValueT]) -> None:
        self._base = base
        self._changed: dict[KeyT, ValueT | None] = {}

    def get(self, key: KeyT) -> ValueT | None:
        """The present value of the key; None if it has none."""
        return self._changed[key] if key in self._changed else self._base.get(key)

    def put(self, key: KeyT, value: ValueT | None) -> None:
        """Set the value of the key; None removes the key."""
        self._changed[key] = value

    def keys(self) -> frozenset[KeyT]:
        """The keys whose value differs from `base`."""
        base = self._base
        return frozenset(key for key, value in self._changed.items() if base.get(key) != value)

    def result(self) -> Mapping[KeyT, ValueT]:
        """The next mapping; `base` itself if nothing changed."""
        if not self._changed:
            return self._base
        merged = dict(self._base)
        for key, value in self._changed.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged
