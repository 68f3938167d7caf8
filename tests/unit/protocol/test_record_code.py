"""Which way records go: the compiled part where it may, numpy where it pays, and that each is really taken."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from fencepost.protocol import compiled, records
from fencepost.protocol.record_batch import build_batch, read_header
from fencepost.protocol.records import NewRecord, Record, decode_records, expect_many
from tests.kit.record_code import COMPILED, needs_compiled, needs_numpy, take

PLAIN: list[NewRecord] = [(1_000 + n, b"k" if n % 2 else None, b"v" * n, ()) for n in range(300)]
EXPECTED = [Record(n, *record) for n, record in enumerate(PLAIN)]


def code_in(environment: dict[str, str]) -> str:
    program = "from fencepost.protocol.compiled import record_code; print(record_code())"
    run = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_the_environment_can_forbid_the_compiled_part() -> None:
    assert code_in({"FENCEPOST_PURE": "1"}) == "pure Python"


@needs_compiled
@pytest.mark.parametrize("value", ["", "0"])
def test_an_empty_word_or_zero_does_not_forbid_it(value: str) -> None:
    assert code_in({"FENCEPOST_PURE": value}) == "compiled"


def test_a_module_of_another_interface_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an editable install may have one from before the source changed."""
    old = ModuleType("fencepost.protocol._hot")
    monkeypatch.setitem(sys.modules, "fencepost.protocol._hot", old)
    monkeypatch.setattr("fencepost.protocol._hot", old, raising=False)
    assert compiled.load() is None
    old.__dict__["INTERFACE"] = compiled.INTERFACE
    assert compiled.load() is old


@needs_compiled
def test_the_compiled_part_is_taken_for_what_is_usual() -> None:
    assert COMPILED is not None
    assert COMPILED.encode(PLAIN, 1_000, 0, Record, 0) is not None
    batch = build_batch(PLAIN)
    assert COMPILED.decode(memoryview(batch)[61:], 300, 0, 299, 1_000, None, Record, ()) == EXPECTED


@needs_numpy
def test_numpy_is_taken_for_large_batches_without_headers_only() -> None:
    from fencepost.protocol.plain_records import records_by_numpy

    batch = build_batch(PLAIN, log_append_time_ms=77)
    found = records_by_numpy(bytes(batch[61:]), read_header(batch))
    assert found == [record._replace(timestamp_ms=77) for record in EXPECTED]
    with_headers = build_batch([*PLAIN, (0, None, None, (("h", b""),))])
    assert records_by_numpy(bytes(with_headers[61:]), read_header(with_headers)) is None


@needs_numpy
def test_numpy_comes_into_play_once_a_reader_has_read_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    from fencepost.protocol import plain_records

    honest = plain_records.records_by_numpy
    monkeypatch.setattr(plain_records, "records_by_numpy", lambda *given: calls.append(1) or honest(*given))
    take("pure Python", monkeypatch)
    monkeypatch.setattr(records.numpy_use, "after_records", 2 * len(PLAIN))
    batch = build_batch(PLAIN)
    header = read_header(batch)
    for _ in range(4):
        assert decode_records(batch, 0, header) == EXPECTED
    assert not calls, "nobody said that it would read many"
    expect_many()
    for _ in range(4):
        assert decode_records(batch, 0, header) == EXPECTED
    assert len(calls) == 2


def test_without_numpy_it_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def not_there(name: str) -> ModuleSpec | None:
        asked.append(name)
        return None

    take("numpy", monkeypatch)
    monkeypatch.setattr(records, "find_spec", not_there)
    batch = build_batch(PLAIN)
    for _ in range(3):
        assert decode_records(batch, 0, read_header(batch)) == EXPECTED
    assert asked == ["numpy"]


def test_a_broker_does_not_take_the_word_for_one_of_its_settings() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "fencepost", "serve", "--memory", "--listen", "nowhere"],
        env=os.environ | {"FENCEPOST_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode != 0
    assert "nowhere" in run.stderr
    assert "FENCEPOST_PURE" not in run.stderr
