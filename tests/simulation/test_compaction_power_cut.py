"""The power fails, the process dies, or a call fails, at every call to the disk during compactions: nothing is lost.

Rules: L2, L4 to L6. After each end the log is opened again, also from its start without snapshots, and compared with
what readers saw before: the table of the last values, the offsets, the producers and their transactions.
"""

import errno
import logging
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.checkpoints import CLEANER_OFFSETS, encode_offsets
from fencepost.broker.log.storage.files import DescriptorPool, FileStore
from fencepost.broker.log.verify.report import Report
from fencepost.broker.verification import verify
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import SimDirectory
from tests.kit.sim_disk import SimDisk
from tests.simulation.power_cut import CHANGES, KILL, PLAIN_FATES, ended
from tests.simulation.world import DATA, DESCRIPTORS
from tests.unit.log.compaction_kit import COMPACT, HOUR_MS, clean, keyed, put, seen, segments_of, transact
from tests.unit.log.kit import NOW_MS, TOPIC_ID, TP, end, send, settle

CONFIG = replace(COMPACT, segment_bytes=600, index_interval_bytes=100)

FATES = ("sampled", *PLAIN_FATES, KILL)


class Truth(NamedTuple):
    """What may not change by a compaction, wherever it ends."""

    table: dict[str, str]
    start: int
    end: int
    stable: int
    sequences: dict[int, tuple[int, int]]
    open_transactions: list[tuple[int, int]]


def opened(disk: SimDisk, config: LogConfig = CONFIG) -> tuple[LogManager, PartitionLog]:
    """The log as a process finds it."""
    store = FileStore(DATA, DescriptorPool(DESCRIPTORS), disk=disk)
    store.make()
    directory = LogManager.over(store, "fsync")
    return directory, directory.create(TP, TOPIC_ID, config)


def truth(log: PartitionLog) -> Truth:
    """What a log holds for readers and writers."""
    return Truth(
        seen(log),
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        {e.producer_id: (e.epoch, e.last_sequence) for e in log.producers.entries()},
        [(txn.producer_id, txn.first_offset) for txn in log.producers.open_transactions()],
    )


def history(disk: SimDisk) -> PartitionLog:
    """A log with a bit of everything: superseded, deleted, aborted, committed over segments, and a transaction open."""
    _, log = opened(disk)
    sequences = {1: 0, 2: 0, 3: 0}
    for turn in range(14):
        put(log, (f"k{turn % 5}", f"v{turn}"), (f"only{turn}", "x"))
        producer = 1 + turn % 2
        transact(log, producer, 0, sequences[producer], (f"t{turn % 3}", f"{producer}.{turn}"))
        sequences[producer] += 1
        if turn % 4 == 3:
            end(log, 1, 0, commit=True)
            end(log, 2, 0, commit=False)
        if turn == 6:
            put(log, ("k1", None), ("only3", None))
    for producer in (1, 2):
        end(log, producer, 0, commit=producer == 1)
    send(log, keyed([("p", "1")], 3, 0, 0))
    put(log, ("p", "2"))
    log.roll(NOW_MS)
    transact(log, 2, 0, sequences[2], ("t1", "open"))
    put(log, ("k0", "last"))
    settle(log)
    return log


def compactions(log: PartitionLog) -> None:
    """Three passes: data goes, horizons are set, what is past them goes."""
    for hours in range(3):
        clean(log, now_ms=NOW_MS + 2 * hours * HOUR_MS, roll=False)


def check(disk: SimDisk, expected: Truth) -> None:
    """The log is what it was, with its snapshots and from zero, and can be compacted once more."""
    bare = disk.kill()
    _, log = opened(disk)
    assert truth(log) == expected
    clean(log, now_ms=NOW_MS + 24 * HOUR_MS, roll=False)
    assert truth(log) == expected
    directory = bare.root.entries["data"].entries[str(TP)]  # type: ignore[union-attr]
    for name in [name for name in directory.entries if name.endswith(".snapshot")]:
        bare.unlink(f"{DATA}/{TP}/{name}")
    _, replayed = opened(bare)
    assert truth(replayed) == expected
    assert not [name for name in directory.entries if name.endswith((".cleaned", ".swap"))]


def moments() -> tuple[Truth, dict[int, SimDisk]]:
    """The disk before each call that changes it, by the number of the call."""
    disk = SimDisk()
    log = history(disk)
    expected, size = truth(log), log.segments.size_bytes
    found: dict[int, SimDisk] = {}

    def freeze(kind: str, path: str) -> None:
        if kind in CHANGES:
            found[disk.io_count] = disk.kill()

    disk.before_io = freeze
    compactions(log)
    disk.before_io = None
    assert truth(log) == expected
    assert log.segments.size_bytes < size * 0.8
    assert len(segments_of(log)) < 8
    return expected, found


def cut(stride: int, fates_each: int) -> int:
    """Cut the power before every so many calls, in so many of the ways; returns how many were checked."""
    expected, disks = moments()
    checked = 0
    for number, io in enumerate(list(disks)[::stride]):
        for turn in range(fates_each):
            fate = FATES[(number + turn) % len(FATES)]
            try:
                check(ended(disks[io], fate, io), expected)
            except Exception as error:
                error.add_note(f"before call {io} of the compactions, {fate}")
                raise
            checked += 1
    return checked


def look(stride: int, fates_each: int, copy: Path) -> int:
    """As `cut`, but instead of starting have a look with `fencepost verify`; how many swaps were found half done."""
    _, disks = moments()
    half_done = 0
    for number, io in enumerate(list(disks)[::stride]):
        for turn in range(fates_each):
            fate = FATES[(number + turn) % len(FATES)]
            shutil.rmtree(copy, ignore_errors=True)
            save(ended(disks[io], fate, io).root, copy)
            # In place of the metadata this says that the log is compacted, and may have gaps.
            (copy / "data" / CLEANER_OFFSETS).write_bytes(encode_offsets({TP: 1}))
            report = Report()
            verify(copy / "data", report)
            assert not report.damaged, f"before call {io} of the compactions, {fate}: {report.findings}"
            half_done += any((copy / "data" / str(TP)).glob("*.log.swap"))
    return half_done


def save(directory: SimDirectory, path: Path) -> None:
    """Put what a simulated disk holds where `verify` can read it."""
    path.mkdir()
    for name, node in directory.entries.items():
        if isinstance(node, SimDirectory):
            save(node, path / name)
        else:
            (path / name).write_bytes(node.data)


def fail(stride: int) -> int:
    """Let every so many calls fail, each in a run of its own; returns how many compactions that ended."""
    expected, disks = moments()
    failed = 0
    for number, io in enumerate(list(disks)[::stride]):
        disk = SimDisk()
        log = history(disk)
        disk.faults.append(Fault(io, io + 1, (errno.EIO, errno.ENOSPC)[number % 2]))
        try:
            compactions(log)
        except OSError:
            failed += 1
        disk.faults.clear()
        assert truth(log) == expected, f"call {io}"
        check(disk.kill(), expected)
    return failed


def test_a_crash_before_any_call_leaves_the_old_or_the_new() -> None:
    """L2, L4: one way to end in turn at each moment; this file as a program tries all ways at all moments."""
    assert cut(stride=11, fates_each=1) > 50


def test_a_crash_before_any_call_is_no_damage(tmp_path: Path) -> None:
    """A swap that the next start finishes is told of by `fencepost verify` as a note, whichever files stand there."""
    assert look(stride=13, fates_each=1, copy=tmp_path / "copy") > 5


def test_a_call_that_fails_ends_the_compaction_and_nothing_else() -> None:
    """L4: whichever call fails, the log goes on as it was, and so does the next start."""
    assert fail(stride=29) > 15


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(cut(1, len(FATES)), "cuts,", fail(1), "faults")
    with tempfile.TemporaryDirectory() as directory:
        print(look(1, len(FATES), Path(directory) / "copy"), "swaps found half done")
