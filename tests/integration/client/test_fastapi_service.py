"""examples/fastapi_service.py as a real process: SIGTERM in the middle of requests and transactions."""

import re
from itertools import count
from pathlib import Path

from examples.fastapi_service import INVOICES, ORDERS
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.http_service import WAIT_S, Posters, Service, stop_under_load, values


def test_sigterm_loses_no_order_and_bills_none_twice(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        for said in stop_under_load("fastapi_service", broker.address, (ORDERS, INVOICES), 3, tmp_path):
            assert not re.search(r"Traceback|destroyed|never (awaited|retrieved)|unclosed|ResourceWarning", said), said


def test_a_service_that_cannot_bill_any_more_ends(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, Client(broker.address, timeout=WAIT_S) as kafka:
        first = Service("fastapi_service", broker.address, tmp_path / "first.log")
        successor = Service("fastapi_service", broker.address, tmp_path / "successor.log")
        numbers, taken = count(), list[int]()
        posters = [Posters(one.port, numbers, taken, threads=1) for one in (first, successor)]
        said = first.ended()
        assert "billing has failed" in said
        assert "FencedError" in said
        assert "Application shutdown complete" in said
        successor.terminate()
        for poster in posters:
            poster.join()
        assert set(taken) <= set(values(kafka, ORDERS))
