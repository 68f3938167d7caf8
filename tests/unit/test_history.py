"""The chaos checker finds each kind of damage that it is there for, and passes a run without any."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    History,
    Journal,
    Log,
    Place,
    Reader,
    Writer,
    check,
    events_of,
)

T0, T1, IN, OUT = ("t", 0), ("t", 1), ("in", 0), ("out", 0)
Logs = dict[Place, Log]


def sound() -> tuple[list[list[Any]], list[list[Any]], Logs, Logs]:
    """A writer's and a reader's journal, and what stands in the logs, committed and all."""
    writer: list[list[Any]] = [
        ["begin", 1], ["send", 1, "t", 0, "a"], ["send", 1, "t", 1, "b"], ["ask", 1], ["committed", 1],
        ["begin", 2], ["send", 2, "t", 0, "c"], ["aborted", 2],
        ["begin", 3], ["send", 3, "t", 0, "d"], ["send", 3, "t", 1, "e"], ["ask", 3],
        ["begin", 4], ["send", 4, "t", 1, "f"],
        ["send", None, "in", 0, "x"], ["ack", "x", 0, 0], ["send", None, "in", 0, "y"],
    ]  # fmt: skip
    reader: list[list[Any]] = [
        ["reader", READ_COMMITTED], ["pass", "t", 0, 0], ["read", "t", 0, 0, "a"], ["read", "t", 0, 4, "d"],
        ["bounds", "t", 0, 2, 2], ["bounds", "t", 0, 6, 4], ["pass", "t", 0, 3], ["read", "t", 0, 4, "d"],
    ]  # fmt: skip
    committed: Logs = {
        T0: [(0, "a"), (4, "d")],
        T1: [(0, "b"), (2, "e")],
        IN: [(0, "x"), (1, "y")],
        OUT: [(0, "x"), (2, "y")],
    }
    everything: Logs = {**committed, T0: [(0, "a"), (2, "c"), (4, "d")], T1: [(0, "b"), (2, "e"), (4, "f")]}
    return writer, reader, committed, everything


def violations(
    tmp_path: Path,
    damage: Callable[[list[list[Any]], list[list[Any]], Logs, Logs], object] = lambda *_: None,
    other: Callable[[Logs], Logs] = lambda logs: logs,
) -> list[str]:
    """What the checker says of the sound run after `damage`; `other` is what a second reader gets at the end."""
    writer, reader, committed, everything = sound()
    damage(writer, reader, committed, everything)
    for name, events in (("writer", writer), ("reader", reader)):
        Journal(tmp_path / f"{name}.jsonl").write_many(events)
    finals = {
        READ_COMMITTED: {"one": committed, "two": other(committed)},
        READ_UNCOMMITTED: {"one": everything},
    }
    history = History(
        [Writer.read(tmp_path / "writer.jsonl")], [Reader.read(tmp_path / "reader.jsonl")], finals, [("in", "out")]
    )
    return check(history).violations


def test_a_sound_run_passes(tmp_path: Path) -> None:
    assert violations(tmp_path) == []


def _forget_third(writer: list[list[Any]], reader: list[list[Any]], committed: Logs, everything: Logs) -> None:
    """The unknown transaction did not happen: that is allowed."""
    for logs in (committed, everything):
        logs[T0] = [one for one in logs[T0] if one[1] != "d"]
        logs[T1] = [one for one in logs[T1] if one[1] != "e"]
    reader[:] = [event for event in reader if event[-1] != "d"]


def test_an_unknown_outcome_may_be_either(tmp_path: Path) -> None:
    assert violations(tmp_path, _forget_third) == []


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("not there completely", lambda w, r, c, e: c[T1].pop(0)),
        ("delivered more than once", lambda w, r, c, e: c[T1].append((9, "b"))),
        ("that was not committed", lambda w, r, c, e: c[T0].insert(1, (2, "c"))),
        ("that was not committed", lambda w, r, c, e: c[T1].append((4, "f"))),
        ("is torn", lambda w, r, c, e: c[T1].pop()),
        ("never sent", lambda w, r, c, e: c[T1].append((9, "?"))),
        ("not where it should be", lambda w, r, c, e: c[IN].__setitem__(0, (7, "x"))),
        ("not where it should be", lambda w, r, c, e: c[IN].pop(0)),
        ("out of order", lambda w, r, c, e: e[T0].__setitem__(slice(None), [(0, "c"), (2, "a"), (4, "d")])),
        ("what a reader saw", lambda w, r, c, e: r.insert(3, ["read", "t", 0, 2, "c"])),
        ("what a reader saw", lambda w, r, c, e: r.pop(2)),
        ("what a reader saw", lambda w, r, c, e: r.append(["read", "t", 0, 4, "d"])),
        ("a bound went back", lambda w, r, c, e: r.append(["bounds", "t", 0, 6, 3])),
        ("a bound went back", lambda w, r, c, e: r.append(["bounds", "t", 0, 5, 4])),
        ("a bound went back", lambda w, r, c, e: r.append(["bounds", "t", 0, 6, 7])),
        ("output is not the input", lambda w, r, c, e: c[OUT].pop()),
        ("output is not the input", lambda w, r, c, e: c[OUT].append((3, "y"))),
    ],
)
def test_each_damage_is_found(
    tmp_path: Path, rule: str, damage: Callable[[list[list[Any]], list[list[Any]], Logs, Logs], object]
) -> None:
    found = violations(tmp_path, damage)
    assert any(rule in violation for violation in found), found


def test_readers_that_disagree_are_found(tmp_path: Path) -> None:
    found = violations(tmp_path, other=lambda logs: {**logs, T0: logs[T0][:1]})
    assert ["two" in violation for violation in found] == [True]


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).write("begin", 1)
    with path.open("ab") as file:
        file.write(json.dumps(["send", 1]).encode()[:-2])
    assert list(events_of(path)) == [["begin", 1]]
