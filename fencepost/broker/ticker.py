"""The broker's slow clock: one task that looks at all connections and does small periodic duties."""

import logging
from collections.abc import Awaitable, Callable

import trio

logger = logging.getLogger(__name__)


async def every(interval_seconds: float, duty: Callable[[], Awaitable[None] | None]) -> None:
    """Call `duty` each `interval_seconds`, for ever. A duty that raises ends the broker: it guards an invariant."""
    while True:
        await trio.sleep(interval_seconds)
        outcome = duty()
        if outcome is not None:
            await outcome
