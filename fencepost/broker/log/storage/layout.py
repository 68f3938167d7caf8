"""The names in a data directory: partitions, renamed logs of deleted topics, copies, unfinished deletions."""

import os
import re
from pathlib import Path

from fencepost.broker.log.storage.disk import SYSTEM_DISK, Disk
from fencepost.broker.log.storage.store import Store
from fencepost.protocol.topics import TopicPartition

DELETED = "-delete"
STRAY = "-stray"
MOVING = "-moving"
"""The log is handed over from one core to another, and no broker opens it under this name."""
NAME_MAX = 255
"""The most characters of a file name."""
NO_FILES = "no-files"
"""A file of this name in a copy: the log that was to be copied had none."""
ACCEPT_LOSS = "accept-loss"
"""A file of this name in a partition's directory: the operator accepts the loss from the first damaged batch on."""
UNCLEANABLE = "uncleanable"
"""A file of this name in a partition's directory: its last compaction failed, and the content says why."""

CORES_DIRECTORY = "cores"
"""In the data directory: the directories of all cores but the first, whose directory is the data directory itself."""
CORE_STARTS = "core-starts"
"""The file of core 0's directory that counts the starts of cores: the epoch of their transaction coordinators."""
CORE_MOVES = "core-moves"
"""A file of core 0's directory: partitions are being moved, and the metadata does not yet say where they are."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ASIDE = re.compile(r"(?P<name>.+)\.damaged(?P<number>[0-9]{1,9})-stray")


def absolute(place: str) -> str:
    """A data directory for clients, absolute as in Kafka (File.getAbsolutePath); the place itself if it is none."""
    return os.path.abspath(place) if os.path.isdir(place) else place


def core_directories(root: Path, disk: Disk = SYSTEM_DISK) -> dict[int, Path]:
    """The directories of the cores by their numbers: that of core 0 is the data directory. Raises OSError."""
    try:
        names = [one.name for one in disk.listing(str(root / CORES_DIRECTORY))]
    except FileNotFoundError:
        names = []
    numbers = sorted(int(name) for name in names if name.isascii() and name.isdigit())
    return {0: root, **{number: root / CORES_DIRECTORY / str(number) for number in numbers if number}}


def may_be_partition(tp: TopicPartition) -> bool:
    """Whether the name is a valid directory name, without a path to another directory."""
    return bool(_TOPIC.fullmatch(tp.topic)) and tp.topic not in (".", "..") and tp.partition >= 0


def partition_of(name: str) -> TopicPartition | None:
    """The partition that a directory of this name belongs to; None for other directories."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isascii() or not partition.isdigit() or not _TOPIC.fullmatch(topic):
        return None
    return TopicPartition(topic, int(partition))


def long_name(tp: TopicPartition, ending: str) -> str:
    """The directory's name with that ending; a very long topic name is shortened, as in Kafka."""
    return str(tp)[: NAME_MAX - len(ending)] + ending


def copy_to_quarantine(directory: Store, name: str) -> str:
    """Copy a damaged log durably. Returns the name of the copy. Raises OSError."""
    aside = f"{name}.damaged{last_quarantine(directory, name) + 1}{STRAY}"
    source, copy = directory.child(name), directory.child(aside)
    files = source.sizes()
    if not files:
        copy.replace(NO_FILES, b"", durable=True)  # the name of the copy counts the losses
    for file in files:
        copy.replace(file, source.load(file) or b"", durable=True)
    return aside


def last_quarantine(directory: Store, name: str) -> int:
    """The number of the last copy by `copy_to_quarantine` that still exists; 0 for none."""
    found = (_ASIDE.fullmatch(child) for child in directory.children())
    return max((int(match["number"]) for match in found if match and match["name"] == name), default=0)
