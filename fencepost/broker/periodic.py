"""The periodic upkeep of a broker. A failure of one kind of work, or of one log's, ends no other (`UpkeepFailures`)."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from fencepost.broker.log.durability.upkeep import in_threads
from fencepost.broker.log.housekeeping import housekeep
from fencepost.broker.log.trimming import deleting_records
from fencepost.broker.log.upkeep_failures import RETENTION, UpkeepFailures
from fencepost.broker.ports import Broker
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition

HOUSEKEEPING_SECONDS_MAX = 60.0
SNAPSHOT_CHECK_SECONDS = 10.0
SHARE_STATES = "the pruning of share states"

logger = logging.getLogger(__name__)


def begin(node: Broker, services: trio.Nursery, take_snapshot: Callable[[], Awaitable[None]]) -> None:
    """Run retention, metadata snapshots and the check for hanging transactions, until `services` end."""
    repeat, config = partial(run_periodically, node.logs.upkeep), node.config
    interval = min(config.log_retention_check_interval_ms / 1000, HOUSEKEEPING_SECONDS_MAX)
    services.start_soon(repeat, RETENTION, interval, partial(_retain, node))
    services.start_soon(repeat, "the metadata snapshot", SNAPSHOT_CHECK_SECONDS, take_snapshot)
    pause_ms = node.share_states.config.share_coordinator_state_topic_prune_interval_ms
    services.start_soon(repeat, SHARE_STATES, pause_ms / 1000, partial(prune_share_states, node))
    hanging_seconds = config.transaction_hanging_check_interval_ms / 1000
    services.start_soon(repeat, "the check for hanging transactions", hanging_seconds, node.hanging.look)


async def prune_share_states(node: Broker) -> None:
    """Delete the records of `__share_group_state` that no share partition needs any more (ShareCoordinatorService).

    The snapshots that stand for them are durable before.
    """
    await node.share_states.write_cold()
    for partition, offset in node.share_states.redundant():
        await trio.lowlevel.checkpoint()
        log = node.partition(TopicPartition(SHARE_STATE_TOPIC, partition))
        if log is None or log.log_start_offset >= offset:
            continue
        await node.flusher.flush_all([log])
        if log.disowned:
            continue
        code, _ = await in_threads(deleting_records(log, offset), node.upkeep_threads)
        if code:
            logger.warning("%s: no records deleted, the next round tries again: %s", log.tp, code.name)


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
