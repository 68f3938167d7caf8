"""Brokers of several cores whose wall clocks differ, and jump while they run. Their monotonic clocks are right.

python -m tests.kit.cores_clocks FILE serve --data ... --cores 3
"""

import mmap
import random
import struct
import sys
from pathlib import Path
from typing import Any

from fencepost.__main__ import main
from fencepost.broker.clock import SystemClock
from fencepost.broker.cores.layout import Layout
from fencepost.broker.cores.place import Core
from tests.kit.broker_process import BrokerProcess

MOST = 16
FAR_MS = 50 * 60 * 1000
"""Records of a client with the right time are refused by a broker whose clock is an hour behind
(`message.timestamp.after.max.ms`), as by Kafka."""
_SHIFT = struct.Struct("@q")


class Shifts:
    """By how many ms the wall clock of each core is wrong, in a file that all processes map."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(MOST * _SHIFT.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def get(self, core: int) -> int:
        return int(_SHIFT.unpack_from(self._memory, core * _SHIFT.size)[0])

    def set(self, core: int, ms: int) -> None:
        _SHIFT.pack_into(self._memory, core * _SHIFT.size, ms)

    def jump(self, core: int, chance: random.Random) -> None:
        """Ahead, behind, or right again."""
        self.set(core, chance.choice([0, FAR_MS, -FAR_MS, chance.randint(-FAR_MS, FAR_MS)]))


class ShiftedBroker(BrokerProcess):
    """A broker whose cores have the clocks of `shifts`."""

    def __init__(self, work_dir: Path, **words: Any) -> None:
        super().__init__(work_dir, **words)
        work_dir.mkdir(parents=True, exist_ok=True)
        self.shifts = Shifts(work_dir / "shifts")
        self.launcher = [sys.executable, "-m", "tests.kit.cores_clocks", str(work_dir / "shifts")]

    def command(self) -> list[str]:
        return [*self.launcher, *self.words()]


def shift_clocks(path: Path) -> None:
    """Those of the cores that this process will fork."""
    shifts, own = Shifts(path), 0
    begin, now_ms = Core.__init__, SystemClock.now_ms

    def begun(self: Core, layout: Layout, number: int) -> None:
        nonlocal own
        own = number
        begin(self, layout, number)

    Core.__init__ = begun  # type: ignore[method-assign]
    SystemClock.now_ms = lambda self: now_ms(self) + shifts.get(own)  # type: ignore[method-assign]


if __name__ == "__main__":
    shift_clocks(Path(sys.argv.pop(1)))
    main()
