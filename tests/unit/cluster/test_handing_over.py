"""A slot that a living broker hands over, while its own coordinator ends a transaction in it."""

from pathlib import Path

import pytest
import trio

from fencepost.broker.cluster.commit.shared_log import SharedLog
from fencepost.broker.cluster.engine import log_id, slot_of
from fencepost.broker.cluster.serving.broker import ClusterBroker
from fencepost.broker.cluster.serving.slot_moves import BUSY_SECONDS, SlotMoves
from fencepost.broker.cluster.serving.stores import Stores
from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.partition import PartitionLog
from fencepost.client import Client
from fencepost.protocol.topics import TopicPartition
from tests.kit.fading_database import FadingDatabase
from tests.kit.shared_store import ObjectsInMemory
from tests.kit.waiting import soon

TP = TopicPartition("orders", 0)
SECONDS = 180


async def stays(moves: SlotMoves) -> bool:
    """Instead of `SlotMoves._step`: the test alone moves slots."""
    return False


async def test_a_marker_that_comes_during_a_compaction_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SettleRule of docs/models.md: the slot waits for a compaction, and the coordinator of this broker appends."""
    database = FadingDatabase()
    stores = Stores("database:", database.connect, lambda cluster_id: ObjectsInMemory(database.world.engine(), {}))
    config = BrokerConfig(
        storage="memory",
        listeners=("PLAINTEXT://127.0.0.1:0",),
        cluster_active_brokers="all",
        cluster_cache_directory=str(tmp_path),
    )
    broker = ClusterBroker(config, stores)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.run)
            await broker.ready.wait()
            log = await _new_log(broker)
            node, cluster = broker.current, broker.member
            assert cluster is not None
            assert isinstance(log.segments, SharedLog)
            number = log_id(log.topic_id, TP.partition)
            monkeypatch.setattr(SlotMoves, "_step", stays)
            compactions = cluster.growth.compactions
            compactions.busy = log.segments
            async with trio.open_nursery() as moving:
                moving.start_soon(SlotMoves(node, cluster, spread=True)._hand_over, slot_of(number))
                await soon(lambda: node.partitions.get(TP) is None)  # clients cannot use it any more

                database.gone = {"commit", "open_session"}
                assert cluster.marker_log(TP, log.topic_id) is log
                log.append_marker(7, 0, True, 0, 2, 0)
                compactions.busy = None
                await trio.sleep(10 * BUSY_SECONDS)
                assert not log.disowned, "its marker is not committed yet"
                database.gone = ()
            assert log.disowned
            assert len(database.world.database.rows[number]) == 1
            broker.stop()


async def _new_log(broker: ClusterBroker) -> PartitionLog:
    endpoint = broker.current.endpoint
    async with Client(f"{endpoint.host}:{endpoint.port}") as kafka, kafka.admin() as admin:
        await admin.create_topics(TP.topic, partitions=1)
    log = broker.current.partitions.get(TP)
    assert log is not None
    return log
