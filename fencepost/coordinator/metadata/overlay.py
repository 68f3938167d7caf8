"""A mapping that is about to become another: changes over a mapping that stays as it is."""

from collections.abc import Mapping
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Overlay(Generic[KeyT, ValueT]):
    """`base` with changes on top, which are only put together by `result`: throwing it away undoes them."""

    def __init__(self, base: Mapping[KeyT, ValueT]) -> None:
        self._base = base
        self._changed: dict[KeyT, ValueT | None] = {}

    def get(self, key: KeyT) -> ValueT | None:
        """What the key has now; None for nothing."""
        return self._changed[key] if key in self._changed else self._base.get(key)

    def put(self, key: KeyT, value: ValueT | None) -> None:
        """Give the key a value; None takes it away."""
        self._changed[key] = value

    def keys(self) -> frozenset[KeyT]:
        """The keys that have another value than at first."""
        base = self._base
        return frozenset(key for key, value in self._changed.items() if base.get(key) != value)

    def result(self) -> Mapping[KeyT, ValueT]:
        """The next mapping; `base` itself where nothing changed."""
        if not self._changed:
            return self._base
        merged = dict(self._base)
        for key, value in self._changed.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged
