"""Periodic tasks of the broker."""

import logging
from collections.abc import Awaitable, Callable

import trio

logger = logging.getLogger(__name__)


async def every(interval_seconds: float, duty: Callable[[], Awaitable[None] | None]) -> None:
    """Call `duty` every `interval_seconds`, for ever. An exception of `duty` ends the broker."""
    while True:
        await trio.sleep(interval_seconds)
        outcome = duty()
        if outcome is not None:
            await outcome
