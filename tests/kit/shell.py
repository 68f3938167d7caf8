"""A bash that runs documented commands as a reader runs them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shell(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A bash that finds the installed `fencepost` and `python`. At the end its children are killed, too."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FENCEPOST_DURABILITY": "os"}
    with subprocess.Popen(
        ["bash"], cwd=directory, env=environment, stdin=-1, stdout=-1, stderr=-2, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def run(bash: subprocess.Popen[str], script: str) -> str:
    """Run a block of commands, and return their output."""
    assert bash.stdin is not None
    assert bash.stdout is not None
    bash.stdin.write(f"{script}\necho; echo END\n")
    bash.stdin.flush()
    lines = iter(bash.stdout.readline, "END\n")
    return "".join(lines).removesuffix("\n")
