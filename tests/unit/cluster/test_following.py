"""A standby that follows the metadata while the active broker changes how it is stored."""

from pathlib import Path

import trio

from fencepost import Client
from fencepost.broker.cluster.engine import Engine, Placement
from fencepost.broker.cluster.objects.object_store import ObjectMissing
from fencepost.broker.cluster.serving.broker import ClusterBroker
from fencepost.broker.cluster.serving.stores import Stores
from fencepost.broker.config.broker_config import BrokerConfig
from tests.kit.engine_worlds import SimWorld
from tests.kit.shared_store import ObjectsInMemory


class Deleting(ObjectsInMemory):
    """Once, the object is gone when it is read."""

    def __init__(self, engine: Engine, objects: dict[int, bytes]) -> None:
        super().__init__(engine, objects)
        self.due = False

    def read(self, place: Placement) -> bytes:
        if self.due:
            self.due = False
            raise ObjectMissing("objects", place.position, "the object does not exist")
        return super().read(place)


async def test_a_standby_reads_the_metadata_again_if_an_object_was_deleted_meanwhile(tmp_path: Path) -> None:
    """It was paused between the row and its bytes, for longer than garbage collection waits."""
    world, objects = SimWorld(), dict[int, bytes]()
    ways = [Deleting(world.engine(), objects) for _ in range(2)]
    brokers = []
    for number, way in enumerate(ways, 1):
        config = BrokerConfig(
            storage="memory",
            node_id=number,
            listeners=("PLAINTEXT://127.0.0.1:0",),
            cluster_inline_max_bytes=0,
            cluster_inline_bytes_per_second=0,
            cluster_linger_ms=0,
            cluster_cache_directory=str(tmp_path),
        )
        brokers.append(ClusterBroker(config, Stores("database:", world.engine, lambda cluster_id, way=way: way)))  # type: ignore[misc]
    active, standby = brokers
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for broker in brokers:
                nursery.start_soon(broker.run)
                await broker.ready.wait()
            ways[1].due = True
            endpoint = active.current.endpoint
            async with Client(f"{endpoint.host}:{endpoint.port}") as kafka, kafka.admin() as admin:
                await admin.create_topics("orders", partitions=1)
            while ways[1].due or "orders" not in standby.current.metadata.image.topics_by_name:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert standby.member is not None
            assert not standby.member.active
            for broker in reversed(brokers):
                broker.stop()
