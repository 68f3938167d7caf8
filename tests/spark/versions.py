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
from collections.abc import Mapping
from pathlib import Path

from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
_EXTRAS = ("sync", "broker", "spark", "tables", "schema-registry")
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
            *(one for extra in _EXTRAS for one in extras[extra] if not one.startswith("fencepost[")),
            "sqlalchemy",
            "pyyaml",
            f"pyspark[connect]=={version}",
        ]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *wanted], check=True)
        (place / "ready").touch()
    return python


def tried(version: str) -> dict[str, str]:
    """What `version_trial.py` finds in that environment: what was tried, and "yes" or the error."""
    python = environment(version)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    variables |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    submit = [str(python.with_name("spark-submit")), "--master", "local-cluster[2,1,1024]"]
    trial = [str(python), "-m", "tests.spark.version_trial"]
    found: dict[str, str] = {}
    for way, words in (
        ("classic", [*trial, "classic"]),
        ("connect", [*trial, "connect"]),
        ("local cluster", [*submit, "tests/spark/version_trial.py", "local-cluster"]),
    ):
        with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch)) as broker:
            run = subprocess.run(
                [*words, broker.address, scratch],
                cwd=ROOT,
                env=variables,
                stdout=subprocess.PIPE,
                text=True,
                timeout=_TRIAL_SECONDS,
                check=False,
            )
        lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
        found |= json.loads(lines[-1]) if lines else {f"{way} starts": f"exit code {run.returncode}"}
    command = python.with_name("spark-pipelines")
    if command.exists():
        with tempfile.TemporaryDirectory() as scratch, BrokerProcess(Path(scratch)) as broker:
            found["Declarative Pipelines: a table and a sink"] = declared(
                command, variables, Path(scratch), broker.address
            )
    return found


_DECLARATION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
KAFKA = {{"kafka.bootstrap.servers": "{bootstrap}"}}


@dp.table(format="parquet")
def orders():
    return spark.readStream.format("fencepost").options(**KAFKA, subscribe="in", startingOffsets="earliest").load()


dp.create_sink(name="copy", format="fencepost", options={{**KAFKA, "topic": "copy", "kafka.transactional.id": "copy"}})


@dp.append_flow(target="copy", name="to_copy")
def to_copy():
    return spark.readStream.table("orders").select("value")
"""


def declared(command: Path, variables: Mapping[str, str], scratch: Path, bootstrap: str) -> str:
    """A pipeline of `spark-pipelines`: "yes", or what went wrong."""
    (scratch / "transformations").mkdir()
    (scratch / "transformations" / "orders.py").write_text(_DECLARATION.format(bootstrap=bootstrap))
    (scratch / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{scratch}/storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    with Client(bootstrap) as kafka:
        with kafka.transactional_producer("trial") as producer, producer.transaction() as txn:
            txn.send_many("in", [(None, b"%d" % number) for number in range(100)])
        # Once only: without a metastore Spark forgets the table at the end, and refuses its files at the next start.
        run = subprocess.run([str(command), "run"], cwd=scratch, env=variables, timeout=_TRIAL_SECONDS, check=False)
        if run.returncode:
            return f"exit code {run.returncode}"
        with kafka.consumer("copy") as consumer:
            count = sum(len(batch) for batch in consumer.read_to_end())
    return "yes" if count == 100 else f"{count} records of 100"


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
