"""All processes of the cores of a start hold their directories together."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.broker.log.storage import lock
from fencepost.broker.log.storage.lock import DirectoryInUse, hold_cores


def test_a_start_waits_until_the_last_process_of_another_one_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 of a supervisor its cores still stop. A frozen one does not end: the start is refused."""
    held = hold_cores(tmp_path)
    inherited = os.dup(held.fileno())
    held.close()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(hold_cores, tmp_path)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        os.close(inherited)
        held = waiting.result(10)
    monkeypatch.setattr(lock, "RELEASE_SECONDS", 0.2)
    with pytest.raises(DirectoryInUse, match="in use by the cores of another broker"):
        hold_cores(tmp_path)
    held.close()
