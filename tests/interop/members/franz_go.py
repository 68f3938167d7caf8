"""Where the program with franz-go comes from: go fetches what go.sum names and builds it, once per checkout."""

import hashlib
import os
import shutil
import subprocess
import time

from tests.interop.members.node import HERE
from tests.kit.one_at_a_time import one_at_a_time

SOURCE = HERE / "franz_go_login"
BUILT = HERE / ".built"
"""Not under version control: the program, and why it could not be built."""
BUILD_SECONDS = 180
"""Go compiles its standard library too, where it has not done so before: a minute of CPU time."""
FAILED_SECONDS = 1800
"""How long nobody tries again to fetch what could not be had."""


class Unavailable(Exception):
    """franz-go cannot be run here; the message says what to install."""


def franz_go() -> str:
    """The program's path. Raises Unavailable."""
    sources = b"".join(path.read_bytes() for path in sorted(SOURCE.iterdir()))
    key = hashlib.sha256(sources).hexdigest()[:16]
    program, failed = BUILT / f"franz_go_login-{key}", BUILT / f"failed-{key}"
    go = shutil.which("go")
    if go is None:
        raise Unavailable("franz-go needs Go 1.26 or newer: install golang")
    with one_at_a_time(BUILT / "lock"):
        if program.exists():
            return str(program)
        if failed.exists() and time.time() - failed.stat().st_mtime < FAILED_SECONDS:
            raise Unavailable(failed.read_text())
        command = [go, "build", "-C", str(SOURCE), "-o", str(program), "."]
        try:
            run = subprocess.run(
                command,
                env=os.environ | {"CGO_ENABLED": "0"},
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS,
                check=False,
            )
            said = run.stderr[-500:]
        except subprocess.TimeoutExpired:
            said = f"nothing for {BUILD_SECONDS} s"
        if not program.exists():
            why = f"franz-go could not be fetched or built (no network?): go said: {said}"
            failed.write_text(f"{why} (to try again at once, remove {failed})")
            raise Unavailable(why)
        return str(program)
