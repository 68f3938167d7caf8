"""What docs/coming-from.md says of other clients: its programs run, and its defaults are those of the packages."""

import asyncio
import ctypes
import inspect
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka.partitioner
import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka.partitioner.default import murmur2

from fencepost.client.config import ConsumerConfig, TransactionalProducerConfig
from fencepost.client.core.partitioner import partition_for_key
from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.example_programs import send, values

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
PROGRAMS = dict(
    zip(
        ("fencepost", "aiokafka", "confluent-kafka", "kafka-python", "crc32"),
        re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL),
        strict=True,
    )
)
CLIENTS = ("fencepost", "aiokafka", "confluent-kafka", "kafka-python")
ORDERS = 40
WAIT_S = 60.0
KEYS = [b"customer-%d" % n for n in range(64)]
PARTITIONS = 7


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("coming-from"), settings=settings) as broker:
        yield broker.address


def bill_with(name: str, address: str, directory: Path, enough: int) -> None:
    """Run a program of the page until there is an invoice for each order, and take it out of its group."""
    path = directory / "program.py"
    path.write_text(PROGRAMS[name].replace("127.0.0.1:9092", address))
    with subprocess.Popen([sys.executable, path], stderr=subprocess.PIPE, text=True) as process:
        try:
            ends = time.monotonic() + WAIT_S
            while values(address, "invoices").total() < enough:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < ends, f"{name} does not bill"
                time.sleep(0.2)
        finally:
            process.kill()
    with Client(address) as client, client.admin() as admin:
        members = [member.member_id for member in admin.describe_groups("billing")["billing"].members]
        admin.remove_members("billing", member_ids=members)


def test_each_program_goes_on_where_the_one_of_another_client_stopped(address: str, tmp_path: Path) -> None:
    """The offsets are in the broker: four clients in turn bill each order once."""
    with Client(address) as client, client.admin() as admin:
        admin.create_topics("orders", partitions=2)
        admin.create_topics("invoices", partitions=2)
    order = [*CLIENTS[1:], CLIENTS[0]]
    for turn, name in enumerate(order, 1):
        numbers = range((turn - 1) * ORDERS, turn * ORDERS)
        send(address, "orders", *((b"%d" % n, b"order %d" % n) for n in numbers))
        bill_with(name, address, tmp_path, turn * ORDERS)
    assert values(address, "invoices") == values(address, "orders")


def librdkafka_defaults() -> dict[str, str]:
    """What librdkafka itself lists, by its own names."""
    (path,) = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka-*")
    library = ctypes.CDLL(str(path))
    found: dict[str, str] = {}
    for kind in ("rd_kafka_topic_conf", "rd_kafka_conf"):
        new, dump = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_dump")
        new.restype = ctypes.c_void_p
        dump.restype, dump.argtypes = ctypes.POINTER(ctypes.c_char_p), [ctypes.c_void_p, ctypes.c_void_p]
        count = ctypes.c_size_t()
        listed = dump(new(), ctypes.byref(count))
        texts = [listed[index].decode() for index in range(count.value)]
        found.update(zip(texts[::2], texts[1::2], strict=True))
    return found


LISTED_AS = {"acks": "request.required.acks", "linger.ms": "queue.buffering.max.ms"}
"""The names under which librdkafka lists a setting that has two."""
NOT_A_SETTING = "\N{EN DASH}"
TEXTS = {"-1": "all", "largest": "latest", "True": "true", "False": "false", "None": "none"}


def plain(value: Any) -> str:
    """A default as the page writes it."""
    names = [str(getattr(one, "name", one)) for one in value] if isinstance(value, tuple) else str(value).split(",")
    return ", ".join(TEXTS.get(name, name) for name in names)


def keywords(*functions: Any) -> dict[str, Any]:
    return {name: one.default for each in functions for name, one in inspect.signature(each).parameters.items()}


def settings_of(client: str) -> dict[str, Any]:
    """The defaults that an installed client has, by Kafka's names."""
    if client == "confluent-kafka":
        listed = librdkafka_defaults()
        return {name: listed[LISTED_AS.get(name, name)] for name in TABLE}
    if client == "kafka-python":
        found = kafka.KafkaProducer.DEFAULT_CONFIG | kafka.KafkaConsumer.DEFAULT_CONFIG
    elif client == "aiokafka":
        found = keywords(AIOKafkaProducer, AIOKafkaConsumer)
        found["batch_size"] = found["max_batch_size"]
        del found["acks"]  # it depends on enable_idempotence: test_the_acks_of_aiokafka
    else:
        configs = (TransactionalProducerConfig(), ConsumerConfig())
        found = {name: getattr(config, name) for config in configs for name in type(config).__dataclass_fields__}
        found["isolation_level"] = found["isolation_level"].name.lower()
        found["auto_offset_reset"] = found["auto_offset_reset"][0]
    return {name.replace("_", "."): value for name, value in found.items()}


def table() -> dict[str, dict[str, str]]:
    """The rows of the page: setting, client, default."""
    section = PAGE.partition("\n## Defaults that differ\n")[2].partition("\n## ")[0].replace("`", "")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


TABLE = table()


@pytest.mark.parametrize("client", CLIENTS)
def test_the_defaults_are_those_of_the_installed_package(client: str) -> None:
    page = {name: row[client] for name, row in TABLE.items() if row[client] != NOT_A_SETTING}
    real = {name: plain(value) for name, value in settings_of(client).items() if name in page}
    if client == "aiokafka":
        real["acks"] = "1"
    assert len(page) > 10
    assert real == page


def test_the_acks_of_aiokafka(address: str) -> None:
    """Without idempotence one replica acknowledges."""

    async def acks(**options: Any) -> Any:
        async with AIOKafkaProducer(bootstrap_servers=address, **options) as producer:
            return producer._sender._acks

    assert asyncio.run(acks()) == 1
    assert asyncio.run(acks(enable_idempotence=True)) == -1


def test_the_page_names_the_installed_versions() -> None:
    named = dict(re.findall(r"\*\*([\w-]+) (\d[\d.]*)\*\*", PAGE))
    assert named == {client: version(client) for client in CLIENTS[1:]}


def test_keys_of_the_three_python_clients_go_where_javas_go() -> None:
    """Both others have the hash of Java's client, as ours has."""
    numbers = list(range(PARTITIONS))
    for key in KEYS:
        assert aiokafka.partitioner.DefaultPartitioner()(key, numbers, numbers) == partition_for_key(key, PARTITIONS)
        assert (murmur2(key) & 0x7FFFFFFF) % PARTITIONS == partition_for_key(key, PARTITIONS)


def test_confluent_kafka_puts_keys_elsewhere(address: str) -> None:
    """By CRC-32, unless `murmur2_random` is set; the function of the page follows it."""
    assert librdkafka_defaults()["partitioner"] == "consistent_random"
    with Client(address) as client, client.admin() as admin:
        for topic in ("by-default", "by-murmur2", "by-crc32"):
            admin.create_topics(topic, partitions=PARTITIONS)
        page: dict[str, Any] = {}
        exec(PROGRAMS["crc32"], page)
        with client.producer(partitioner=page["crc32"]) as producer:
            producer.send_many("by-crc32", ((key, b"") for key in KEYS))
    servers = {"bootstrap.servers": address}
    for topic, config in {"by-default": {}, "by-murmur2": {"partitioner": "murmur2_random"}}.items():
        producer = confluent_kafka.Producer({**servers, **config})
        for key in KEYS:
            producer.produce(topic, b"", key)
        assert producer.flush(WAIT_S) == 0
    places = {topic: places_in(address, topic) for topic in ("by-default", "by-murmur2", "by-crc32")}
    assert places["by-default"] == places["by-crc32"] == {key: zlib.crc32(key) % PARTITIONS for key in KEYS}
    assert places["by-murmur2"] == {key: partition_for_key(key, PARTITIONS) for key in KEYS}
    assert places["by-murmur2"] != places["by-default"]


def places_in(address: str, topic: str) -> dict[bytes | None, int]:
    with Client(address) as client, client.consumer(topic) as consumer:
        return {record.key: record.partition for batch in consumer.read_to_end() for record in batch}
