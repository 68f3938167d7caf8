"""The directory of a log that is handed over from one core to another: under a name of its own, with its offsets in it.

No core opens a directory of such a name. The leader of the partition, by the metadata, takes it, wherever it is.
"""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.checkpoints import (
    CLEANER_OFFSETS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
    encode_partition_metadata,
)
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import DELETED, MOVING, long_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.topics import TopicPartition

MOVED_OFFSETS = "moved-offsets"
"""In the directory of a handed log: its offsets of the checkpoint files, by the names of these files."""
_NAME = re.compile(rf".+\.(?P<number>[0-9]{{1,9}})\.(?P<topic_id>[0-9a-f]{{32}}){MOVING}")


class Handed(NamedTuple):
    """The directory of a handed log."""

    store: FileStore
    name: str


class HandedLogs:
    """Those in the directories of all cores."""

    def __init__(self, stores: Collection[FileStore]) -> None:
        self._stores = stores

    def all(self) -> Iterator[tuple[Handed, bytes, int]]:
        """Each with its topic id and the number of its partition. Raises OSError."""
        for store in self._stores:
            for name in store.children():
                if (match := _NAME.fullmatch(name)) is not None:
                    yield Handed(store, name), bytes.fromhex(match["topic_id"]), int(match["number"])

    def find(self, tp: TopicPartition, topic_id: bytes) -> Handed | None:
        """Raises OSError."""
        name = handed_name(tp, topic_id)
        return next((Handed(store, name) for store in self._stores if name in store.children()), None)


def handed_name(tp: TopicPartition, topic_id: bytes) -> str:
    """The name of its directory: a topic of the same name that is made meanwhile has another one."""
    return long_name(tp, f".{tp.partition}.{topic_id.hex()}{MOVING}")


def hand_over(log: PartitionLog, own: FileStore, cleaned_to: int | None, to: FileStore) -> None:
    """Make a log of this core's directory durable, close it, and move it. The caller calls `sync_names`.

    Raises OSError: then it is where it was.
    """
    if not log.store.sizes():  # never written: without a directory it would look like a lost one
        log.store.replace(PARTITION_METADATA, encode_partition_metadata(log.topic_id), whole=True)
    log.close()
    offsets = {RECOVERY_POINTS: log.recovery_point, LOG_STARTS: log.log_start_offset}
    if cleaned_to is not None:
        offsets[CLEANER_OFFSETS] = cleaned_to
    rows = {TopicPartition(name, 0): offset for name, offset in offsets.items() if offset}
    log.store.replace(MOVED_OFFSETS, encode_offsets(rows, exact=True), durable=True)
    to.adopt_child(own, str(log.tp), handed_name(log.tp, log.topic_id))


def offsets_in(handed: Handed) -> dict[str, int]:
    """The offsets of a handed log, by the names of the checkpoint files. Raises OSError and CorruptLogFile."""
    files = handed.store.child(handed.name)
    data, place = files.load(MOVED_OFFSETS), f"{files.place}/{MOVED_OFFSETS}"
    if data is None:
        raise CorruptLogFile(place, 0, "it is missing")
    return {tp.topic: offset for tp, offset in decode_offsets(data, place).items()}


def take(handed: Handed, own: FileStore, tp: TopicPartition) -> None:
    """Give a handed log its name in the directory of this core, whose checkpoint files have its offsets by now.

    The caller calls `sync_names`, and then `forget_offsets`. Raises OSError.
    """
    own.adopt_child(handed.store, handed.name, str(tp))


def forget_offsets(own: FileStore, tp: TopicPartition) -> None:
    """Of a taken log whose name is durable: before, a power cut could undo the rename, and keep the deletion.

    Raises OSError.
    """
    own.child(str(tp)).remove(MOVED_OFFSETS)


def delete(handed: Handed) -> None:
    """Delete a handed log, whose topic was deleted. Raises OSError."""
    sync_all(handed.store.discard_child(handed.name, handed.name.removesuffix(MOVING) + DELETED))


def sync_names(*stores: FileStore) -> None:
    """Make the names in these directories durable. Raises OSError."""
    for store in stores:
        store.sync_entries(store.changes)
