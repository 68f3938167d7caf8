"""What mypy and pyright say to programs that use the client, the examples among them, and to one that uses messages.

A line of a program that ends with `# refused` is wrong. Both checkers must report it, and no other line.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNTYPED = {"arrow_table.py"}
"""Examples about pyarrow, which has no types."""
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name not in UNTYPED)
COMPARED = sorted((ROOT / "examples/compare").glob("*.py"))
"""Programs with other clients, for mypy alone: pyright refuses what these clients' documents tell users to write."""
PROGRAMS = [*sorted((ROOT / "tests/typing/programs").glob("*.py")), *EXAMPLES]
Lines = set[tuple[str, int]]


def refused_lines() -> Lines:
    """(program, line number) of each wrong line."""
    return {
        (program.name, number)
        for program in PROGRAMS
        for number, line in enumerate(program.read_text(encoding="utf-8").splitlines(), 1)
        if line.endswith("# refused")
    }


def reported_by_mypy(folder: Path) -> tuple[Lines, str]:
    """What mypy reports with --strict, with the cache of `make check`."""
    words = [
        "--strict",
        "--output",
        "json",
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
        *map(str, [*PROGRAMS, *COMPARED]),
    ]
    run = subprocess.run([sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {(Path(one["file"]).name, one["line"]) for one in found if one["severity"] == "error"}, run.stdout


def reported_by_pyright(folder: Path) -> tuple[Lines, str]:
    """What pyright reports by its standard rules. basedpyright is pyright with a Node.js of its own: no network."""
    settings = {
        "typeCheckingMode": "standard",
        "include": [str(program) for program in PROGRAMS],
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    words = ["--outputjson", "--project", str(folder), "--pythonpath", sys.executable]
    run = subprocess.run(
        [sys.executable, "-m", "basedpyright", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] == len(PROGRAMS), run.stdout
    wrong = [one for one in found["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in wrong}, run.stdout


@pytest.mark.long
@pytest.mark.parametrize("checker", [reported_by_mypy, reported_by_pyright])
def test_a_checker_refuses_the_wrong_lines_and_no_other(checker: object, tmp_path: Path) -> None:
    assert callable(checker)
    reported, output = checker(tmp_path)
    assert reported == refused_lines(), output
