"""A log of many small segments on a simulated disk."""

from dataclasses import replace
from pathlib import Path

from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.files import DescriptorPool, FileStore
from tests.kit.sim_disk import SimDisk
from tests.unit.log.kit import SMALL, TOPIC_ID, TP, batch, send, settle

DATA = Path("/data")


TINY = replace(SMALL, segment_bytes=300)


def opened(disk: SimDisk) -> LogManager:
    store = FileStore(DATA, DescriptorPool(), disk=disk)
    store.make()
    return LogManager.over(store)


def written(disk: SimDisk, batches: int = 12) -> tuple[LogManager, PartitionLog]:
    directory = opened(disk)
    log = directory.create(TP, TOPIC_ID, TINY)
    for number in range(batches):
        send(log, batch(producer_id=number, epoch=0, sequence=0))
    settle(log)
    assert len(log.segments) > 3
    return directory, log


def files_of(disk: SimDisk, ending: str) -> list[str]:
    return [name for name in disk.file_names(f"{DATA}/{TP}") if name.endswith(ending)]
