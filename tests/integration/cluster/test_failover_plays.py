"""The database of three active brokers goes back in time; the long form is `python -m tests.kit.failover_plays`."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.failover_planted import PLANTED

ROOT = Path(__file__).resolve().parents[3]
SECONDS_MAX = 400
LONG = bool(os.environ.get("FENCEPOST_LONG"))
FOUND = {
    "rows lost": "an acknowledged record is lost",
    "rows doubled": "a record is there twice",
    "objects overwritten": "after a kill of all brokers",
}
"""What the checker says of each planted fault."""

pytestmark = [pytest.mark.timeout(SECONDS_MAX + 10), pytest.mark.usefixtures("server")]


def play(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A run in a process group of its own, of which nothing is left."""
    command = [sys.executable, "-m", "tests.kit.failover_plays", "--directory", str(directory), *words]
    run = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = run.communicate(timeout=SECONDS_MAX)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return subprocess.CompletedProcess(command, run.returncode, said)


def test_a_failover_loses_only_what_the_promoted_database_lacks(tmp_path: Path) -> None:
    """To a copied data directory, and to a standby that lags. A loaded machine gets more time until brokers serve."""
    run = play(
        tmp_path, "--plays", "2", "--seed", "ci", "--kind", "copied", "--kind", "streaming", "--serve-seconds", "60"
    )
    assert run.returncode == 0, run.stdout
    assert "nothing else was lost" in run.stdout


@pytest.mark.skipif(not LONG, reason="each takes 20 s; FENCEPOST_LONG=1 plays them")
@pytest.mark.parametrize("planted", PLANTED)
def test_planted_faults_are_found(tmp_path: Path, planted: str) -> None:
    run = play(tmp_path, "--plays", "1", "--seed", "ci", "--planted", planted, "--serve-seconds", "60")
    assert run.returncode == 1, run.stdout
    assert FOUND[planted] in run.stdout
