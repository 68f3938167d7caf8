"""A log goes from the directory of one core to that of another, with all that the first one knew of it."""

import shutil
from pathlib import Path

import pytest

from fencepost.broker.cores.handed_logs import (
    MOVED_OFFSETS,
    Handed,
    HandedLogs,
    delete,
    forget_offsets,
    hand_over,
    handed_name,
    offsets_in,
    sync_names,
    take,
)
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.checkpoints import CLEANER_OFFSETS, LOG_STARTS, RECOVERY_POINTS, load_offsets
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.topics import TopicPartition
from tests.unit.log.kit import batch, send, settle, transact

TOPIC_ID = bytes(range(16))
LONG = TopicPartition("n" * 249, 12)
TP = TopicPartition("orders", 3)


class Core:
    """The logs of a core."""

    def __init__(self, path: Path) -> None:
        self.logs = LogManager.open(path)
        assert isinstance(self.logs.store, FileStore)
        self.store = self.logs.store

    def log(self, tp: TopicPartition = TP) -> PartitionLog:
        return self.logs.create(tp, TOPIC_ID, LogConfig())

    def give(self, log: PartitionLog, to: "Core") -> Handed:
        hand_over(log, self.store, self.logs.kept.cleaned_to.get(log.tp), to.store)
        self.logs.release(log.tp, "moved")
        self.logs.kept.forget(log.tp)
        sync_names(to.store, self.store)
        return Handed(to.store, handed_name(log.tp, TOPIC_ID))

    def receive(self, found: Handed, tp: TopicPartition = TP) -> PartitionLog:
        sync_all(self.logs.kept.adopt(tp, TOPIC_ID, offsets_in(found)))
        take(found, self.store, tp)
        sync_names(found.store, self.store)
        forget_offsets(self.store, tp)
        self.logs.add({tp: self.logs.kept.log_starts.get(tp, 0)})
        return self.log(tp)


@pytest.fixture
def cores(tmp_path: Path) -> tuple[Core, Core]:
    return Core(tmp_path / "0"), Core(tmp_path / "1")


def test_offsets_producers_and_open_transactions_go_with_the_log(cores: tuple[Core, Core]) -> None:
    here, there = cores
    log = here.log()
    for _ in range(5):
        send(log, batch(2))
    transact(log, 7, 0, 0)
    settle(log)
    log.raise_log_start(4)
    here.logs.kept.note_cleaned(TP, 2)
    before = log.log_end_offset, log.last_stable_offset, log.log_start_offset, list(log.producers.entries())
    found = here.give(log, there)
    assert TP not in here.logs.partitions()
    assert TP not in there.logs.partitions()
    assert offsets_in(found) == {RECOVERY_POINTS: 11, LOG_STARTS: 4, CLEANER_OFFSETS: 2}
    taken = there.receive(found)
    assert (taken.log_end_offset, taken.last_stable_offset, taken.log_start_offset) == before[:3]
    assert list(taken.producers.entries()) == before[3]
    assert there.logs.kept.cleaned_to[TP] == 2
    assert taken.store.load(MOVED_OFFSETS) is None
    send(taken, batch(1))
    assert taken.log_end_offset == 12


def test_a_log_comes_back_with_newer_offsets_than_it_had(cores: tuple[Core, Core]) -> None:
    """What the checkpoint files of the first core say is from before."""
    here, there = cores
    log = here.log()
    send(log, batch(3))
    settle(log)
    taken = there.receive(here.give(log, there))
    send(taken, batch(4))
    settle(taken)
    taken.raise_log_start(5)
    again = here.receive(there.give(taken, here))
    assert (again.log_start_offset, again.recovery_point, again.log_end_offset) == (5, 7, 7)
    here.logs.close()
    there.logs.close()
    assert Core(Path(here.store.place)).log().log_start_offset == 5
    assert TP not in Core(Path(there.store.place)).logs.partitions()


@pytest.mark.parametrize("tp", [TP, LONG])
def test_a_log_without_records_has_a_directory_on_its_way(cores: tuple[Core, Core], tp: TopicPartition) -> None:
    """Otherwise a lost one would look like it."""
    here, there = cores
    found = here.give(here.log(tp), there)
    handed = HandedLogs([here.store, there.store])
    assert handed.find(tp, TOPIC_ID) == found
    assert handed.find(tp, bytes(16)) is None
    assert list(handed.all()) == [(found, TOPIC_ID, tp.partition)]
    assert there.receive(found, tp).log_end_offset == 0
    assert list(handed.all()) == []


def test_a_log_that_cannot_be_moved_is_used_on(cores: tuple[Core, Core]) -> None:
    """Such as over two file systems."""
    here, there = cores
    log = here.log()
    send(log, batch(3))
    shutil.rmtree(there.store.place)
    with pytest.raises(FileNotFoundError):
        hand_over(log, here.store, None, there.store)
    send(log, batch(2))
    log.close()
    assert Core.log(here).log_end_offset == 5


def test_damaged_offsets_are_reported(cores: tuple[Core, Core]) -> None:
    here, there = cores
    log = here.log()
    send(log, batch(3))
    found = here.give(log, there)
    files = found.store.child(found.name)
    data = files.load(MOVED_OFFSETS)
    assert data is not None
    files.replace(MOVED_OFFSETS, data.replace(b" 3\n", b" 2\n", 1))
    with pytest.raises(CorruptLogFile):
        offsets_in(found)
    files.remove(MOVED_OFFSETS)
    with pytest.raises(CorruptLogFile):
        offsets_in(found)


def test_the_log_of_a_deleted_topic_is_deleted_on_its_way(cores: tuple[Core, Core]) -> None:
    here, there = cores
    log = here.log()
    send(log, batch(3))
    delete(here.give(log, there))
    assert not [*here.store.children(), *there.store.children()]


def test_the_offset_of_the_cleaner_is_written_where_the_cleaner_writes(cores: tuple[Core, Core]) -> None:
    """Both replace the same file: a thread that did so at the same time would mix the two."""
    _, there = cores
    there.logs.kept.adopt(TP, TOPIC_ID, {CLEANER_OFFSETS: 2})
    assert load_offsets(there.store, CLEANER_OFFSETS) == {TP: 2}
