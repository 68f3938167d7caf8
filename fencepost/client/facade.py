"""Methods of a facade: each one is a method of a part, with the part's signature and docstring."""

import functools
import operator
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def delegate(part: str, method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method that calls `method` of the object's `part`, an attribute or an attribute of one."""
    part_of = operator.attrgetter(part)

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **more: P.kwargs) -> R:
        return method(part_of(self), *args, **more)

    return call
