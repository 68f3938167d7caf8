"""An index is searched by pages of its file that are kept in memory: they never say what the file no longer does."""

import random

from fencepost.broker.log.storage.indexes import OffsetIndex, TimeIndex
from fencepost.broker.log.storage.memory import MemoryFile, MemoryStore


class CountingFile(MemoryFile):
    """A file that counts how often it is read."""

    reads = 0

    def read(self, position: int, length: int) -> bytes:
        self.reads += 1
        return super().read(position, length)


def test_entries_are_found_whatever_was_added_flushed_and_cut_in_between() -> None:
    """Row L1: what the index says of an offset is what was noted for it last."""
    chance = random.Random(11)
    index = OffsetIndex(MemoryStore().open("00000000000000000000.index"))
    noted: list[tuple[int, int]] = []
    for _ in range(60):
        for _ in range(chance.randrange(400)):
            last = noted[-1] if noted else (-1, -1)
            noted.append((last[0] + chance.randrange(1, 9), last[1] + chance.randrange(1, 9)))
            index.add(*noted[-1])
        if chance.random() < 0.3:
            assert index.flush()
        if chance.random() < 0.3:
            del noted[chance.randrange(len(noted) + 1) :]
            index.truncate(len(noted))
        assert len(index) == len(noted)
        for number in chance.sample(range(len(noted)), min(20, len(noted))):
            assert index[number] == noted[number]
        for offset in (chance.randrange(20_000) for _ in range(20)):
            assert index.position_before(offset) == max((at for known, at in noted if known <= offset), default=0)
            assert index.batch_before(offset) == max((at for _, at in noted if at <= offset), default=0)
        assert list(index.entries()) == noted


def test_entries_that_do_not_divide_a_page_are_never_cut_by_its_end() -> None:
    index = TimeIndex(MemoryStore().open("00000000000000000000.timeindex"))
    for number in range(2000):
        index.note(number * 3, number + 1)
    assert index.flush()
    assert [index[number] for number in range(2000)] == [(number * 3, number + 1) for number in range(2000)]
    assert index.last == (5997, 2000)


def test_a_reader_in_sequence_hardly_reads_a_page_of_the_index_twice() -> None:
    """Each search begins where the last one ended, but looks on both sides of that: a page's end costs a few reads."""
    file = CountingFile("00000000000000000000.index")
    index = OffsetIndex(file)
    noted = [(number * 10 + 9, number * 5000) for number in range(20_000)]
    for entry in noted:
        index.add(*entry)
    assert index.flush()
    pages = index.size_bytes // 4096 + 1
    for step in (5000, 333_333):
        file.reads = 0
        for position in range(0, noted[-1][1], step):
            assert index.batch_before(position) == position // 5000 * 5000
        assert file.reads <= 5 * pages
    for back in range(noted[-1][1], 0, -77_777):
        assert index.batch_before(back) == back // 5000 * 5000
        assert index.batch_before(back // 2) == back // 2 // 5000 * 5000
