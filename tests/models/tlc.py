"""Runs TLC on a model, in one scope."""

import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.interop.java.jars import Unavailable, class_path, java

HERE = Path(__file__).resolve().parent
MODELS = HERE.parents[1] / "docs" / "models"
TLC_SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"


class Verdict(NamedTuple):
    """The result of one run."""

    violated: str | None
    """The property that TLC refuted; None if all hold."""
    states: int
    """The number of distinct states that TLC found."""
    depth: int
    """Of the complete state graph; 0 if TLC stopped before."""
    seconds: float
    output: str
    """TLC's report, with the behavior that violates the property."""


def configuration(changes: Mapping[str, str], model: str = "commit") -> str:
    """The model's .cfg with other constants."""
    text = (MODELS / f"{model}.cfg").read_text(encoding="utf-8")
    for name, value in changes.items():
        text, count = re.subn(rf"^( +{name} = ).*$", lambda line: line[1] + value, text, flags=re.MULTILINE)  # noqa: B023
        if count != 1:
            raise ValueError(f"{model}.cfg has {count} lines for the constant {name}")
    return text


def check(
    changes: Mapping[str, str],
    directory: Path,
    timeout_s: float | None = None,
    heap: str = "1g",
    model: str = "commit",
) -> Verdict:
    """Check a model with these constants; TLC keeps its files in `directory`.

    Raises Unavailable without Java or the jar, and RuntimeError if TLC fails.
    """
    jar = class_path(HERE / "pom.xml").strip()
    if hashlib.sha256(Path(jar).read_bytes()).hexdigest() != TLC_SHA256:
        raise Unavailable(f"{jar} is not the jar that was checked for this project: its SHA-256 differs")
    shutil.copy(MODELS / f"{model}.tla", directory)
    (directory / f"{model}.cfg").write_text(configuration(changes, model), encoding="utf-8")
    java_options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{heap}"]  # most runs are short
    files = ["-metadir", directory / "states", "-config", f"{model}.cfg", f"{model}.tla"]
    options = ["-workers", "1", "-nowarning", *files]
    command = [java(), *java_options, f"-Djava.io.tmpdir={directory}", "-cp", jar, "tlc2.TLC"]
    begun = time.monotonic()
    run = subprocess.run(
        [*command, *map(str, options)], cwd=directory, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    counted = re.findall(r"([\d,]+) distinct states found", run.stdout)
    violated = re.search(r"(?:Invariant|Action property) (\S+) is violated", run.stdout)
    completed = "Model checking completed. No error has been found." in run.stdout
    if not counted or completed == bool(violated):
        raise RuntimeError(f"TLC failed: {(run.stdout + run.stderr)[-3000:]}")
    depth = re.search(r"depth of the complete state graph search is (\d+)", run.stdout)
    return Verdict(
        violated[1] if violated else None,
        int(counted[-1].replace(",", "")),
        int(depth[1]) if depth and completed else 0,
        time.monotonic() - begun,
        run.stdout,
    )
