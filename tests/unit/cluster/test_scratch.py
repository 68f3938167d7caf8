"""The directories of caches: each belongs to one run, and those of killed brokers are deleted."""

import subprocess
import sys
from pathlib import Path

import trio

from fencepost.broker.cluster.serving.scratch import PREFIX, Scratch, remove_abandoned, remove_later

HOLD = """
import sys, time
import trio

from fencepost.broker.cluster.serving.scratch import Scratch
print(Scratch(sys.argv[1]).path, flush=True)
time.sleep(600)
"""


def test_a_killed_brokers_directory_is_deleted_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    mine = Scratch(str(tmp_path))
    (mine.path / "tails").mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        (theirs / "rows").write_bytes(b"cached")
        remove_abandoned(str(tmp_path))
        assert mine.path.exists()
        assert theirs.exists()
        other.kill()
    remove_abandoned(str(tmp_path))
    assert [path for path in tmp_path.iterdir() if path.name.startswith(PREFIX)] == [mine.path]
    mine.remove()
    assert not mine.path.exists()


async def test_a_directory_is_deleted_although_the_nursery_is_cancelled(tmp_path: Path) -> None:
    """A broker may be told to end just after it was taken over."""
    mine = Scratch(str(tmp_path))
    async with trio.open_nursery() as services:
        services.start_soon(remove_later, mine)
        services.cancel_scope.cancel()
    assert not mine.path.exists()


def test_other_directories_stay(tmp_path: Path) -> None:
    other = tmp_path / "cache"
    other.mkdir()
    remove_abandoned(str(tmp_path))
    assert other.exists()
