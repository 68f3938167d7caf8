"""Old rows of a log: fetched once, checked, and served from a directory of bounded size."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from fencepost.broker.cluster.engine import Placement, Row, StoreUnavailable
from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.object_store import Objects, open_objects
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.cluster.reading import byte_cache
from fencepost.broker.cluster.reading.byte_cache import AHEAD_BYTES, ByteCache
from fencepost.broker.cluster.reading.stamping import stamp
from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import CorruptLogFile, FileRegion, Piece
from fencepost.protocol.batch_header import iter_headers
from tests.kit.cluster_rows import CHANCE, EPOCH, batch, run_of
from tests.kit.engine_worlds import SimWorld, append, joined

LOG = 7
GATE_SECONDS = 60.0


def content(piece: Piece) -> bytes:
    return os.pread(piece.fd, piece.length, piece.offset) if isinstance(piece, FileRegion) else piece


class Reader:
    """A log that waits."""

    def __init__(self) -> None:
        self.log_id = LOG
        self.arrivals = 0

    def arrived(self) -> None:
        self.arrivals += 1

    def holds(self, row: Row) -> bool:
        return True


class Shop:
    """A cache in a directory, over objects in another one, with the rows of one log."""

    def __init__(self, directory: Path, bytes_max: int = 1 << 20, descriptors: int = 16) -> None:
        (directory / "shared").mkdir()
        self.directory = directory / "cache"
        self.world = SimWorld()
        self.objects: Objects = open_objects(f"file://{directory}/shared", "cluster")
        self.broker = joined(self.world, 1)
        self.ranges = RowObjects(self.objects, ClaimPool(self.broker.engine))
        self.rows: list[Row] = []
        self.expected: list[bytes] = []
        """The stamped bytes of each row."""
        self.pool = DescriptorPool(descriptors)
        self.before_read: Callable[[], None] = lambda: None
        self.store = FileStore(self.directory, self.pool)
        self.cache = ByteCache(self.world.engine, self, self.store, bytes_max, fetches_max=4)
        self.reader = Reader()

    def read(self, place: Placement) -> bytes:
        self.before_read()
        return self.ranges.read(place)

    def put(self, *runs: Sequence[bytes]) -> None:
        """Put one object with these runs."""
        data = [b"".join(run) for run in runs]
        object_id = self.ranges.put(data)
        position = 0
        for run, part in zip(runs, data, strict=True):
            base = self.rows[-1].end if self.rows else 100
            row = run_of(base, run, Placement(object_id, position, len(part)))
            position += len(part)
            stamped = bytearray(part)
            stamp(row, stamped, "")
            self.rows.append(row)
            self.expected.append(bytes(stamped))

    def spoil(self, number: int, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of one row in its object."""
        object_id, position, size = self.rows[number].placement
        (path,) = self.directory.parent.glob(f"shared/cluster/*/{object_id}")
        data = path.read_bytes()
        path.write_bytes(data[:position] + change(data[position : position + size]) + data[position + size :])

    async def get(self, number: int, ahead: int = 0) -> Segment:
        """Read a row as a log does."""
        row = self.rows[number]
        while (segment := self.cache.segment(LOG, row)) is None:
            missing = self.cache.load(self.reader, row, self.rows[number + 1 : number + 1 + ahead])
            with trio.fail_after(60):
                while not missing.arrived:  # noqa: ASYNC110 - the port has no event
                    await trio.sleep(0.001)
        return segment

    async def bytes_of(self, number: int, ahead: int = 0) -> bytes:
        """The bytes of one row, as a log reads them."""
        segment, row = await self.get(number, ahead), self.rows[number]
        part = segment.slice(row.base, row.end, row.placement.size_bytes, True)
        assert part.end_offset == row.end
        return content(segment.piece(part))

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self.cache.loading:  # noqa: ASYNC110
            await trio.sleep(0.001)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads read the rows, so these tests cannot use a clock that jumps: pauses are a tenth as long instead."""
    monkeypatch.setattr(byte_cache, "RETRY_SECONDS", byte_cache.RETRY_SECONDS / 10)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


async def test_a_row_has_its_offsets_and_its_epoch(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(3), batch(1), batch(2)], [batch(5)])
    assert shop.cache.segment(LOG, shop.rows[0]) is None
    assert await shop.bytes_of(0) == shop.expected[0]
    headers = [header for _, header in iter_headers(await shop.bytes_of(0))]
    assert [header.base_offset for header in headers] == [100, 103, 104]
    assert {header.partition_leader_epoch for header in headers} == {EPOCH}
    segment = await shop.get(1)
    assert (segment.base_offset, segment.next_offset) == (106, 111)


async def test_any_part_of_a_row_is_found_and_large_ones_are_regions(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(CHANCE.randint(1, 5), 700) for _ in range(300)])
    segment = await shop.get(0)
    for _ in range(300):
        offset = CHANCE.randrange(segment.base_offset, segment.next_offset)
        part = segment.slice(offset, segment.next_offset, CHANCE.randrange(1, 200_000), True)
        piece = segment.piece(part)
        assert isinstance(piece, FileRegion) == (len(piece) >= 64 * 1024)
        found = [header for _, header in iter_headers(content(piece))]
        assert found[0].base_offset <= offset < found[0].next_offset
        assert found[-1].next_offset == part.end_offset
    assert shop.cache.counters.fetches == 1


async def test_readers_of_one_row_share_one_fetch(shop: Shop, nursery: trio.Nursery) -> None:
    shop.put([batch(1)])
    readers = [Reader() for _ in range(5)]
    missing = {shop.cache.load(reader, shop.rows[0]) for reader in (*readers, *readers)}
    await nursery.start(shop.cache.run)
    await shop.settled()
    assert [one.arrived for one in missing] == [True]
    assert [reader.arrivals for reader in readers] == [1] * 5
    assert shop.objects.counters.gets == 1
    counters = shop.cache.counters
    assert (counters.misses, counters.fetches) == (1, 1)
    assert await shop.bytes_of(0) == shop.expected[0]
    assert counters.hits == 1


async def test_a_miss_fetches_what_follows_and_adjacent_rows_in_one_request(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(1)], [batch(2)], [batch(3)])
    shop.put([batch(4)])
    await shop.get(0, ahead=10)
    await shop.settled()
    counters = shop.cache.counters
    assert (counters.misses, counters.ahead, counters.fetches, shop.objects.counters.gets) == (1, 3, 2, 2)
    assert [await shop.bytes_of(number) for number in range(4)] == shop.expected
    assert (counters.misses, counters.fetches) == (1, 2)
    first, second, third, fourth = [shop.cache.segment(LOG, row) for row in shop.rows]
    assert first is second is third is not fourth
    assert counters.size_bytes == sum(map(len, shop.expected))


async def test_what_is_fetched_ahead_is_bounded(tmp_path: Path, nursery: trio.Nursery) -> None:
    shop = Shop(tmp_path, bytes_max=40_000)
    await nursery.start(shop.cache.run)
    shop.put(*[[batch(1, 2000)] for _ in range(20)])
    await shop.get(0, ahead=20)
    await shop.settled()
    assert shop.cache.counters.ahead == 3  # a quarter of the cache
    assert shop.cache.counters.size_bytes < 10_000 < AHEAD_BYTES


async def test_rows_in_the_database_are_fetched_together(
    shop: Shop, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.cluster.reading.byte_cache.MERGE_SECONDS", 0)
    await nursery.start(shop.cache.run)
    for seq in range(1, 5):
        data = batch(seq)
        row = run_of(0, [data], Placement(0, 0, len(data)))._replace(inline=data)
        (base,) = shop.broker.commit(seq, append(LOG, shop.rows[-1].end if shop.rows else 0, row))
        shop.rows.append(row._replace(base=base, inline=None))
        stamped = bytearray(data)
        stamp(shop.rows[-1], stamped, "")
        shop.expected.append(bytes(stamped))
    await shop.get(0, ahead=3)
    assert [await shop.bytes_of(number) for number in range(4)] == shop.expected
    assert shop.cache.counters.fetches == 1
    gone = run_of(0, [batch(2)], Placement(0, 0, len(batch(2))))
    shop.rows.append(gone)
    with pytest.raises(CorruptLogFile, match="the rows of these offsets are not there any more"):
        await shop.get(4)


async def test_a_merge_that_still_goes_on_is_no_damage(shop: Shop, nursery: trio.Nursery) -> None:
    """The database has a log's new rows before the log: a merge reports all its logs at once."""
    await nursery.start(shop.cache.run)
    row = run_of(100, [batch(1)], Placement(0, 0, len(batch(1))))
    merged_until = trio.current_time() + 2.4 * byte_cache.RETRY_SECONDS
    shop.reader.holds = lambda row: trio.current_time() < merged_until  # type: ignore[method-assign]
    missing = shop.cache.load(shop.reader, row)
    with trio.fail_after(10):
        while not missing.arrived:  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert trio.current_time() >= merged_until
    assert shop.cache.segment(LOG, row) is None, "the reader looks for the new rows"


async def test_the_least_recently_used_rows_are_evicted(tmp_path: Path, nursery: trio.Nursery) -> None:
    shop = Shop(tmp_path, bytes_max=35_000)
    await nursery.start(shop.cache.run)
    shop.put(*[[batch(1, 10_000)] for _ in range(4)])
    for number in (0, 1, 2, 0, 3):
        await shop.get(number)
    assert [shop.cache.segment(LOG, row) is not None for row in shop.rows] == [True, False, True, True]
    assert shop.cache.counters.evictions == 1
    assert shop.cache.counters.size_bytes < 35_000
    with trio.fail_after(10):
        while len(list(shop.directory.iterdir())) > 3:  # noqa: ASYNC110 - a thread deletes it
            await trio.sleep(0.001)


async def test_rows_that_share_a_segment_are_evicted_together(tmp_path: Path, nursery: trio.Nursery) -> None:
    shop = Shop(tmp_path, bytes_max=50_000)
    await nursery.start(shop.cache.run)
    shop.put(*[[batch(1, 5_000)] for _ in range(2)], [batch(1, 45_000)])
    await shop.get(0, ahead=1)
    await shop.get(2)
    assert [shop.cache.segment(LOG, row) is not None for row in shop.rows] == [False, False, True]
    assert shop.cache.counters.size_bytes == len(shop.expected[2])
    assert [await shop.bytes_of(number) for number in range(3)] == shop.expected


async def test_a_row_that_is_evicted_while_it_is_sent_stays_readable(tmp_path: Path, nursery: trio.Nursery) -> None:
    shop = Shop(tmp_path, bytes_max=1)
    await nursery.start(shop.cache.run)
    shop.put([batch(1, 100_000)], [batch(1, 100_000)])
    segment = await shop.get(0)
    region = segment.piece(segment.slice(100, 101, 1, True))
    assert isinstance(region, FileRegion)
    await shop.get(1)
    with trio.fail_after(10):
        while len(list(shop.directory.iterdir())) > 1:  # noqa: ASYNC110
            await trio.sleep(0.001)
    assert content(region) == shop.expected[0]
    assert await shop.bytes_of(0) == shop.expected[0]


async def test_descriptors_are_bounded(tmp_path: Path, nursery: trio.Nursery) -> None:
    shop = Shop(tmp_path, bytes_max=1 << 30, descriptors=16)
    await nursery.start(shop.cache.run)
    for _ in range(200):
        shop.put([batch(1)])
    await shop.get(0, ahead=200)
    await shop.settled()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(200):
        assert await shop.bytes_of(number) == shop.expected[number]
    assert len(os.listdir("/proc/self/fd")) <= before
    assert len(shop.pool) <= 16
    assert len(list(shop.directory.iterdir())) == 200


async def test_damage_is_an_error_of_one_read_and_the_next_one_tries_again(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(1)])
    sound = b""

    def damage(data: bytes) -> bytes:
        nonlocal sound
        sound = data
        return data[:-1] + bytes([data[-1] ^ 1])

    shop.spoil(0, damage)
    for _ in range(2):
        with pytest.raises(CorruptLogFile, match=r"[0-9a-f]{2}/\d+ at byte 0: the batch's CRC-32C does not match"):
            await shop.get(0)
    shop.spoil(0, lambda data: sound)
    assert await shop.bytes_of(0) == shop.expected[0]


async def test_other_batches_of_the_same_size_are_detected(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(2, 40)])
    fewer = next(one for size in range(60, 140) if len(one := batch(1, size)) == shop.rows[0].placement.size_bytes)
    shop.spoil(0, lambda data: fewer)
    with pytest.raises(CorruptLogFile, match="the batches end at offset 101, but the row ends at 102"):
        await shop.get(0)


async def test_one_damaged_row_does_not_hurt_its_neighbours(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(1)], [batch(1)], [batch(1)])
    shop.spoil(1, lambda data: data[:-1] + b"\x99")
    assert await shop.bytes_of(0, ahead=2) == shop.expected[0]
    assert await shop.bytes_of(2) == shop.expected[2]
    with pytest.raises(CorruptLogFile, match="CRC-32C"):
        await shop.get(1)


async def test_a_truncated_object_hurts_only_the_rows_that_it_lost(shop: Shop, nursery: trio.Nursery) -> None:
    await nursery.start(shop.cache.run)
    shop.put([batch(1)], [batch(1)], [batch(1)])
    shop.spoil(2, lambda data: data[:-1])
    assert await shop.bytes_of(0, ahead=2) == shop.expected[0]
    assert await shop.bytes_of(1) == shop.expected[1]
    with pytest.raises(CorruptLogFile, match="but the database names"):
        await shop.get(2)


async def test_a_store_that_is_down_is_asked_again(
    shop: Shop, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([StoreUnavailable("the store is down")] * 3)

    def down() -> None:
        for failure in failures:
            raise failure

    shop.before_read = down
    await nursery.start(shop.cache.run)
    shop.put([batch(1)])
    assert await shop.bytes_of(0) == shop.expected[0]
    assert "rows of a log cannot be read now, so consumers wait: the store is down" in caplog.text


async def test_a_full_disk_is_an_error_of_one_read(
    shop: Shop, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    await nursery.start(shop.cache.run)
    shop.put([batch(1)])
    monkeypatch.setattr(shop.store.disk, "pwrite", full)
    with pytest.raises(OSError, match="No space left on device"):
        await shop.get(0)
    monkeypatch.undo()
    assert await shop.bytes_of(0) == shop.expected[0]
    assert len(list(shop.directory.iterdir())) == 1


async def test_a_slow_store_does_not_hold_the_loop(shop: Shop, nursery: trio.Nursery) -> None:
    gate, opened = threading.Event(), list[bool]()
    shop.before_read = lambda: opened.append(gate.wait(GATE_SECONDS))
    await nursery.start(shop.cache.run)
    shop.put([batch(1)])
    shop.cache.load(shop.reader, shop.rows[0])
    await trio.sleep(0.05)
    gate.set()
    await shop.settled()
    assert opened == [True]
    assert await shop.bytes_of(0) == shop.expected[0]


async def test_the_end_of_the_broker_does_not_wait_for_a_slow_store(shop: Shop) -> None:
    gate, opened = threading.Event(), list[bool]()
    shop.before_read = lambda: opened.append(gate.wait(GATE_SECONDS))
    shop.put([batch(1)])
    async with trio.open_nursery() as nursery:
        await nursery.start(shop.cache.run)
        shop.cache.load(shop.reader, shop.rows[0])
        await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert opened == []
    gate.set()


async def test_the_directory_is_emptied_at_the_start(tmp_path: Path, nursery: trio.Nursery) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "00000000000000000100.log.3").write_bytes(b"of an earlier process")
    shop = Shop(tmp_path)
    await nursery.start(shop.cache.run)
    assert list(shop.directory.iterdir()) == []
