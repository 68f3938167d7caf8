"""Creates the data directory durably, because no later step syncs the directories above it."""

import os
from collections.abc import Callable
from pathlib import Path

from fencepost.broker.log.storage.disk import Disk
from fencepost.broker.log.storage.lock import LOCK_FILE

Sync = Callable[[str], None]
"""Makes the names in a directory durable."""
MODE, MODE_ABOVE = 0o700, 0o777


def make_data_directory(disk: Disk, path: Path, sync: Sync) -> None:
    """Create the directory and its missing parents, and make them durable before any file is in it. Raises OSError.

    An existing empty directory may have been created by hand, or by a process that died before its name was durable.
    Then its name is synced, too, and so are those of the parents that hold nothing else.
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
            return  # a directory that this user cannot open was not created by an earlier run


def _make(disk: Disk, path: Path, mode: int) -> int:
    """Create the directory and its missing parents. Returns the number of created directories."""
    try:
        disk.mkdir(str(path), mode)
    except FileExistsError:
        return 0
    except FileNotFoundError:
        above = _make(disk, path.parent, MODE_ABOVE)
        disk.mkdir(str(path), mode)
        return above + 1
    return 1
