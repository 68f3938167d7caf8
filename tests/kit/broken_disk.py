"""Makes the flushes of one file of a running broker fail, by strace's fault injection; where that works."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ATTACH_TIMEOUT_SECONDS = 100.0


def why_not() -> str | None:
    """Why flushes cannot be made to fail on this machine; None where they can."""
    strace = shutil.which("strace")
    if strace is None:
        return "strace is not installed"
    try:
        probe = subprocess.run(
            [strace, "-f", "-qq", "-e", "inject=fdatasync:error=EIO", sys.executable, "-c", "pass"],
            capture_output=True,
            timeout=ATTACH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "strace does not come to an end"
    return None if probe.returncode == 0 else f"strace may not trace here: {probe.stderr.decode().strip()[-200:]}"


@contextmanager
def failing_flushes(pid: int, path: Path) -> Iterator[None]:
    """While this lasts every fdatasync of `path` by process `pid` fails with EIO, and reaches the disk no more."""
    command = ["strace", "-f", "-p", str(pid), "-P", str(path), "-e", "inject=fdatasync:error=EIO", "-o", "/dev/null"]
    tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    try:
        line = tracer.stderr.readline()
        while line and "attached" not in line:
            line = tracer.stderr.readline()
        assert line, f"strace did not attach to process {pid}"
        yield
    finally:
        tracer.terminate()
        tracer.communicate(timeout=ATTACH_TIMEOUT_SECONDS)
