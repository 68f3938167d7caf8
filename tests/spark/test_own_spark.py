"""`fencepost spark` as a process that starts a Spark of its own: what it prints, and what it keeps off the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import Transact
from tests.spark.killed import SLOW_STARTS_MAX, SLOW_WORKER

NOBODY = "127.0.0.1:9"


def of_a_new_spark(*words: str) -> subprocess.CompletedProcess[str]:
    """`fencepost spark WORDS` as a process of its own, which starts a Spark of one core."""
    command = [sys.executable, "-m", "fencepost", "spark", *words, "--master", "local[1]"]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.usefixtures("installed_spark")
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_etl_that_fails_prints_the_cause_and_nothing_of_spark(
    bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    transact([(0, b"1"), (1, b"2")])
    for _ in range(SLOW_STARTS_MAX):
        run = of_a_new_spark(
            "etl", topic, "--to", "no/where", "--checkpoint", str(tmp_path / "state"), "--bootstrap", bootstrap
        )
        if not any(text in run.stderr for text in SLOW_WORKER):
            break
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.splitlines() == [
        "fencepost: 'no/where' is not a valid topic name",
        "  --verbose shows Spark's log",
    ]


@pytest.mark.usefixtures("installed_spark")
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_export_of_no_topic_names_it_and_with_verbose_shows_sparks_log(bootstrap: str, tmp_path: Path) -> None:
    run = of_a_new_spark("export", "nowhere", "--into", str(tmp_path), "--bootstrap", bootstrap, "--verbose")
    assert (run.returncode, run.stdout) == (1, "")
    *log, cause = run.stderr.splitlines()
    assert cause == "fencepost: topic nowhere does not exist: check its name, or create it first"
    assert any("NativeCodeLoader" in line or "log level" in line for line in log)


@pytest.mark.usefixtures("installed_spark")
@pytest.mark.spark
def test_spark_that_does_not_start_says_why() -> None:
    """By what the JVM printed, although it is silent otherwise."""
    words = ("export", "t", "--into", "x", "--conf", "spark.driver.memory=9x", "--bootstrap", NOBODY)
    run = of_a_new_spark(*words)
    assert run.returncode == 1
    assert "Invalid maximum heap size: -Xmx9x" in run.stderr
    assert "JAVA_GATEWAY_EXITED" in run.stderr
    assert "Traceback" not in run.stderr


A_WORKER = """
import subprocess, sys, time
from fencepost.cli.spark import quiet

with quiet.child_processes_silent():
    command = [sys.executable, "-c", "import sys; sys.stderr.write(sys.stdin.read())"]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
print("ours", file=sys.stderr)
worker.communicate("Traceback\\norders-0: 5 records are gone (failOnDataLoss=false)\\nEOFError\\n")
time.sleep(0.5)
"""


def test_a_process_of_spark_prints_nothing_but_warnings_about_lost_records() -> None:
    run = subprocess.run([sys.executable, "-c", A_WORKER], capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr.splitlines() == ["ours", "orders-0: 5 records are gone (failOnDataLoss=false)"]
