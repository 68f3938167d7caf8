"""An immutable set and an immutable map to which one name can be added in constant time.

Each Join and each Sync of a rebalance creates the group's phase with one name more. Copying a set of a thousand names
takes longer than the rest of such a request, and a rebalance of N members would cost O(N^2). So versions share their
names: the newest version adds to the shared names, and each older one knows how many of them are its own.
Adding to an older version, which the broker never does, makes a copy.
"""

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Set, ValuesView
from itertools import islice
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


class PersistentSet(Set[str]):
    """Names in the order in which they came."""

    __slots__ = ("_count", "_order")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        """Each name's number; names from `_count` on were added after this set was created."""
        self._count = len(self._order)

    def plus(self, name: str) -> "PersistentSet":
        order, count = self._order, self._count
        if order.get(name, count) < count:
            return self
        if len(order) > count:
            order = dict(islice(order.items(), count))
        order[name] = count
        newer = _new_set(PersistentSet)
        newer._order = order
        newer._count = count + 1
        return newer

    def minus(self, name: str) -> "PersistentSet":
        """This set without the name: a copy."""
        return PersistentSet(other for other in self if other != name)

    def __contains__(self, name: object) -> bool:
        return self._order.get(name, self._count) < self._count  # type: ignore[call-overload, no-any-return]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return islice(self._order, self._count)

    def __repr__(self) -> str:
        return f"PersistentSet({list(self)!r})"


_new_set = PersistentSet.__new__


class PersistentMap(Mapping[str, ValueT]):
    """A map whose newest version holds all entries; an older one knows which entry has changed since.

    (Baker's trick: the older map points to the newer one, and not the other way round.)
    """

    __slots__ = ("_data", "_key", "_newer", "_value")

    def __init__(self, data: Mapping[str, ValueT]) -> None:
        self._data: dict[str, ValueT] | None = dict(data)
        """All entries; None if there is a newer map. That one differs at `_key`: here it is `_value`, or missing."""
        self._newer: PersistentMap[ValueT] | None = None
        self._key = ""
        self._value: ValueT | None = None

    def plus(self, key: str, value: ValueT) -> "PersistentMap[ValueT]":
        data = self._data or self._all()
        newer: PersistentMap[ValueT] = PersistentMap.__new__(PersistentMap)
        newer._data, newer._newer, newer._key, newer._value = data, None, "", None
        self._data, self._newer, self._key, self._value = None, newer, key, data.get(key)
        data[key] = value
        return newer

    def _all(self) -> dict[str, ValueT]:
        if self._data is None:
            steps: list[PersistentMap[ValueT]] = []
            at: PersistentMap[ValueT] = self
            while at._data is None:
                steps.append(at)
                assert at._newer is not None
                at = at._newer
            data = dict(at._data)
            for step in reversed(steps):
                if step._value is None:
                    del data[step._key]
                else:
                    data[step._key] = step._value
            self._data, self._newer, self._value = data, None, None
        return self._data

    def get(self, key: str, default: Any = None) -> Any:
        return (self._data or self._all()).get(key, default)

    def __getitem__(self, key: str) -> ValueT:
        return (self._data or self._all())[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __len__(self) -> int:
        return len(self._data or self._all())

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def values(self) -> ValuesView[ValueT]:
        return self._all().values()

    def items(self) -> ItemsView[str, ValueT]:
        return self._all().items()
