"""The Spark guide as a notebook: its code in the order in which it stands there, and what is hidden between.

- each ```python block is run, all in one namespace
- of each ```sh block the lines that begin with `fencepost spark` or `fencepost topic` are run, one process for all
- a comment `<!-- run` ... `-->` on lines of its own is Python that readers do not see: it asserts what the last block
  did. It has `broker` ("HOST:PORT") and `output` (what the last command printed) besides the guide's own names

127.0.0.1:9092 is the broker of the test, 127.0.0.1:8081 its schema registry, and /tmp a directory of its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PIECE = re.compile(r"^```(python|sh)\n(.*?)^```$|^<!-- run\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
ADDRESS, REGISTRY, SCRATCH = "127.0.0.1:9092", "http://127.0.0.1:8081", "/tmp/"


@dataclass(frozen=True)
class Piece:
    """Something to run; `line` is that of its first line in the guide."""

    kind: str
    """python, hidden or command."""
    line: int
    code: str


def pieces_of(guide: Path) -> Iterator[Piece]:
    """All of them in order."""
    text = guide.read_text(encoding="utf-8")
    for found in _PIECE.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        language, shown, hidden = found.groups()
        if hidden is not None:
            yield Piece("hidden", line, hidden)
        elif language == "python":
            yield Piece("python", line, shown)
        else:
            yield from _commands(shown, line)


def _commands(shown: str, line: int) -> Iterable[Piece]:
    """The lines of a shell block that are ours, with what backslashes continue."""
    whole, began = "", line
    for number, text in enumerate(shown.splitlines()):
        began = began if whole else line + number
        whole += text.removesuffix("\\")
        if text.endswith("\\"):
            continue
        if whole.lstrip().startswith(("fencepost spark ", "fencepost topic ")):
            yield Piece("command", began, whole)
        whole = ""


def placed(code: str, broker: str, scratch: Path, registry: str = REGISTRY) -> str:
    """The code as it is to be run here."""
    return code.replace(ADDRESS, broker).replace(REGISTRY, registry).replace(SCRATCH, f"{scratch}/")


def words_of(command: str) -> list[str]:
    """A command's words behind `fencepost`."""
    return shlex.split(command, comments=True)[1:]
