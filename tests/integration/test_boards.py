"""Boards and alerts read only what a broker serves: Strimzi's, kafka-exporter's, and our own under deploy/."""

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.conftest import StartBroker
from tests.kit.boards import NOT_THE_BROKERS, STRIMZI, names_in, panels_of
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of

ROOT = Path(__file__).resolve().parents[2]
BOARD = json.loads((ROOT / "deploy/grafana/boards/fencepost.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
OF_A_CLUSTER = ("fencepost_store_", "fencepost_cluster_")
"""A broker with files has none of these; tests/integration/cluster/test_cluster_metrics.py has the names."""


def at_work(broker: BrokerProcess) -> set[str]:
    """The names of the samples of a broker that has done one of each."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        old, new = wire.init_producer_id("id"), wire.init_producer_id("id")
        for producer in (new, old):  # the second one is fenced
            batch = batch_of(
                b"x", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
            )
            wire.produce("t", batch, version=12, transactional_id="id")
        wire.end_txn("id", new, commit=True)
        wire.fetch("t")
        wire.commit_offsets("g", "t", 1)
    with urllib.request.urlopen(f"http://{broker.facts['metrics']}/metrics", timeout=100) as response:
        lines = response.read().decode().splitlines()
    return {line.partition("{")[0].partition(" ")[0] for line in lines if line and not line.startswith("#")}


@pytest.fixture
def served(start_broker: StartBroker) -> set[str]:
    return at_work(start_broker(files=True, arguments=["--metrics", "127.0.0.1:0"]))


def test_no_panel_is_empty(served: set[str]) -> None:
    """Those that mean something here; `up` is Prometheus' own."""
    for board, panels in STRIMZI.items():
        for title, names in panels.items():
            assert set(names) - served <= NOT_THE_BROKERS.keys(), (board, title)
    ours = dict(panels_of(BOARD))
    assert len(ours) >= 25
    for title, expressions in ours.items():
        missing = set().union(*map(names_in, expressions)) - served - {"up"}
        assert {name for name in missing if not name.startswith(OF_A_CLUSTER)} == set(), title
    for rule in RULES:
        missing = names_in(rule["expr"]) - served - {"up"}
        assert {name for name in missing if not name.startswith(OF_A_CLUSTER)} == set(), rule["alert"]
    assert NOT_THE_BROKERS.keys().isdisjoint(served)


def test_an_alert_says_what_follows_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES) == 12
    for rule in RULES:
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (it comes with Prometheus)")
def test_each_alert_fires_for_its_cause_and_not_without() -> None:
    command = ["promtool", "test", "rules", "deploy/alerts.test.yml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_names_in_an_expression_are_found() -> None:
    expression = 'sum by (a) (rate(x_total{b="c"}[5m])) / topk(3, y:z > 1e9) or z{d=~"$e"}'
    assert names_in(expression) == {"x_total", "y:z", "z"}
