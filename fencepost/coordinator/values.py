"""Dataclasses that only the type checker sees as frozen: creating one costs a sixth of creating a frozen one."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")


def dataclass(*, frozen: bool, slots: bool) -> Callable[[type[ValueT]], type[ValueT]]:
    """As `dataclasses.dataclass`, but at run time nothing stops an assignment to a field of a frozen value.

    The generated `__init__` of a frozen dataclass calls `object.__setattr__` for every field, to get past its own
    guard. Import this one under the `else` of `TYPE_CHECKING`: the type checker then sees the real one and reports
    assignments (docs/decisions/0043-frozen-for-the-type-checker.md).
    """
    return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)
