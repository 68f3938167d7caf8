"""Runs the FastAPI services of examples/ as processes, and sends orders to them until SIGTERM ends them."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from fencepost.sync import Client
from tests.architecture.project_files import ROOT

WAIT_S = 60.0
POSTERS = 8


class Service:
    """The process of `python -m examples.NAME`, on a port of its own choice."""

    def __init__(self, example: str, address: str, log: Path) -> None:
        self._log = log
        words = [sys.executable, "-X", "dev", "-m", f"examples.{example}", address, "0"]
        with log.open("w") as errors:
            self._process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        ends = time.monotonic() + WAIT_S
        while (found := re.search(r"running on http://127\.0\.0\.1:(\d+)", self.said)) is None:
            assert self._process.poll() is None, self.said
            assert time.monotonic() < ends, self.said
            time.sleep(0.05)
        self.port = int(found[1])

    @property
    def said(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def terminate(self) -> str:
        """SIGTERM; what it said until its end."""
        self._process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> str:
        """What it said until its end, for which this waits."""
        try:
            assert self._process.wait(WAIT_S) in (0, -signal.SIGTERM), self.said
        finally:
            self._process.kill()
            self._process.wait()
        return self.said


class Posters:
    """Threads that post orders to a service until it takes no more; `taken` gets the numbers of those it took."""

    def __init__(self, port: int, numbers: Iterator[int], taken: list[int], threads: int = POSTERS) -> None:
        self._threads = [threading.Thread(target=post, args=(port, numbers, taken)) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have ended."""
        for thread in self._threads:
            thread.join()


def post(port: int, numbers: Iterator[int], taken: list[int]) -> None:
    """Post orders until the service accepts no more."""
    while True:
        number = next(numbers)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        try:
            connection.request("POST", f"/orders/{number}")
            answer = connection.getresponse()
            if answer.status != 200:
                return
            assert json.loads(answer.read()).keys() == {"partition", "offset"}
            taken.append(number)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


def values(kafka: Client, topic: str) -> list[int]:
    """All committed records of a topic as they are now."""
    with kafka.consumer(topic) as consumer:
        return sorted(int(record.value or b"") for batch in consumer.read_to_end() for record in batch)


def stop_under_load(example: str, address: str, topics: tuple[str, str], turns: int, directory: Path) -> list[str]:
    """End a service by SIGTERM in the middle of requests, as often as said; what it logged each time.

    Raises AssertionError where an order that it took is lost, or billed twice, or not billed by the last successor.
    """
    numbers, taken, logs = count(), list[int](), list[str]()
    for turn in range(turns):
        service = Service(example, address, directory / f"service-{turn}.log")
        posters = Posters(service.port, numbers, taken)
        time.sleep(1.0)
        logs.append(service.terminate())
        posters.join()
        assert "Application shutdown complete" in logs[-1]
    assert len(taken) > turns * POSTERS
    with Client(address, timeout=WAIT_S) as kafka:
        orders = values(kafka, topics[0])
        assert set(taken) <= set(orders)
        assert len(set(orders)) == len(orders)
        last = Service(example, address, directory / "last.log")
        ends = time.monotonic() + WAIT_S
        while (invoices := values(kafka, topics[1])) != orders and time.monotonic() < ends:
            time.sleep(0.1)
        last.terminate()
        assert invoices == orders
        assert values(kafka, topics[1]) == orders
    return logs
