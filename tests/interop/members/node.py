"""Where node and kafkajs come from: npm fetches what package-lock.json names, once per checkout."""

import shutil
import subprocess
from pathlib import Path

from tests.kit.one_at_a_time import one_at_a_time

HERE = Path(__file__).resolve().parent
FETCH_SECONDS = 120


class Unavailable(Exception):
    """kafkajs cannot be run here; the message says what to install."""


def node() -> str:
    """The node command, with kafkajs there for it. Raises Unavailable."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        raise Unavailable("kafkajs needs Node.js 14 or newer with npm: install nodejs and npm")
    with one_at_a_time(HERE / ".fetching"):
        if not (HERE / "node_modules" / "kafkajs").exists():
            _fetch(npm)
    return found


def _fetch(npm: str) -> None:
    command = [npm, "ci", "--no-audit", "--no-fund"]
    try:
        run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"kafkajs could not be fetched in {FETCH_SECONDS} s (no network?)") from late
    if run.returncode:
        raise Unavailable(f"kafkajs could not be fetched (no network?): npm said: {run.stderr[-500:]}")
