"""The rule tables in docs name what there is: every row, code that exists, tests that exist and cite their row."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.project_files import PYTHON_FILES, ROOT

LINE = re.compile(r"^\| (\d+|[GILMPRT]\d+) \| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"`(\w+/\w+)::(\w+)`")
CODE = re.compile(r"`((?:broker|cli|client|coordinator|protocol)/[\w/]*(?:\.py)?)`")
CITED = re.compile(r"\b([GILMPRT])(\d+)(?:(?: to | ?- ?)[GILMPRT]?(\d+))?")
DOCUMENTS = (
    "docs/rules.md",
    "docs/rules-transactions.md",
    "docs/rules-queues.md",
    "docs/groups.md",
    "docs/consumer-groups.md",
    "docs/metadata.md",
)
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}
LINES = [line for page in PAGES.values() for line in LINE.findall(page)]


def rows_of(block: str, count: int) -> set[str]:
    return {f"{block}{number}" for number in range(1, count + 1)}


@cache
def file_of(short: str) -> Path:
    """The one test file whose path ends with `short`."""
    found = [path for path in PYTHON_FILES if str(path.relative_to(ROOT)).endswith(f"tests/{short}.py")] or [
        path for path in PYTHON_FILES if str(path).endswith(f"/{short}.py")
    ]
    assert len(found) == 1, f"{short} is {[str(path) for path in found]}"
    return found[0]


@cache
def texts_of(path: Path) -> dict[str, str]:
    """By the name of each test: all that it can cite its rows in, its name and the docstrings around it."""
    texts: dict[str, str] = {}

    def visit(node: ast.Module | ast.ClassDef, above: str) -> None:
        above += f" {ast.get_docstring(node) or ''}"
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                visit(child, above)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test_"):
                name = child.name.replace("_", " ").upper()
                texts[child.name] = f"{texts.get(child.name, '')} {name} {above} {ast.get_docstring(child) or ''}"

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return texts


def cited_in(text: str) -> set[str]:
    """The rows that a text cites: `P2`, `P2 to P6`, `P2-P5`."""
    return {
        f"{block}{number}"
        for block, first, last in CITED.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def test_every_row_has_its_line() -> None:
    rows = rows_of("", 23) | rows_of("P", 12) | rows_of("I", 11) | rows_of("L", 15) | rows_of("T", 25)
    rows |= rows_of("M", 7) | rows_of("R", 9) | rows_of("G", 11) - {"G4", "G5"}
    assert rows <= {row for row, _ in LINES}


@pytest.mark.parametrize(("row", "cells"), LINES, ids=lambda text: text[:30])
def test_what_a_line_names_exists_and_its_tests_cite_the_row(row: str, cells: str) -> None:
    for name in CODE.findall(cells):
        assert (ROOT / "fencepost" / name).exists(), name
    for file, name in TEST.findall(cells):
        texts = texts_of(file_of(file))
        assert name in texts, f"{file} has no {name}"
        if not row.isdigit():
            assert row in cited_in(texts[name]), f"{file}::{name} does not cite {row}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_page_names_exists(document: str) -> None:
    """Also in rows without a number."""
    missing = [name for name in CODE.findall(PAGES[document]) if not (ROOT / "fencepost" / name).exists()]
    missing += [
        f"{file}::{name}" for file, name in TEST.findall(PAGES[document]) if name not in texts_of(file_of(file))
    ]
    assert missing == []
