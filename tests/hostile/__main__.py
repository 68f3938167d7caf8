"""`python -m tests.hostile [--only TEXT] [--scale 0.1]`: attack real brokers, and print a table.

The exit code is 1 if a promise is broken. Each attack has its own broker, and another client that must not notice it.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.hostile.attacks import ATTACKS, Attack, names
from tests.hostile.other_client import TOPIC, OtherClient
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.wire import Wire

WORST_MS = 100.0
MB = 1e6


class Seen(NamedTuple):
    """What one attack did."""

    name: str
    worst_ms: float
    p99_ms: float
    before_mb: float
    peak_mb: float
    after_mb: float
    tracebacks: int
    note: str
    broken: list[str]

    def __str__(self) -> str:
        memory = f"{self.before_mb:5.0f} {self.peak_mb:6.0f} {self.after_mb:6.0f}"
        verdict = "; ".join(self.broken) or "ok"
        latency = f"{self.worst_ms:8.0f} {self.p99_ms:8.1f}"
        return f"{self.name:45} {latency} {memory} {self.tracebacks:4} {verdict} [{self.note}]"


class Peak(threading.Thread):
    """Watches the RSS of a broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._ended = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        while not self._ended.wait(0.01):
            try:
                self.bytes = max(self.bytes, self._broker.rss_bytes())
            except (BrokerFailed, OSError):
                return

    def end(self) -> float:
        self._ended.set()
        self.join()
        return self.bytes / MB


def attacked(name: str, attack: Attack, work_dir: Path, scale: float) -> Seen:
    """Run one attack, and measure."""
    data_dir = None if attack.memory else work_dir / "data"
    broken = []
    with BrokerProcess(work_dir, data_dir=data_dir, settings=attack.settings) as broker:
        with Wire(broker.connect()) as wire:
            wire.create_topic(TOPIC)
        with OtherClient(broker.port) as other:
            time.sleep(0.5)
            before = broker.rss_bytes() / MB
            peak = Peak(broker)
            peak.start()
            try:
                note = attack.run(broker, scale)
            except (AssertionError, OSError) as error:
                note = f"{type(error).__name__}: {error}"
                broken.append("promise")
            time.sleep(1)
            highest = peak.end()
            after = broker.rss_bytes() / MB
        tracebacks = broker.log().count("Traceback")
    latencies = sorted(other.latencies_ms)
    if latencies[-1] > WORST_MS:
        broken.append("latency")
    if highest - before > attack.growth_mb:
        broken.append(f"memory +{highest - before:.0f}")
    if tracebacks:
        broken.append("tracebacks")
    p99 = latencies[int(len(latencies) * 0.99)]
    return Seen(name, latencies[-1], p99, before, highest, after, tracebacks, note, broken)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", default="", help="Run the attacks whose name contains this text.")
    parser.add_argument("--scale", type=float, default=1.0, help="Size of the attacks. [default: 1]")
    options = parser.parse_args()
    print(
        f"{'attack':45} {'worst ms':>8} {'p99 ms':>8} {'RSS MB: before, peak, after':>19} tracebacks verdict",
        flush=True,
    )
    code = 0
    for name in names(ATTACKS, options.only):
        with tempfile.TemporaryDirectory() as folder:
            seen = attacked(name, ATTACKS[name], Path(folder), options.scale)
        print(seen, flush=True)
        code |= bool(seen.broken)
    return code


if __name__ == "__main__":
    sys.exit(main())
