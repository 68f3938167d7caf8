"""Sets and maps that are never changed, and yet cost the same for one more name however many names there are.

Each Join and each Sync of a rebalance makes the group's phase anew with one name more. Copying a set of a thousand
names took longer than all else that such a request needs. So a collection shares its names with those it came from: the
newest of them may add to what they share, for the older ones know how much of it is theirs. Whoever goes on from an
older one, which nobody does in the broker, gets a copy.
"""

from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, Set, ValuesView
from itertools import islice
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")


class Grown(Set[str]):
    """Names in the order in which they came."""

    __slots__ = ("_count", "_order")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        """Each name's place; those from `_count` on came after this set was made."""
        self._count = len(self._order)

    def plus(self, name: str) -> "Grown":
        """This set with one more name."""
        order, count = self._order, self._count
        if order.get(name, count) < count:
            return self
        if len(order) > count:
            order = dict(islice(order.items(), count))
        order[name] = count
        grown = _new_grown(Grown)
        grown._order = order
        grown._count = count + 1
        return grown

    def __contains__(self, name: object) -> bool:
        return self._order.get(name, self._count) < self._count  # type: ignore[call-overload, no-any-return]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return islice(self._order, self._count)

    def __repr__(self) -> str:
        return f"Grown({list(self)!r})"


_new_grown = Grown.__new__


class Without(Set[str]):
    """All names but those that are gone, all of which are among them."""

    __slots__ = ("_all", "_gone")

    def __init__(self, names: Collection[str], gone: Grown) -> None:
        self._all = names
        self._gone = gone

    def minus(self, name: str) -> "Without":
        """This set without one more name."""
        return Without(self._all, self._gone.plus(name)) if name in self._all else self

    def __contains__(self, name: object) -> bool:
        return name in self._all and name not in self._gone

    def __len__(self) -> int:
        return len(self._all) - self._gone._count

    def __iter__(self) -> Iterator[str]:
        gone = self._gone
        return (name for name in self._all if name not in gone)

    @classmethod
    def _from_iterable(cls, names: Iterable[Any]) -> frozenset[Any]:
        """What the operators of a Set make their results of."""
        return frozenset(names)

    def __repr__(self) -> str:
        return f"Without({set(self)!r})"


class Renewed(Mapping[str, ValueT]):
    """A map, of which the newest holds all that there is; an older one knows what has become another since.

    (Baker's trick: the older map points to the newer one, which nobody needs to keep alive for it.)
    """

    __slots__ = ("_data", "_key", "_newer", "_value")

    def __init__(self, data: Mapping[str, ValueT]) -> None:
        self._data: dict[str, ValueT] | None = dict(data)
        """Everything; None where there is a newer map, which differs by `_key`: here it is `_value`, or missing."""
        self._newer: Renewed[ValueT] | None = None
        self._key = ""
        self._value: ValueT | None = None

    def plus(self, key: str, value: ValueT) -> "Renewed[ValueT]":
        """This map with one more entry, or with another one in its place."""
        data = self._all()
        newer: Renewed[ValueT] = Renewed.__new__(Renewed)
        newer._data, newer._newer, newer._key, newer._value = data, None, "", None
        self._data, self._newer, self._key, self._value = None, newer, key, data.get(key)
        data[key] = value
        return newer

    def _all(self) -> dict[str, ValueT]:
        if self._data is None:
            steps: list[Renewed[ValueT]] = []
            at: Renewed[ValueT] = self
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
        """The value, or `default`."""
        return self._all().get(key, default)

    def __getitem__(self, key: str) -> ValueT:
        return self._all()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all()

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def keys(self) -> KeysView[str]:
        """As of a dict."""
        return self._all().keys()

    def values(self) -> ValuesView[ValueT]:
        """As of a dict."""
        return self._all().values()

    def items(self) -> ItemsView[str, ValueT]:
        """As of a dict."""
        return self._all().items()
