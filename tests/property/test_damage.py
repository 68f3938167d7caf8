"""A flipped bit or a cut anywhere in a data directory: the node starts, no reader is misled, and verify names it.

`FENCEPOST_DAMAGE_CASES` sets how many places are tried in each of the two sweeps (default: a few hundred in all).
"""

import logging
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fencepost.broker.log.logs import LogManager
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.verify.report import Report
from fencepost.broker.verification import verify
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from tests.kit import damage

pytestmark = pytest.mark.long

CASES = int(os.environ.get("FENCEPOST_DAMAGE_CASES", "0"))
TP = TopicPartition(damage.TOPIC, 0)
UNUSED = (".kafka_cleanshutdown",)
"""Files whose contents mean nothing: that they are there is all."""
NOT_COVERED = (*range(8), *range(12, 16))
"""Bytes of a batch that no checksum covers: its base offset and its leader epoch."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A directory closed in order, and one as kill -9 left it."""
    top = tmp_path_factory.mktemp("damage")
    trio.run(damage.make, top / "closed", top / "killed")
    return top / "closed", top / "killed"


@pytest.fixture(scope="module")
def small(made: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the directory that was closed in order one partition and the metadata that knows it: quicker to copy."""
    top = tmp_path_factory.mktemp("small") / "data"
    shutil.copytree(made[0], top)
    for child in top.iterdir():
        if child.is_dir() and child.name not in (str(TP), "__cluster_metadata-0"):
            shutil.rmtree(child)
    return top


@pytest.fixture(autouse=True)
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thousands of lines and flushes that no test here looks at."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def places(directory: Path, under: str, count: int, seed: int) -> list[tuple[Path, int, int]]:
    """File, byte, and which bit to flip (8: cut there). Small files at every few bytes, all files alike."""
    rng = random.Random(seed)
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and under in path.parts[-2] + path.name]
    files = [path for path in files if path.stat().st_size and path.name not in UNUSED]
    found = []
    for number in range(count):
        path = files[number % len(files)]
        found.append((path.relative_to(directory), rng.randrange(path.stat().st_size), rng.randrange(9)))
    return found


def hurt(directory: Path, copy: Path, place: tuple[Path, int, int]) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    file, position, bit = place
    data = bytearray((copy / file).read_bytes())
    if bit == 8:
        del data[position:]
    else:
        data[position] ^= 1 << bit
    (copy / file).write_bytes(data)


def named(copy: Path, file: Path) -> bool:
    report = Report()
    verify(copy, report)
    return report.damaged and any(finding.file == str(file) for finding in report.findings)


def views(directory: Path) -> list[list[tuple[int, bytes | None]] | None]:
    """What readers of either isolation get of the one partition; None for an error or an offline partition."""
    try:
        log = LogManager.over(FileStore(directory), "os").get(TP)
    except CorruptLogFile:
        return [None, None]
    assert log is not None
    return [damage.read(log, level) for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)]


def batch_starts(path: Path) -> list[int]:
    return [position for position, _ in iter_headers(path.read_bytes())]


def uncovered(directory: Path, place: tuple[Path, int, int]) -> bool:
    """Whether the byte is one of those in a batch that no checksum covers: only verify finds such a flip."""
    file, position, bit = place
    if file.suffix != ".log" or bit == 8:
        return False
    start = max(start for start in batch_starts(directory / file) if start <= position)
    return position - start in NOT_COVERED


def test_no_flip_in_a_partition_shows_a_reader_what_is_not_so(small, tmp_path) -> None:
    """I1 to I3 under damage: the right records, an error, or an offline partition; and verify names the file."""
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    good = views(copy)
    assert None not in good
    assert good[0] != good[1], "something was aborted"
    for place in places(small, str(TP), CASES or 120, 1):
        hurt(small, copy, place)
        assert named(copy, place[0]), place
        if not uncovered(small, place):
            assert all(seen in (None, right) for seen, right in zip(views(copy), good, strict=True)), place


def test_every_byte_of_every_aborted_index_is_covered(small, tmp_path) -> None:
    """The one thing that must never happen: a record of an aborted transaction shown to a reader of committed data."""
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    good = views(copy)
    indexes = sorted((small / str(TP)).glob("*.txnindex"))
    assert len(indexes) > 2
    for path in indexes:
        for position in range(path.stat().st_size):
            hurt(small, copy, (path.relative_to(small), position, position % 9))
            assert views(copy) == good, (path.name, position)
        hurt(small, copy, (path.relative_to(small), 0, 8))
        (copy / path.relative_to(small)).unlink()
        assert views(copy) == good, f"{path.name} is missing"


@pytest.mark.parametrize("which", ["closed", "killed"])
async def test_no_flip_keeps_the_node_from_starting(made, tmp_path, which) -> None:
    """Everything a client can ask is answered as before, or with an error; nothing that it can rely on is guessed."""
    directory = made[0] if which == "closed" else made[1]
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    good = await damage.look(copy)
    for place in places(directory, "", CASES or 12, 2 if which == "closed" else 3):
        hurt(directory, copy, place)
        is_named = await trio.to_thread.run_sync(named, copy, place[0])
        if uncovered(directory, place):
            continue
        seen = await damage.look(copy)
        for view in ("committed", "uncommitted", "positions", "transactions"):
            was, now = getattr(good, view), getattr(seen, view)
            wrong = [key for key in was if now[key] not in (None, was[key])]
            if which == "killed" and place[0].suffix == ".log" and not is_named:
                # No checkpoint said that this was durable: it is cut off like the torn end that it may be.
                wrong = [key for key in wrong if "mitted" in view and was[key][: len(now[key])] != now[key]]
            assert not wrong, (place, view, wrong)
        assert seen.cluster_id == good.cluster_id
        if which == "killed" and place[2] == 8 and place[0].parent.name == "__cluster_metadata-0":
            continue  # the end of a log of which no checkpoint speaks yet: nothing shows that there was more
        assert seen.next_producer_id >= good.next_producer_id, "no producer id may come twice"
        if seen.topics != good.topics and (which == "closed" or is_named):
            assert place[0].parent.name == "__cluster_metadata-0", place
            assert list(copy.glob("__cluster_metadata-0.damaged1-stray/*.log")), "the damaged log is kept aside"
