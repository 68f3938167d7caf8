"""What a client is to do, and what it answers: the part that all clients of the comparison share."""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

WARM_UP_TRANSACTIONS = 5
PER_TRANSACTION = 10
PER_POLL = 500
"""Records that every client is asked for in one call when it reads in batches."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run. `count` is records, or transactions of `per_transaction` records; sizes are bytes of the value."""

    mode: str
    bootstrap: str
    topic: str
    size_bytes: int
    count: int
    per_transaction: int = PER_TRANSACTION
    isolation: str = "read_committed"
    linger_ms: int = 5
    compression: str = "none"

    @property
    def value(self) -> bytes:
        """What every record carries."""
        return b"x" * self.size_bytes

    @property
    def name(self) -> str:
        """A transactional id or group of this run's own."""
        return f"{self.topic}-{self.mode}-{os.getpid()}"


@dataclass(slots=True)
class Outcome:
    """What a run came to: `records` done in `seconds`, with the CPU of the whole process (all threads) meanwhile."""

    records: int
    seconds: float
    cpu_seconds: float
    each_seconds: Sequence[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """The figures by name, units in the names."""
        found = {
            "CPU s per million records": self.cpu_seconds / self.records * 1e6,
            "records/s": self.records / self.seconds,
        }
        if self.each_seconds:
            ordered = sorted(self.each_seconds)
            found |= {
                "transactions/s": len(ordered) / self.seconds,
                "ms p50": statistics.median(ordered) * 1e3,
                "ms p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1e3,
            }
        return found


class Watch:
    """Wall clock and the CPU clock of this process, both in ns, from one instant on."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time_ns(), time.perf_counter_ns()

    def stop(self, records: int, each_seconds: Sequence[float] = ()) -> Outcome:
        """What it took to do `records`."""
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        return Outcome(records, (wall - self._wall) / 1e9, (cpu - self._cpu) / 1e9, each_seconds)


class Laps:
    """Times rounds, of which the first few only warm up: `lap()` after each."""

    def __init__(self, count: int) -> None:
        self.total = count + WARM_UP_TRANSACTIONS
        self._times: list[float] = []
        self._watch = Watch()
        self._done = 0
        self._last = 0.0

    def lap(self) -> None:
        """A round is over."""
        now = time.perf_counter()
        self._done += 1
        if self._done > WARM_UP_TRANSACTIONS:
            self._times.append(now - self._last)
        elif self._done == WARM_UP_TRANSACTIONS:
            self._watch = Watch()
        self._last = now

    @property
    def over(self) -> bool:
        """All rounds are done."""
        return self._done >= self.total

    def stop(self, per_round: int) -> Outcome:
        """What the rounds behind the first few took."""
        return self._watch.stop(len(self._times) * per_round, self._times)


class ClientBench(Protocol):
    """One library. A method per mode; connecting and metadata stay outside of what it measures."""

    name: str

    def version(self) -> str:
        """The library's version, and that of what is below it."""
        ...

    def run(self, job: Job) -> Outcome:
        """Do `job`; NotImplementedError where the library has no such thing."""
        ...


def by_mode(client: Any, job: Job) -> Any:
    """The method of `client` that does the job."""
    method = getattr(client, job.mode, None)
    if method is None:
        raise NotImplementedError(f"{client.name} has no {job.mode}")
    return method(job)
