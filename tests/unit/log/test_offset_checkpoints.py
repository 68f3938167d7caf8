"""The checkpoint files name topic ids: their entries never count for another topic of the same name."""

import pytest

from fencepost.broker.log.offset_checkpoints import ALL_DIRTY
from fencepost.broker.log.storage.checkpoints import decode_offsets, decode_owners, encode_offsets
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.protocol.topics import TopicPartition
from tests.kit.trimming import delete_records
from tests.unit.log.compaction_kit import COMPACT, put, range_of
from tests.unit.log.kit import SMALL, TOPIC_ID, TP, batch, crashed, directory_over, headers, send

NEW_ID = TOPIC_ID[::-1]
FILES = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "log-start-offset-checkpoint.twin"
CLEANER = "cleaner-offset-checkpoint"


def written(count: int = 8) -> MemoryStore:
    """A directory with one log, whose records below 5 are deleted, and which is compacted up to 4."""
    store = MemoryStore()
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, COMPACT)
    for number in range(count):
        put(log, ("k", str(number)))
    delete_records(log, 5)
    directory.kept.note_cleaned(log.tp, 4)
    directory.write_checkpoints()
    return store


def without_ids(store: MemoryStore) -> MemoryStore:
    """As Kafka and older versions write the files."""
    for name in (*FILES, CLEANER):
        store.replace(name, encode_offsets(decode_offsets(store.load(name), name)))
    return store


@pytest.mark.parametrize("name", [*FILES[:2], CLEANER])
def test_entries_of_a_deleted_topic_do_not_count_for_the_new_one(name: str) -> None:
    """However they came back: with a directory that was restored, or by a version that keeps them by name."""
    store = written()
    left = {file: store.load(file) or b"" for file in (*FILES, CLEANER)}
    directory = directory_over(crashed(store))
    directory.delete(TP)
    log = directory.create(TP, NEW_ID, SMALL)
    for _ in range(2):
        send(log, batch())
    store = crashed(directory.store)
    for file in {name, f"{name}.twin"} & left.keys():
        store.replace(file, left[file])
    again = directory_over(store)
    log = again.create(TP, NEW_ID, COMPACT)
    assert [header.base_offset for header in headers(log)] == [0, 1]
    assert (log.log_start_offset, again.kept.cleaned_to.get(TP, 0)) == (0, 0)


def test_files_without_topic_ids_count_but_for_the_cleaners() -> None:
    """An upgrade keeps what DeleteRecords hid. The cleaner's offsets may be those of a deleted topic."""
    store = crashed(without_ids(written()))
    directory = directory_over(store)
    log = directory.create(TP, TOPIC_ID, COMPACT)
    assert (log.log_start_offset, directory.kept.cleaned_to.get(TP, 0)) == (5, ALL_DIRTY)
    assert range_of(log, ALL_DIRTY).first_dirty_offset == 5
    directory.write_checkpoints()
    for name in FILES:
        assert decode_owners(store.load(name), name) == {TP: TOPIC_ID}


def test_an_older_version_reads_the_files() -> None:
    """It stops at the first checksum, and its rows are as before."""
    offsets = {TP: 7, TopicPartition("other", 11): 9}
    data = encode_offsets(offsets, {TP: TOPIC_ID, TopicPartition("other", 11): NEW_ID})
    before = encode_offsets(offsets)
    rows, old_rows = data.splitlines()[2:], before.splitlines()[2:]
    assert rows[: len(old_rows)] == old_rows
    assert [len(row.split(b" ")) for row in rows] == [3] * 6
    assert decode_offsets(data, "x") == offsets


def test_a_changed_topic_id_is_damage_and_the_offsets_still_count() -> None:
    """The ids are then those of the directories."""
    store = written()
    for name in FILES:
        data = bytearray(store.load(name) or b"")
        data[data.rindex(b"#events#") - 3] ^= 1
        with pytest.raises(CorruptLogFile):
            decode_owners(bytes(data), name)
        store.replace(name, bytes(data))
    log = directory_over(crashed(store)).create(TP, TOPIC_ID, COMPACT)
    assert log.log_start_offset == 5
