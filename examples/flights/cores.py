"""One broker on several cores with files: one core is killed alone, and later all of them."""

import os
import re
import signal
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import trio

from examples.flights.processes import Broker, NoteKill, ProcessFailed, Tell

VICTIM = 1
"""The core that is killed alone. Core 0 has the metadata, but each has partitions, groups and transactions."""
GO_ON_SECONDS = 2.0
"""Of work between the two kills."""
BACK_SECONDS_MAX = 60.0
ASK_SECONDS = 10.0
STARTS = re.compile(rf"core {VICTIM} starts pid=(\d+)")
PAGES = re.compile(r" metrics=(\S+)")


class Cores(Broker):
    """`fencepost serve --cores` on a directory; its process starts each core."""

    kills_wanted = ("core killed", "broker killed")
    """What has to happen to it in the middle, or nothing was put to the test."""

    def __init__(self, directory: Path, cores: int) -> None:
        where = ["--data", str(directory / "data"), "--cores", str(cores), "--metrics", "127.0.0.1:0"]
        super().__init__(directory, "broker", where)
        self._cores = cores

    async def break_down(self, note: NoteKill, tell: Tell) -> None:
        """Kill one core, which its process starts again; then kill all, and start them again."""
        note("core killed")
        began = trio.current_time()
        victim = self._victim()
        os.kill(victim, signal.SIGKILL)
        tell(f"[bold red]kill -9[/bold red] one of the broker's {self._cores} cores, while everybody works")
        await self._until(lambda: self._victim() != victim)
        await self._until(self._is_ready)
        tell(f"all {self._cores} cores serve again after {trio.current_time() - began:.1f} s")
        await trio.sleep(GO_ON_SECONDS)
        note("broker killed")
        await self.kill_and_wait()
        tell("[bold red]kill -9[/bold red] the broker with all its cores")
        began = trio.current_time()
        await self.start()
        tell(f"the broker is back on its directory and ports after {trio.current_time() - began:.1f} s")

    def _victim(self) -> int:
        """The process id of the core, as the log has it."""
        return int(STARTS.findall(self.log_path.read_text(errors="replace"))[-1])

    def _is_ready(self) -> bool:
        """Whether all cores say so."""
        found = PAGES.search(self.ready_line)
        assert found is not None
        try:
            with urlopen(f"http://{found[1]}/ready", timeout=ASK_SECONDS) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False  # 503, or the core that was asked has died

    async def _until(self, enough: Callable[[], bool]) -> None:
        with trio.move_on_after(BACK_SECONDS_MAX):
            while True:
                if await trio.to_thread.run_sync(enough):
                    return
                await trio.sleep(0.05)
        raise ProcessFailed(f"core {VICTIM} does not serve again; the log ends with:\n{self.log_end()}")
