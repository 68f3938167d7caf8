"""A broker of a cluster that has to end does so, whatever its stores do."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from fencepost.broker.cluster.serving.broker import ClusterBroker
from fencepost.broker.cluster.serving.stores import Stores
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.partition import AppendOrigin
from tests.kit.fading_database import FadingDatabase
from tests.kit.growing import growth_of, merge, opened
from tests.kit.shared_store import ObjectsInMemory
from tests.kit.shared_store import Stores as SharedStores
from tests.unit.log.compaction_kit import COMPACT, keyed
from tests.unit.log.kit import NOW_MS

LEASE_MS = 400
SECONDS = 20
LOADING = frozenset({"heads", "renew", "open_session", "release"})


@pytest.mark.parametrize("while_it_loads", [False, True])
async def test_a_broker_stops_although_the_database_disappears_meanwhile(tmp_path: Path, while_it_loads: bool) -> None:
    """As it loads its logs, or gives its slots up: it waits for one lease, in which no other broker may take over."""
    database = FadingDatabase()
    stores = Stores("database:", database.connect, lambda cluster_id: ObjectsInMemory(database.world.engine(), {}))
    listeners = ("PLAINTEXT://127.0.0.1:0",)
    directory = str(tmp_path)
    config = BrokerConfig(
        storage="memory", listeners=listeners, cluster_lease_ms=LEASE_MS, cluster_cache_directory=directory
    )
    broker = ClusterBroker(config, stores)
    database.gone = LOADING if while_it_loads else ()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        if while_it_loads:
            while not database.refused >= {"heads", "open_session"}:  # noqa: ASYNC110
                await trio.sleep(0.01)
        else:
            await broker.ready.wait()
            database.gone = {"release", "open_session"}
        broker.stop()
        with trio.move_on_after(SECONDS):
            while nursery.child_tasks:  # noqa: ASYNC110
                await trio.sleep(0.01)
        is_stopped = not nursery.child_tasks
        database.gone = ()
    assert is_stopped


async def test_a_long_compaction_does_not_delay_the_end() -> None:
    """It runs in a thread, which cannot be cancelled, and here it would take an hour."""
    stores = SharedStores()
    broker = stores.broker(1)
    config = replace(COMPACT, producer_id_expiration_ms=1 << 60, min_cleanable_dirty_ratio=0.0, segment_bytes=1 << 20)
    log = opened(broker, config=config)
    for number in range(400):
        log.append(keyed([(f"key{number}-{n}", "value" * 20) for n in range(4)]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    await trio.to_thread.run_sync(merge, growth_of(broker, log))
    growth = growth_of(broker, log, log_cleaner_io_max_bytes_per_second=100_000.0, log_cleaner_backoff_ms=0)
    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(growth.run)
        while growth.compactions.busy is None:  # noqa: ASYNC110
            await trio.sleep(0.01)
        await trio.sleep(0.2)
        assert growth.compactions.busy is not None
        nursery.cancel_scope.cancel()
    assert time.monotonic() - began < SECONDS / 10
