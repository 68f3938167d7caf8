"""A file system of a few MiB that can be filled and emptied: a tmpfs of the test's own; where mounting is allowed."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILLER = "filler"


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all space but `leave_bytes`."""
        with (self.path / _FILLER).open("ab", buffering=0) as file:
            while True:
                stat = os.statvfs(self.path)
                left = stat.f_bavail * stat.f_frsize - leave_bytes
                if left <= 0:
                    return
                try:
                    file.write(bytes(min(left, 1 << 20)))
                except OSError:
                    return  # somebody else was faster: it is full

    def free(self) -> None:
        """Give the space back."""
        (self.path / _FILLER).unlink()


def why_not() -> str | None:
    """Why no file system can be mounted on this machine; None where one can."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        return "mounting a tmpfs needs root"
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "probe", "/mnt"], capture_output=True, check=False)
    return None if probe.returncode == 0 else f"a tmpfs cannot be mounted here: {probe.stderr.decode().strip()[-200:]}"


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """A tmpfs of that size at `path`, unmounted at the end."""
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "fencepost", str(path)], check=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
