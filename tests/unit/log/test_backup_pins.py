"""Links to the files of a log while a compaction replaces its segments (swap.py has the order of its steps)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.broker.log.backup import pins
from fencepost.broker.log.backup.pins import PinnedLog, uncovered
from fencepost.protocol.topics import TopicPartition

OLD = {0: b"zero", 10: b"ten", 20: b"twenty", 30: b"active"}


def name(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


@pytest.fixture
def log(tmp_path: Path) -> PinnedLog:
    source = tmp_path / "t-0"
    source.mkdir()
    for base, content in OLD.items():
        (source / name(base)).write_bytes(content)
        (source / name(base, ".index")).write_bytes(content)
    return PinnedLog(source, tmp_path / "pinned" / "t-0")


def swap(source: Path) -> Iterator[None]:
    """The segments 0 to 20 become one, step by step; each `yield` is a moment at which the files may be listed."""
    (source / name(0, ".log.swap")).write_bytes(b"merged")
    (source / name(0, ".index.swap")).write_bytes(b"merged")
    yield
    for base in (0, 10, 20):
        (source / name(base)).rename(source / name(base, ".log.deleted"))
        yield
        (source / name(base, ".index")).unlink()
    (source / name(0, ".index.swap")).rename(source / name(0, ".index"))
    yield
    (source / name(0, ".log.swap")).rename(source / name(0))
    yield


def pinned(log: PinnedLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in log.path.iterdir()}


def before_each(monkeypatch: pytest.MonkeyPatch, step: Callable[[], object], skipped: int) -> None:
    """Take a step before each listing and each link, from the `skipped`th on."""
    count = iter(range(1000))

    def stepping(called: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            if next(count) >= skipped:
                step()
            return called(*arguments)

        return call

    for name in ("_names", "_link"):
        monkeypatch.setattr(pins, name, stepping(getattr(pins, name)))


WHOLE = {name(base): content for base, content in OLD.items()}
MERGED = {name(0): b"merged", name(30): b"active"}


@pytest.mark.parametrize("skipped", range(12))
def test_no_segment_is_missing_whenever_a_compaction_comes(
    log: PinnedLog, monkeypatch: pytest.MonkeyPatch, skipped: int
) -> None:
    """Either all old segments are linked, or the new ones; indexes are of the same state, or left out."""
    monkeypatch.setattr(pins, "PAUSE_SECONDS", 0)
    steps = swap(log.source)
    before_each(monkeypatch, lambda: next(steps, None), skipped)
    log.pin()
    found = pinned(log)
    segments = {file: content for file, content in found.items() if file.endswith(".log")}
    assert segments in (WHOLE, MERGED)
    for file, content in found.items():
        assert file.endswith(".log") or content == segments[file.replace(".index", ".log")], file


def test_what_was_linked_before_a_compaction_stays(log: PinnedLog) -> None:
    """New segments are added, and the old files, which have more, are kept."""
    log.pin()
    for _ in swap(log.source):
        pass
    (log.source / name(40)).write_bytes(b"new")
    log.pin()
    assert {file: content for file, content in pinned(log).items() if file.endswith(".log")} == {
        **WHOLE,
        name(40): b"new",
    }
    assert pinned(log)[name(0, ".index")] == b"zero"


def test_a_swap_that_never_ends_is_an_error(log: PinnedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "PAUSE_SECONDS", 0)
    next(swap(log.source))
    with pytest.raises(OSError, match="replaced all the time"):
        log.pin()


def test_links_of_a_log_with_a_newer_leader_epoch_are_old(log: PinnedLog) -> None:
    """The file of the epochs is replaced, and the segments go on: batches of the new epoch would have no entry."""
    log.pin()
    assert log.is_current()
    epochs = log.source / "leader-epoch-checkpoint"
    epochs.write_bytes(b"0")
    assert not log.is_current()
    log.pin()
    assert log.is_current()
    epochs.with_suffix(".tmp").write_bytes(b"1")
    epochs.with_suffix(".tmp").replace(epochs)
    assert not log.is_current()
    assert uncovered({TopicPartition("t", 0): log}, {TopicPartition("t", 0): 0}) == [TopicPartition("t", 0)]
