"""Changes one operator of our rules at a time: does a test notice? `python -m tests.mutants --sample 100 --seed 1`

For rules that decide alone (ROOMS), with the fast tests that are nearest to each. What survives is printed: a rule that
no test protects, or a change that changes nothing. It is a tool for people: half a minute of a core for each mutant.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.project_files import ROOT

ROOMS: dict[str, tuple[list[str], list[str]]] = {
    "client": (
        ["fencepost/client/core/*.py"],
        [
            "tests/unit/client",
            "tests/property/test_client_groups.py",
            "tests/property/test_client_transactions.py",
            "tests/property/test_fetch_sessions.py",
            "tests/property/test_producer_sequences.py",
            "tests/property/test_whole_transactions.py",
        ],
    ),
    "transactions": (
        ["fencepost/coordinator/txn/*.py"],
        [
            "tests/property/test_txn_machine.py",
            "tests/unit/txn",
            "tests/unit/broker",
            "tests/property/test_txn_service.py",
        ],
    ),
    "groups": (
        ["fencepost/coordinator/group/**/*.py"],
        ["tests/unit/group", "tests/property/test_consumer_groups.py", "tests/property/test_group_replay.py"],
    ),
    "metadata": (
        ["fencepost/coordinator/metadata/*.py"],
        ["tests/unit/metadata", "tests/property/test_metadata.py", "tests/property/test_metadata_take_over.py"],
    ),
    "log": (
        [
            f"fencepost/broker/log/{name}.py"
            for name in ("producer_state", "epochs", "validation", "filtering", "retention")
        ],
        ["tests/unit/log", "tests/property/test_log_model.py"],
    ),
    "cluster": (
        [f"fencepost/broker/cluster/**/{name}.py" for name in ("claims", "gc", "proposals")],
        ["tests/unit/cluster", "tests/unit/peers"],
    ),
    "shares": (
        [f"fencepost/broker/share/{name}.py" for name in ("acknowledging", "acquiring", "change", "window")],
        ["tests/unit/broker/share", "tests/golden/test_share_partitions.py"],
    ),
    "spark": (
        [f"fencepost/spark_connector/{name}.py" for name in ("source/planner", "sink/commit_marker", "sink/lanes")],
        [
            "tests/spark/test_planner.py",
            "tests/spark/test_plan_pieces.py",
            "tests/spark/test_offsets.py",
            "tests/spark/test_sink_marker.py",
            "tests/spark/test_sink_decisions.py",
        ],
    ),
}
"""Name -> the files that decide, and their tests."""
LIMIT_SECONDS = 240
SHORT = "--hypothesis-profile=check"
SWAPPED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: str
    line: int
    start: int
    end: int
    """The characters of the file that it replaces."""
    text: str

    def written(self, source: str) -> str:
        """The file with the change."""
        return source[: self.start] + self.text + source[self.end :]

    def described(self, source: str) -> str:
        """Where it is, what was there, and what is there now."""
        return f"{self.path}:{self.line}: {source[self.start : self.end]} -> {self.text}"


class _Places(ast.NodeVisitor):
    """All changes of one file."""

    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line.encode()))
        self._bytes = source.encode()
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def _at(self, line: int, column: int) -> int:
        return len(self._bytes[: self._lines[line - 1] + column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _add(self, node: ast.expr | ast.stmt, text: str) -> None:
        self.found.append(Mutant(self._path, node.lineno, *self._span(node), text))

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            if not isinstance(node.test, ast.Compare | ast.BoolOp):  # these are changed themselves
                self._add(node.test, f"not ({ast.unparse(node.test)})")
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            self._add(node, f"({left} {SWAPPED[type(node.ops[0])]} {right})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " or " if isinstance(node.op, ast.And) else " and "
        self._add(node, f"({word.join(f'({ast.unparse(value)})' for value in node.values)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            self._add(node, f"({ast.unparse(node.left)} {sign} {ast.unparse(node.right)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, f"({node.value} + 1)")

    def visit_Expr(self, node: ast.Expr) -> None:
        """A statement that only calls: without it, is anything missed? A log line is no rule."""
        if isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func)
            if not called.startswith(("logger.", "assert_never")):
                self._add(node, "pass")
                self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name != "__repr__":
            for statement in node.body:
                self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion guards our own mistakes; no test makes them."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are not rules."""


def mutants_in(path: str, source: str) -> list[Mutant]:
    """All mutants of one file."""
    return _Places(path, source).found


def mutants_of(room: str) -> Iterator[Mutant]:
    """All mutants of a room."""
    for pattern in ROOMS[room][0]:
        for path in sorted(ROOT.glob(pattern)):
            if path.name != "__init__.py":
                yield from mutants_in(str(path.relative_to(ROOT)), path.read_text())


class _Copy:
    """The project in a directory of its own, where files may be changed."""

    def __init__(self, place: Path) -> None:
        self._place = place
        for name in ("fencepost", "pyspark_fencepost", "tests", "examples", "deploy", "docs", "bench"):
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile"):
            shutil.copy(ROOT / name, place / name)

    def passes(self, tests: list[str]) -> bool:
        """Whether these tests pass; a test that hangs does not."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", SHORT, *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._place), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                command, cwd=self._place, env=environment, capture_output=True, timeout=LIMIT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return run.returncode == 0

    def survives(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether the tests pass with the change."""
        path = self._place / mutant.path
        source = path.read_text()
        path.write_text(mutant.written(source))
        try:
            return self.passes(tests)
        finally:
            path.write_text(source)


def main() -> int:
    """Play a sample; 1 if a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="mutants in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further mutant after these")
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), help=f"of {', '.join(ROOMS)}; default: all")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    each = arguments.sample // len(arguments.rooms)
    sample = [(room, one) for room in arguments.rooms for one in chance.sample(list(mutants_of(room)), each)]
    chance.shuffle(sample)
    until = time.monotonic() + arguments.minutes * 60
    played, caught = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        copy = _Copy(Path(scratch) / "copy")
        for room in arguments.rooms:
            if not copy.passes(ROOMS[room][1]):
                raise SystemExit(f"the tests of {room} fail without any mutant")
        for number, (room, mutant) in enumerate(sample, 1):
            if time.monotonic() > until:
                break
            survived = copy.survives(mutant, ROOMS[room][1])
            played[room] += 1
            caught[room] += not survived
            if survived:
                print(f"SURVIVED  {mutant.described((ROOT / mutant.path).read_text())}", flush=True)
            print(f"{number} of {len(sample)}", end="\r", file=sys.stderr)
    for room in arguments.rooms:
        print(f"{room}: {caught[room]} of {played[room]} caught")
    print(f"all: {caught.total()} of {played.total()} caught, seed {arguments.seed}")
    return caught.total() < played.total()


if __name__ == "__main__":
    sys.exit(main())
