"""Making the data directory so that it lasts: nobody syncs the directories above it later."""

import os
from collections.abc import Callable
from pathlib import Path

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.lock import LOCK_FILE

Sync = Callable[[str], None]
"""Makes the names in a directory durable."""
MODE, MODE_ABOVE = 0o700, 0o777


def make_data_directory(disk: Disk, path: Path, sync: Sync) -> None:
    """Make it, and what is missing above it, durable before anything stands in it. Raises OSError.

    One that is there and holds nothing yet may have been made a moment ago, by a process that died before its name was
    durable, or by hand: then that is made up for, and so it is with the directories above that hold nothing else.
    """
    made = _make(disk, path, MODE)
    if not made and any(entry.name != LOCK_FILE for entry in disk.listing(str(path))):
        return
    for number, above in enumerate(Path(os.path.abspath(path)).parents):
        try:
            sync(str(above))
            if number + 1 >= made and len(disk.listing(str(above))) > 1:
                return
        except PermissionError:
            if number < made:
                raise
            return  # then nobody of our rights has made what is in it


def _make(disk: Disk, path: Path, mode: int) -> int:
    """How many directories were made."""
    try:
        disk.mkdir(str(path), mode)
    except FileExistsError:
        return 0
    except FileNotFoundError:
        above = _make(disk, path.parent, MODE_ABOVE)
        disk.mkdir(str(path), mode)
        return above + 1
    return 1
