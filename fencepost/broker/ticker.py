"""Periodic tasks of the broker."""

from collections.abc import Awaitable, Callable

import trio

from fencepost.broker.log.upkeep_failures import UpkeepFailures


async def every(
    upkeep: UpkeepFailures, work: str, interval_seconds: float, duty: Callable[[], Awaitable[None] | None]
) -> None:
    """Call `duty` every `interval_seconds`, until cancelled. Its failures are those of `work`, see `UpkeepFailures`."""
    while True:
        await trio.sleep(interval_seconds)
        with upkeep.guard(work):
            outcome = duty()
            if outcome is not None:
                await outcome
