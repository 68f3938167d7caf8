"""What `fencepost produce` cuts out of its input, from real pipes and files."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import trio
import trio.testing

from fencepost.cli.records import cutting
from fencepost.cli.records.cutting import Cut, Input
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

Pipe = tuple[IO[bytes], IO[bytes]]
"""The end to read, and the end to write."""
LARGEST = 1 << 20
LINES = Cut(b"\n", None, None, False)
WHOLE = Cut(None, None, None, False)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """A pipe as standard input; what is written is there at once."""
    read, write = os.pipe()
    with open(read, "rb") as source, open(write, "wb", buffering=0) as sink:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(source))
        yield source, sink


async def values(records: Input, limit: int = 1000) -> list[bytes | None]:
    """The values of the records up to the end."""
    found: list[bytes | None] = []
    while pairs := await records.take(limit):
        found += [value for _, value in pairs]
    return found


@pytest.mark.parametrize("after", [b"\n", b"\r\n", b"abab"])
@pytest.mark.parametrize("read_bytes", [1, 2, 3, 7, 1 << 18])
async def test_records_are_the_same_however_much_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: bytes, read_bytes: int
) -> None:
    monkeypatch.setattr(cutting, "READ_BYTES", read_bytes)
    wanted = [b"", b"a", b"ab a\r", b"x" * 20, b"", b"last"]
    files = [tmp_path / "ended", tmp_path / "empty", tmp_path / "open"]
    files[0].write_bytes(after.join([*wanted[:3], b""]))
    files[1].write_bytes(b"")
    files[2].write_bytes(after.join(wanted[3:]))
    records = Input(Cut(after, None, None, False), list(map(str, files)), LARGEST)
    assert await values(records, limit=2) == wanted


async def test_a_whole_file_is_a_record_even_if_it_is_empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cutting, "READ_BYTES", 4)
    (tmp_path / "full").write_bytes(b"one\ntwo\n")
    (tmp_path / "empty").write_bytes(b"")
    files = [str(tmp_path / "full"), str(tmp_path / "empty")]
    assert await values(Input(WHOLE, files, LARGEST)) == [b"one\ntwo\n", b""]


async def test_other_tasks_run_while_a_pipe_has_nothing(pipe: Pipe) -> None:
    _, sink = pipe
    records = Input(LINES, ["-"], LARGEST)
    found: list[list[tuple[bytes | None, bytes | None]]] = []

    async def take() -> None:
        found.append(await records.take(10))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await trio.testing.wait_all_tasks_blocked()
        sink.write(b"no end yet")
        await trio.testing.wait_all_tasks_blocked()
        assert found == []
        sink.write(b", now\nand more")
    assert found == [[(None, b"no end yet, now")]]


async def test_a_cancellation_loses_nothing(pipe: Pipe) -> None:
    _, sink = pipe
    records = Input(LINES, ["-"], LARGEST)
    for part in (b"", b"on", b"e\ntwo\nthr"):
        sink.write(part)
        with trio.move_on_after(0.01):
            while True:
                assert await records.take(1) in ([(None, b"one")], [(None, b"two")])
    sink.write(b"ee")
    sink.close()
    assert await values(records) == [b"three"]


async def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    source, sink = pipe
    os.set_blocking(source.fileno(), False)
    records = Input(LINES, ["-"], LARGEST)
    with trio.move_on_after(0.01) as scope:
        await records.take(1)
    assert scope.cancelled_caught, "nothing to read is not the end"
    sink.write(b"one")
    sink.close()
    assert await values(records) == [b"one"]


async def test_a_device_that_cannot_be_waited_for_is_read() -> None:
    assert await values(Input(LINES, [os.devnull], LARGEST)) == []


@pytest.mark.parametrize("cut", [LINES, WHOLE])
async def test_a_record_without_an_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cut: Cut
) -> None:
    monkeypatch.setattr(cutting, "READ_BYTES", 10)
    (tmp_path / "one").write_bytes(b"a\n" if cut is LINES else b"a")
    records = Input(cut, [str(tmp_path / "one"), "/dev/zero"], 1000)
    assert await records.take(5) == [(None, b"a")]
    with pytest.raises(
        KafkaError, match=r"^record 2 is refused: it is larger than max.request.size allows \(1000\)"
    ) as refused:
        await records.take(5)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("cut", "pair"),
    [
        (Cut(b"\n", None, b"k", False), (b"k", b"a:b:c")),
        (Cut(b"\n", b":", None, False), (b"a", b"b:c")),
        (Cut(b"\n", b"|", None, False), (None, b"a:b:c")),
        (Cut(b"\n", b"a:b:c", None, True), (None, None)),
    ],
)
def test_keys_and_nulls(cut: Cut, pair: tuple[bytes | None, bytes | None]) -> None:
    assert cut.pairs([b"a:b:c"]) == [pair]
