"""The plugin `-p fencepost.testing.kafka_fixtures`, in a run of pytest of its own: beside such plugins, and alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT

pytestmark = pytest.mark.interop

SUITE = """
import asyncio

def test_pytest_kafka_broker(kafka_broker, fencepost_broker):
    producer = kafka_broker.producer({"enable.idempotence": True})
    producer.produce("orders", b"one")
    producer.flush()
    fencepost_broker.assert_exactly_once("orders", ["one"])
    assert "orders" in kafka_broker.admin().list_topics(timeout=10).topics
    consumer = kafka_broker.consumer({"group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert consumer.poll(10).value() == b"one"
    consumer.close()

def test_its_asynchronous_clients(kafka_broker, fencepost_broker):
    async def use():
        producer = kafka_broker.aio_producer()
        sent = await producer.produce("orders", b"two")
        await producer.flush()
        await sent
        await producer.close()
        consumer = kafka_broker.aio_consumer({"group.id": "billing", "auto.offset.reset": "earliest"})
        await consumer.subscribe(["orders"])
        assert (await consumer.poll(10)).value() == b"two"
        await consumer.close()
    asyncio.run(use())

def test_pytest_kafka(kafka_server):
    from kafka import KafkaProducer
    process, port = kafka_server
    producer = KafkaProducer(bootstrap_servers=f"localhost:{port}")
    producer.send("orders", b"three").get(10)
    producer.close()
    assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=5) == process.poll() == 0
"""
OTHERS = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--kafka", action="store_true")

@pytest.fixture
def kafka_broker():
    raise AssertionError("it downloads Kafka")

@pytest.fixture
def kafka_server():
    raise AssertionError("it starts a JVM")
"""


@pytest.mark.parametrize("beside", [True, False], ids=["beside the others", "alone"])
def test_suites_of_other_plugins_run_here(tmp_path: Path, beside: bool) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugins = ["fencepost.testing.plugin", "fencepost.testing.kafka_fixtures"]
    if beside:
        (tmp_path / "pytest_kafka_broker.py").write_text(OTHERS)
        plugins.append("pytest_kafka_broker")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--kafka", *(word for name in plugins for word in ("-p", name))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
