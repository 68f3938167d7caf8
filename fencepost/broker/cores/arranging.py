"""Before a start: each partition's directory moves to the core that will lead it, if the number of cores has changed.

    1  the last end was not clean: the cores of the last start run once more, without clients, until every outcome of a
       transaction is known. A marker that alone knows an outcome (decision 0080) is not looked for on other cores.
    2  the file CORE_MOVES is written; directories and rows of checkpoint files move.
    3  core 0 writes the new leaders into the metadata, then deletes the file.

A crash before 3 leaves the file, and the next start repeats 2, for whatever number of cores it has.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.cores.moving import Rearrangement, Wanted, left_logs
from fencepost.broker.log.storage.disk import SYSTEM_DISK, Disk
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.layout import CORE_MOVES, CORE_STARTS, CORES_DIRECTORY, core_directories
from fencepost.broker.log.storage.lock import all_locked
from fencepost.broker.metadata.identity import CORES_VERSION, WrongDirectory, check_format, set_format
from fencepost.broker.metadata.reader import MetadataReader, NoMetadataLog
from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.placement import new_leaders
from fencepost.protocol.topics import TopicPartition

logger = logging.getLogger(__name__)


def had_cores(root: Path) -> bool:
    """Whether several cores ever used a data directory, or were about to."""
    return any((root / name).exists() for name in (CORE_STARTS, CORES_DIRECTORY, CORE_MOVES))


def arrange(config: BrokerConfig, cores: int, finish: Callable[[int], bool], disk: Disk = SYSTEM_DISK) -> bool:
    """Move what has to be moved for a start with this many cores. Returns False if that was interrupted.

    `finish` runs the brokers of the last start, as many as it is called with, until no outcome is in doubt. It returns
    False if it was stopped before. Raises WrongDirectory, DirectoryInUse and OSError.
    """
    root = config.data_directory
    assert root is not None, "cores have files"
    check_format(root, cores=True)
    if not root.is_dir():
        return True
    with all_locked(root, shared=False):
        last = _move(config, root, cores, disk, known=(root / CORE_MOVES).exists())
    if not last:
        return True
    logger.warning(
        "the number of cores changes from %d to %d after an unclean end: first the %d run without clients until all"
        " outcomes of transactions are known; if that does not end, start with --cores %d and look for damaged logs",
        *(last, cores, last, last),
    )
    if not finish(last):
        return False
    with all_locked(root, shared=False):
        _move(config, root, cores, disk, known=True)
    return True


def arranged(root: Path) -> None:
    """The metadata says who leads what by now. Raises OSError."""
    if (root / CORE_MOVES).exists():
        store = FileStore(root)
        store.remove(CORE_MOVES)
        store.sync_entries(store.changes)


def need_in_place(config: BrokerConfig, cores: int, image: MetadataImage) -> None:
    """Raise WrongDirectory if partitions are not where they have to be: `image` is not what was read before the start.

    A damaged metadata log was cut since then.
    """
    root = config.data_directory
    assert root is not None, "cores have files"
    moves = _Arrangement(config, root, cores, image, SYSTEM_DISK).found.moves
    if moves:
        raise WrongDirectory(
            f"{len(moves)} partitions, such as {moves[0][0]}, are not in the directories of the cores that lead them by"
            " the metadata, of which a part was lost: stop the broker and start it again, which moves them"
        )


class _Arrangement:
    """What a start with this many cores has to move, by the metadata."""

    def __init__(self, config: BrokerConfig, root: Path, cores: int, image: MetadataImage, disk: Disk) -> None:
        first = config.node_id
        self.moved = new_leaders(image, range(first, first + cores))
        numbers = range(cores)
        paths = {**{number: root / CORES_DIRECTORY / str(number) for number in numbers}, **core_directories(root, disk)}
        self.stores = {number: FileStore(path, disk=disk) for number, path in paths.items()}
        wanted = {
            tp: Wanted(topic.topic_id, self.stores[self.moved.get(tp, topic.assignment[number].leader) - first])
            for topic in image.topics_by_name.values()
            for number in range(topic.partitions)
            for tp in [TopicPartition(topic.name, number)]
        }
        self.found = Rearrangement(list(self.stores.values()), wanted)


def _move(config: BrokerConfig, root: Path, cores: int, disk: Disk, *, known: bool) -> int:
    """Returns how many cores have to run first, on the directories that they had; 0: all is done."""
    image = _image(root)
    if image is None:
        _set_format(root, cores)
        return 0
    arrangement = _Arrangement(config, root, cores, image, disk)
    found, stores = arrangement.found, arrangement.stores
    if arrangement.moved or found.is_needed:
        if not known and not found.clean:
            last = _cores_of(image, config.node_id)
            before = _Arrangement(config, root, last, image, disk).found
            if before.moves:  # the metadata log was cut, and what is left of it does not know the last moves
                before.run()
            return last
        _set_format(root, cores)
        logger.info("moving partitions to the cores that lead them now cores=%d partitions=%d", cores, len(found.moves))
        stores[0].replace(CORE_MOVES, b"", durable=True)
        found.run()
    _set_format(root, cores)
    _report_left([store for number, store in stores.items() if number >= cores])
    return 0


def _image(root: Path) -> MetadataImage | None:
    try:
        return MetadataReader(root).image()
    except NoMetadataLog:
        return None  # a new directory
    except MetadataCorrupt as error:
        logger.error("the metadata cannot be read, so all partitions stay where they are cause=%s", error)
        return None


def _cores_of(image: MetadataImage, first: int) -> int:
    """How many cores the last start had."""
    leaders = {one.leader for topic in image.topics_by_name.values() for one in topic.assignment}
    return max(image.brokers.keys() | leaders | {first}) - first + 1


def _set_format(root: Path, cores: int) -> None:
    if cores > 1:
        set_format(root, CORES_VERSION)


def _report_left(gone: list[FileStore]) -> None:
    for store in gone:
        if left := left_logs(store):
            logger.warning(
                "the directory of a core that is gone has logs of topics that the metadata does not know; they are"
                " kept: delete those that are no longer needed directory=%s logs=%s",
                store.place,
                ",".join(left),
            )
