"""The present broker reads data and metadata of each released version, and continues there (docs/upgrades.md)."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from fencepost import sync
from fencepost.protocol.topics import TopicPartition
from tests.golden.released_data import COMMITTED, NEWEST, OPEN, RELEASES, SETTINGS
from tests.kit.broker_process import BrokerFailed, BrokerProcess
from tests.kit.command_line import command_json, verify
from tests.kit.waiting import until


def values(kafka: sync.Client, topic: str, **options: Any) -> list[tuple[bytes | None, bytes | None]]:
    with kafka.consumer(topic, **options) as consumer:
        return [(record.key, record.value) for batch in consumer.read_to_end() for record in batch]


@pytest.mark.parametrize("release", sorted(RELEASES.iterdir()), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_data_of_a_release_is_read_and_continued(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release) as archive:
        archive.extractall(tmp_path, filter="data")
    with BrokerProcess(tmp_path, data_dir=tmp_path / "data", settings=SETTINGS) as broker:
        with sync.Client(broker.address) as kafka:
            assert [value for _, value in values(kafka, "orders")] == COMMITTED
            assert (None, OPEN) in values(kafka, "orders", isolation="read_uncommitted")
            assert dict(values(kafka, "state")) == NEWEST
            with kafka.admin() as admin:
                assert admin.list_group_offsets("readers")[TopicPartition("orders", 0)].offset >= 1
            with kafka.transactional_producer("ended") as producer, producer.transaction() as transaction:
                transaction.send("state", b"4", key=b"c")
        (rule,) = command_json(broker, "acl", "list")
        assert (rule["principal"], rule["operation"]) == ("User:alice", "READ")
        (limit,) = command_json(broker, "quota", "list")
        assert limit["quotas"] == {"producer_byte_rate": 1_000_000.0}
        assert [one["user"] for one in command_json(broker, "user", "list")] == ["alice"]
        settings = command_json(broker, "config", "get", "topic", "orders")
        assert "-1" in str(settings)
        # It was open, and its timeout has passed since.
        until(lambda: command_json(broker, "txn", "describe", "still-open")["state"] == "CompleteAbort")
        with sync.Client(broker.address) as kafka:
            with kafka.producer() as producer:
                producer.send("orders", b"new")
            assert [value for _, value in values(kafka, "orders")] == [*COMMITTED, b"new"]
            assert dict(values(kafka, "state")) == {**NEWEST, b"c": b"4"}
        assert broker.stop() == 0
    checked = verify(tmp_path / "data")
    assert checked.returncode == 0, checked.stdout


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A downgrade that cannot work ends with a sentence, and changes nothing."""
    with BrokerProcess(tmp_path, data_dir=tmp_path / "data") as broker:
        assert broker.stop() == 0
    for name in ("meta.properties", "meta.properties.twin"):
        path = tmp_path / "data" / name
        lines = path.read_text().replace("version=1", "version=3").splitlines()
        path.write_text("\n".join(line for line in lines if not line.startswith("#")) + "\n")
    before = {path: path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file()}
    with pytest.raises(BrokerFailed, match="has format 3, and this version of fencepost reads formats up to 2"):
        broker.start()
    assert {path: path.read_bytes() for path in before} == before
