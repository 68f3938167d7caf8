"""The periodic upkeep of a broker. A failure of one kind of work, or of one log's, ends no other (`UpkeepFailures`)."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.upkeep_failures import RETENTION, UpkeepFailures
from fencepost.broker.ports import Broker

HOUSEKEEPING_SECONDS_MAX = 60.0
SNAPSHOT_CHECK_SECONDS = 10.0


def begin(node: Broker, services: trio.Nursery, take_snapshot: Callable[[], Awaitable[None]]) -> None:
    """Run retention, metadata snapshots and the check for hanging transactions, until `services` end."""
    repeat, config = partial(run_periodically, node.logs.upkeep), node.config
    interval = min(config.log_retention_check_interval_ms / 1000, HOUSEKEEPING_SECONDS_MAX)
    services.start_soon(repeat, RETENTION, interval, partial(_retain, node))
    services.start_soon(repeat, "the metadata snapshot", SNAPSHOT_CHECK_SECONDS, take_snapshot)
    hanging_seconds = config.transaction_hanging_check_interval_ms / 1000
    services.start_soon(repeat, "the check for hanging transactions", hanging_seconds, node.hanging.look)


def _retain(node: Broker) -> Awaitable[None] | None:
    """Retention; not before the logs are open and the coordinator has looked for markers that it could delete."""
    if node.partitions.opener is not None and not node.partitions.opener.is_finished:
        return None
    node.transactions.look_for_markers()
    return housekeep(node.logs, node.clock.now_ms(), node.upkeep_threads)


async def run_periodically(
    upkeep: UpkeepFailures, work: str, interval_seconds: float, task: Callable[[], Awaitable[None] | None]
) -> None:
    """Call `task` every `interval_seconds`, until cancelled. Its failures are those of `work`."""
    while True:
        await trio.sleep(interval_seconds)
        with upkeep.guard(work):
            outcome = task()
            if outcome is not None:
                await outcome
