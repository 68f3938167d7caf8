"""Which way records go: the compiled part where it may, and that it is really taken."""

import os
import subprocess
import sys
from types import ModuleType

import pytest

from fencepost.protocol import compiled
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import NewRecord, Record
from tests.kit.record_code import COMPILED, needs_compiled

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


def test_a_module_that_this_python_cannot_load_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A free-threaded Python finds what another one has built in the source tree, and raises SystemError."""

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "fencepost.protocol._hot":
                raise SystemError("init function of _hot returned uninitialized object")

    monkeypatch.delitem(sys.modules, "fencepost.protocol._hot", raising=False)
    monkeypatch.delattr("fencepost.protocol._hot", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert compiled.load() is None


@needs_compiled
def test_the_compiled_part_is_taken_for_what_is_usual() -> None:
    assert COMPILED is not None
    assert COMPILED.encode(PLAIN, 1_000, 0, Record, 0) is not None
    batch = build_batch(PLAIN)
    assert COMPILED.decode(memoryview(batch)[61:], 300, 0, 299, 1_000, None, Record, ()) == EXPECTED


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
