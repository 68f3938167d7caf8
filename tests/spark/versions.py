"""Tries the connector with several versions of Spark: `make spark-versions`, or `python -m tests.spark.versions 4.0.5`.

Each version gets an environment of its own, kept in `.spark-versions/`; with Spark Connect's packages. The table at the
end is the one in docs/spark.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
_KEPT = ROOT / ".spark-versions"
_TRIAL_SECONDS = 900


def environment(version: str) -> Path:
    """The Python of an environment with that Spark, made on first use."""
    place = _KEPT / f"{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"making an environment for Spark {version} (a few minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        wanted = [
            *project["dependencies"],
            *extras["arrow"],
            *extras["tables"],
            "sqlalchemy",
            *extras["schema-registry"],
            f"pyspark[connect]=={version}",
        ]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
        (place / "ready").touch()
    return python


def tried(version: str) -> dict[str, str]:
    """What `version_trial.py` finds in that environment: what was tried, and "yes" or the error."""
    python = environment(version)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    variables["PYTHONPATH"] = str(ROOT)
    found: dict[str, str] = {}
    for way in ("classic", "connect"):
        with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch)) as broker:
            words = [str(python), "-m", "tests.spark.version_trial", way, broker.address, scratch]
            run = subprocess.run(
                words, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, timeout=_TRIAL_SECONDS, check=False
            )
        lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
        found |= json.loads(lines[-1]) if lines else {f"{way} starts": f"exit code {run.returncode}"}
    return found


def main() -> int:
    """Print the table; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"default: {' '.join(VERSIONS)}")
    versions = parser.parse_args().versions
    results = {version: tried(version) for version in versions}
    names = list(dict.fromkeys(name for found in results.values() for name in found))
    print("| |", " | ".join(versions), "|")
    print("|---" * (len(versions) + 1) + "|")
    for name in names:
        print(f"| {name} |", " | ".join(results[version].get(name, "") for version in versions), "|")
    return any(answer not in ("yes", "refused") for found in results.values() for answer in found.values())


if __name__ == "__main__":
    sys.exit(main())
