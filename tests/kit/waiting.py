"""Waiting for what a broker does a moment later, where nothing says that it is done."""

import time
from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")
LONGEST_S = 100.0


def until(
    ask: Callable[[], T], enough: Callable[[T], object] = bool, what: str = "", *, seconds: float = LONGEST_S
) -> T:
    """The answer, once it is as it must become."""
    deadline = time.monotonic() + seconds
    while not enough(told := ask()):
        assert time.monotonic() < deadline, what or told
        time.sleep(0.02)
    return told


async def soon(holds: Callable[[], object]) -> None:
    """`until` in a test of trio."""
    with trio.fail_after(LONGEST_S):
        while not holds():  # noqa: ASYNC110 - there is no event for it
            await trio.sleep(0.005)
