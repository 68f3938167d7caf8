"""mypy on small programs that use this package: what it says to each line, beside what the line expects."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = re.compile(r"# says: (.*)")


def assert_mypy_says(program: str, folder: Path) -> None:
    """mypy says something to those lines of the program that end with `# says: ...`, and this is part of it.

    It has the options and the cache of `make check`, so that it reads the package's types instead of finding them.
    """
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    words = ["--strict", "--no-color-output", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)]
    run = subprocess.run([sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    told: dict[int, str] = {}
    for number, text in re.findall(r"program\.py:(\d+): (.*)", run.stdout.replace("builtins.", "")):
        told[int(number)] = told.get(int(number), "") + text
    lines = program.splitlines()
    expected = {number: found[1] for number, line in enumerate(lines, 1) if (found := EXPECTED.search(line))}
    assert expected, "a program that expects nothing proves nothing"
    assert told.keys() == expected.keys(), run.stdout + run.stderr
    for number, text in expected.items():
        assert text in told[number], told[number]
