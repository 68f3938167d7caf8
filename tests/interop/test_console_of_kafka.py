"""Our console against Apache Kafka: all pages, and the buttons that change something."""

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.java.real_kafka import RealKafka
from tests.kit.console import ConsoleProcess, Visitor, wait_for

TRANSACTION_RECORDS = 20


@pytest.fixture(scope="module")
def console(real_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of Kafka."""
    with ConsoleProcess(real_kafka.address, tmp_path_factory.mktemp("console") / "log") as process:
        yield process


@pytest.fixture
def visitor(console: ConsoleProcess) -> Visitor:
    """One browser."""
    return Visitor(console.url)


@pytest.fixture
def name(real_kafka: RealKafka) -> str:
    """A new topic of two partitions; ids are called the same."""
    found, admin = f"console-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": real_kafka.address})
    admin.create_topics([NewTopic(found, 2, 1)])[found].result()
    return found


@pytest.fixture
def producer(real_kafka: RealKafka, name: str) -> Producer:
    """Has written 20 committed records, 20 aborted ones, and one in a transaction that is open."""
    settings = {"bootstrap.servers": real_kafka.address, "transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(TRANSACTION_RECORDS):
            producer.produce(name, f"value {number}", partition=0)
        producer.flush()
        end()
    producer.begin_transaction()
    producer.produce(name, "open", partition=0)
    producer.flush()
    return producer


def read(address: str, group: str, topic: str, count: int) -> None:
    """Read so many records in a group, and commit their offsets."""
    settings = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    ends = time.monotonic() + 60
    while count and time.monotonic() < ends:
        message = consumer.poll(1.0)
        count -= message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    consumer.close()
    assert not count


@pytest.mark.usefixtures("producer")
def test_each_page_has_what_kafka_offers(visitor: Visitor, real_kafka: RealKafka, name: str) -> None:
    read(real_kafka.address, name, name, TRANSACTION_RECORDS)
    pages = {
        "/": f"1 {real_kafka.address} controller",
        f"/topics?q={name}": f"{name} 2 1",
        f"/topics/{name}": "1 partition held back by open transactions",
        f"/topics/{name}/0": "Last stable offset",
        f"/topics/{name}/tail": "read_uncommitted",
        f"/transactions?q={name}": f"Client {name} Ongoing {name}:0",
        f"/transaction?id={name}": f"Holds readers back on {name}:0",
        "/stuck": f"{name}:0 42 43 1 {name}",
        f"/stuck/{name}/0": f"fencepost txn abort {name} --bootstrap {real_kafka.address}",
        "/hanging": "No transaction hangs",
        f"/groups?q={name}": f"{name} Empty classic",
        f"/group?id={name}": f"{name}:0 20 42 43 0",
        "/metadata": "transaction.version 2",
        "/settings": f"broker 1 {real_kafka.address}",
        f"/settings?kind=topic&name={name}": "retention.ms",
        "/settings?kind=broker&name=1": "num.io.threads",
        "/audit": "Only a fencepost broker reports them",
        f"/audit/count?topic={name}&partition=0": "committed transactions 20 Records of aborted transactions 20",
    }
    for path, words in pages.items():
        shown = visitor.get(path)
        assert (shown.status, words in shown.words) == (200, True), (path, shown.words)
    log = visitor.json(f"/data/log/{name}/0")
    assert (log["start"], log["stable"], log["high"]) == (0, 42, 43)
    outcomes = [one["marker"] or one["outcome"] for one in log["batches"]]
    assert outcomes == ["committed", "COMMIT", "aborted", "ABORT", "open"]


def test_a_tail_shows_both_isolation_levels(visitor: Visitor, producer: Producer, name: str) -> None:
    def values(level: str) -> list[str]:
        for kind, data in visitor.events(f"/live-tail/{name}?isolation={level}"):
            if kind == "records" and data["records"]:
                return [one["marker"] or one["value"]["text"] for one in data["records"]]
        return []

    assert values("read_uncommitted")[-2:] == ["ABORT", "open"]
    producer.commit_transaction()
    assert values("read_committed")[-1] == "open"


def test_an_abort_fences_the_client(visitor: Visitor, producer: Producer, name: str) -> None:
    visitor.get(f"/stuck/{name}/0")
    done = visitor.post("/transaction/abort", {"id": name, "sure": "yes"})
    assert (done.status, "is aborted. Its producer" in done.words) == (200, True)
    wait_for(lambda: "nothing holds readers back" in visitor.get(f"/stuck/{name}/0").words)
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction()
    assert refused.value.args[0].name() == "_FENCED"


def test_offsets_and_settings_are_changed(visitor: Visitor, real_kafka: RealKafka, name: str) -> None:
    plain = Producer({"bootstrap.servers": real_kafka.address})
    for number in range(5):
        plain.produce(name, str(number), partition=0)
    plain.flush()
    read(real_kafka.address, name, name, 5)
    visitor.get(f"/group?id={name}")
    fields = {"id": name, "place": f"{name}:0", "way": "to_offset", "value": "3"}
    assert "Nothing is changed yet" in visitor.post("/group/reset", fields).words
    done = visitor.post("/group/reset", {"id": name, "move": f"{name}:0:3", "apply": "yes"})
    assert (done.status, "continues at the new offsets" in done.words) == (200, True)
    assert f"{name}:0 3 5 5 2" in visitor.get(f"/group?id={name}").words
    change = {"kind": "topic", "name": name, "setting": "retention.ms", "value": "1000", "apply": "yes"}
    assert "retention.ms 1000 dynamic topic" in visitor.post("/settings/change", change).words
