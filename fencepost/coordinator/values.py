"""Dataclasses that are frozen for the type checker alone: making one costs a sixth of making a truly frozen one."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")


def dataclass(*, frozen: bool, slots: bool) -> Callable[[type[ValueT]], type[ValueT]]:
    """As `dataclasses.dataclass`, but at run time a frozen value can be written to: nothing checks that.

    The generated `__init__` of a frozen dataclass goes through `object.__setattr__` for every field, since it must get
    past its own guard. Import it where the type checker sees the real one, which keeps watch then
    (docs/decisions/0043-frozen-for-the-type-checker.md).
    """
    return dataclasses.dataclass(slots=slots, unsafe_hash=frozen)
