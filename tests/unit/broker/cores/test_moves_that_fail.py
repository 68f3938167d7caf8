"""A directory on its way that the disk does not move or delete yet: the core serves on, and tries again."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from fencepost.broker.cores.handed_logs import handed_name
from fencepost.broker.cores.live_moves import HandedOver, LiveMoves
from fencepost.broker.log.storage.files import FileStore
from fencepost.coordinator.metadata.image import PartitionImage, TopicImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.disk_faults import Fault
from tests.kit.sim_disk import SimDisk

FIRST, OWN, TARGET = 1, 2, 3
TP, TOPIC_ID = TopicPartition("orders", 0), bytes(range(16))
NAME = handed_name(TP, TOPIC_ID)


class Others:
    """The controller."""

    def __init__(self) -> None:
        self.ended: list[TopicPartition] = []

    async def complete_move(self, one: HandedOver) -> ErrorCode:
        self.ended.append(one.tp)
        return ErrorCode.NONE


class World:
    """Core 1, which has handed over a log: its directory is still in that of core 1."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        for path in ("/cores", "/cores/1", "/cores/2", f"/cores/1/{NAME}"):
            self.disk.mkdir(path, 0o755)
        store = FileStore(Path("/cores/1"), disk=self.disk)
        moving = PartitionImage((OWN, TARGET), (OWN,), adding_replicas=(TARGET,), leader=OWN)
        self.topic = TopicImage(TP.topic, TOPIC_ID, (moving,))
        self.image = SimpleNamespace(topics_by_id={TOPIC_ID: self.topic}, topics_by_name={TP.topic: self.topic})
        node: Any = SimpleNamespace(
            config=SimpleNamespace(node_id=OWN),
            logs=SimpleNamespace(store=store),
            metadata=SimpleNamespace(image=self.image, deleted_topic_ids=()),
            partitions=SimpleNamespace(moving=set()),
            transactions=SimpleNamespace(is_decided=True),
        )
        self.moves, self.others = LiveMoves(node, Path("/"), FIRST), Others()
        self.moves.recover()

    def directories(self, core: int) -> list[str]:
        return [one.name for one in self.disk.listing(f"/cores/{core}")]


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_sync(work: Callable[..., object], *arguments: object) -> object:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)


@pytest.mark.parametrize("kind", ["move", "listing"])
async def test_a_directory_that_cannot_be_moved_on_is_moved_later(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-455: the reassignment goes on. A rename between two directories may need a block of a full disk."""
    world = World()
    world.disk.faults = [Fault(0, kinds=(kind,))]
    nursery.start_soon(world.moves.run, world.others)
    await trio.sleep(5)
    assert (world.others.ended, "cannot be moved yet partition=orders-0" in caplog.text) == ([], True)
    world.disk.faults = []
    await trio.sleep(5)
    assert world.others.ended[0] == TP
    assert (world.directories(1), world.directories(2)) == ([], [NAME])
    nursery.cancel_scope.cancel()


async def test_a_directory_of_a_deleted_topic_is_deleted_later(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    world.image.topics_by_id.clear()
    world.disk.faults = [Fault(0, kinds=("rename", "unlink", "rmdir"))]
    nursery.start_soon(world.moves.run, world.others)
    await trio.sleep(5)
    assert world.directories(1) == [NAME]
    world.disk.faults = []
    await trio.sleep(5)
    assert (world.directories(1), world.others.ended) == ([], [])
    nursery.cancel_scope.cancel()
