"""Run one command and kill it for sure when whoever started this program is gone, however that one ended.

`python warden.py COMMAND...` prints the command's process id and lives as long as the command. The end of standard
input says that nobody is left who could stop the command, which is then killed. A program of its own, because a fixture
that should do this is not run when pytest itself is killed.
"""

import os
import subprocess
import sys
import threading


def main() -> int:
    """Start the command, and watch both its parent and it."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    print(child.pid, flush=True)

    def kill_with_parent() -> None:
        while os.read(0, 1 << 10):
            pass
        child.kill()

    threading.Thread(target=kill_with_parent, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
