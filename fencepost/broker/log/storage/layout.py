"""What stands where in a data directory: partitions, what was set aside, what was deleted half."""

import re

from fencepost.broker.log.storage.store import Store
from fencepost.protocol.topics import TopicPartition

DELETED = "-delete"
STRAY = "-stray"
NAME_MAX = 255
"""Characters that a file system takes for a name."""
ACCEPT_LOSS = "accept-loss"
"""A file of this name in a partition's directory: the operator gives up what follows the first damaged batch."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ASIDE = re.compile(r"(?P<name>.+)\.damaged(?P<number>[0-9]{1,9})-stray")


def may_be_partition(tp: TopicPartition) -> bool:
    """Whether the name can be that of a directory: it leads nowhere else."""
    return bool(_TOPIC.fullmatch(tp.topic)) and tp.topic not in (".", "..") and tp.partition >= 0


def partition_of(name: str) -> TopicPartition | None:
    """The partition that a directory of this name belongs to; None for other directories."""
    topic, dash, partition = name.rpartition("-")
    if not dash or not partition.isascii() or not partition.isdigit() or not _TOPIC.fullmatch(topic):
        return None
    return TopicPartition(topic, int(partition))


def long_name(tp: TopicPartition, ending: str) -> str:
    """A directory's name with that ending: of a topic with a very long name, as Kafka does, the beginning only."""
    return str(tp)[: NAME_MAX - len(ending)] + ending


def copy_aside(directory: Store, name: str) -> str:
    """Copy a damaged log whole and durable; returns the name of the copy. Raises OSError."""
    aside = f"{name}.damaged{last_aside(directory, name) + 1}{STRAY}"
    source, copy = directory.child(name), directory.child(aside)
    for file in source.sizes():
        copy.replace(file, source.load(file) or b"", durable=True)
    return aside


def last_aside(directory: Store, name: str) -> int:
    """The number of the last copy that `copy_aside` made of a log and nobody deleted; 0 for none."""
    found = (_ASIDE.fullmatch(child) for child in directory.children())
    return max((int(match["number"]) for match in found if match and match["name"] == name), default=0)
