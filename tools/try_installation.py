"""Tries an installed fencepost: its version, then records through a broker of its own. Exit code 1: it does not work.

    python tools/try_installation.py [COMMAND...]

COMMAND runs fencepost; without it, `fencepost` of the PATH. Nothing but Python's own library is imported.
"""

import re
import subprocess
import sys

RECORDS = "first\nsecond\n"
TIMEOUT_SECONDS = 60


def run(*words: str, given: str = "") -> str:
    """The output of one command."""
    done = subprocess.run(words, input=given, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT_SECONDS)
    return done.stdout


def main(command: list[str]) -> int:
    """Produce two records in a transaction, and consume them."""
    print(run(*command, "--version"), end="")
    serve = [*command, "serve", "--memory", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            ready = re.match(r"fencepost ready on (\S+)", broker.stdout.readline())
            if ready is None:
                return 1  # it has written the reason to standard error
            run(*command, "produce", "events", "--transaction", "--bootstrap", ready[1], given=RECORDS)
            consumed = run(*command, "consume", "events", "--exit", "--bootstrap", ready[1])
        finally:
            broker.terminate()
    print(f"produced {RECORDS!r}, consumed {consumed!r}, the broker ended with {broker.returncode}")
    return 0 if (consumed, broker.returncode) == (RECORDS, 0) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["fencepost"]))
