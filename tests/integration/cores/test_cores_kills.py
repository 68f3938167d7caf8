"""Kill -9 of cores in a loop; the long form is `python -m tests.kit.cores_kills --cycles 1000`."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUN_TIMEOUT_SECONDS = 400
SHOWN_CHARS = 4_000
"""Of what went to the error output: a traceback is at its end."""


def run(directory: Path, *options: str) -> tuple[int, str]:
    """The exit code of a short run, and what it said."""
    command = [sys.executable, "-m", "tests.kit.cores_kills", "--transactional", "1", "--longest-life-ms", "700"]
    said, errors = directory / "said.txt", directory / "errors.txt"
    with said.open("wb") as output, errors.open("wb") as noise:
        process = subprocess.Popen(
            [*command, "--directory", str(directory / "run"), *options],
            cwd=ROOT,
            stdout=output,
            stderr=noise,  # librdkafka says much while brokers are down
            start_new_session=True,
        )
        try:
            process.wait(RUN_TIMEOUT_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it has left behind
            process.wait()
    return process.returncode, said.read_text() + errors.read_text(errors="replace")[-SHOWN_CHARS:]


@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 10)
@pytest.mark.parametrize("options", [(), ("--most", "4", "--wrong-clocks")], ids=["killed", "number"])
def test_nothing_is_lost_over_kills_of_cores(tmp_path: Path, options: tuple[str, ...]) -> None:
    """KIP-98 over several coordinators and leaders: one core, two, all, frozen ones, in the middle of transactions.

    Also while the number of cores changes, and their wall clocks jump.
    """
    code, said = run(tmp_path, "--cycles", "8", "--seed", "ci", *options)
    assert code == 0, said


@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 10)
@pytest.mark.skipif(not os.environ.get("FENCEPOST_LONG"), reason="up to three minutes: FENCEPOST_LONG=1 plays it")
def test_the_loop_finds_markers_that_are_not_sent_again(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--cycles", "3", "--transactional", "2", "--seed", "a", "--planted", "lose_markers")
    assert code == 1, said
    assert "VIOLATED" in said
