"""examples/fastapi_service.py as a real process: SIGTERM in the middle of requests and transactions."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

from examples.fastapi_service import INVOICES, ORDERS
from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

WAIT_S = 60.0
POSTERS = 8


class Service:
    """The process, on a port of its own choice."""

    def __init__(self, address: str, log: Path) -> None:
        self._log = log
        words = [sys.executable, "-X", "dev", "-m", "examples.fastapi_service", address, "0"]
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


def post(port: int, numbers: "count[int]", taken: list[int]) -> None:
    """Post orders until nobody takes them any more."""
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


def test_sigterm_loses_no_order_and_bills_none_twice(tmp_path: Path) -> None:
    numbers, taken = count(), list[int]()
    with BrokerProcess(tmp_path) as broker, Client(broker.address, timeout=WAIT_S) as kafka:
        for turn in range(3):
            service = Service(broker.address, tmp_path / f"service-{turn}.log")
            posters = [threading.Thread(target=post, args=(service.port, numbers, taken)) for _ in range(POSTERS)]
            for poster in posters:
                poster.start()
            time.sleep(1.0)
            said = service.terminate()
            for poster in posters:
                poster.join()
            assert "Application shutdown complete" in said
            assert not re.search(r"Traceback|destroyed|never (awaited|retrieved)|unclosed|ResourceWarning", said), said
        assert len(taken) > 3 * POSTERS
        orders = values(kafka, ORDERS)
        assert set(taken) <= set(orders)
        assert len(set(orders)) == len(orders)
        last = Service(broker.address, tmp_path / "last.log")
        ends = time.monotonic() + WAIT_S
        while (invoices := values(kafka, INVOICES)) != orders and time.monotonic() < ends:
            time.sleep(0.1)
        last.terminate()
        assert invoices == orders
        assert values(kafka, INVOICES) == orders


def test_a_service_that_cannot_bill_any_more_ends(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Client(broker.address, timeout=WAIT_S) as kafka:
        first = Service(broker.address, tmp_path / "first.log")
        successor = Service(broker.address, tmp_path / "successor.log")
        numbers, taken = count(), list[int]()
        posters = [threading.Thread(target=post, args=(one.port, numbers, taken)) for one in (first, successor)]
        for poster in posters:
            poster.start()
        said = first.ended()
        assert "billing has failed" in said
        assert "FencedError" in said
        assert "Application shutdown complete" in said
        successor.terminate()
        for poster in posters:
            poster.join()
        assert set(taken) <= set(values(kafka, ORDERS))
