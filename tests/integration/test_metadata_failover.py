"""KIP-868 on real files: a broker that dies between the batches of a metadata transaction takes all of it back."""

from pathlib import Path
from typing import Any

from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from fencepost.protocol.metadata_records import decode_metadata_record
from fencepost.protocol.records import decode_records
from tests.kit.broker_process import BrokerProcess
from tests.kit.segment_files import batches_in
from tests.kit.wire import Wire

METADATA = 3
PARTITIONS = 12_000
"""More than the 10,000 records that one batch may have."""


def metadata_log(broker: BrokerProcess) -> Path:
    assert broker.data_dir is not None
    return broker.data_dir / "__cluster_metadata-0" / f"{0:020d}.log"


def batches(path: Path) -> list[tuple[int, list[MetadataRecord]]]:
    """Where each batch starts in the file, and its records."""
    data = path.read_bytes()[: sum(batch.size_bytes for batch in batches_in(path))]  # room may be reserved behind them
    return [
        (position, [decode_metadata_record(record.value or b"") for record in decode_records(data, position, header)])
        for position, header in iter_headers(data)
    ]


def topic(wire: Wire, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return wire.call(METADATA, 9, request).topics[0]


def test_what_a_crash_left_of_a_transaction_is_aborted_and_never_shows(file_broker: BrokerProcess) -> None:
    """S0 "Controller Failover"; the answer to the creation never left, since it waits for the End."""
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("before")
        wire.create_topic("wide", PARTITIONS)
        assert len(topic(wire, "wide").partitions) == PARTITIONS
    file_broker.kill()

    path = metadata_log(file_broker)
    found = batches(path)
    position, last = found[-1]
    assert isinstance(last[-1], EndTransactionRecord)
    assert isinstance(found[-2][1][0], BeginTransactionRecord), "the transaction is in two batches"
    with path.open("r+b") as file:
        file.truncate(position)

    file_broker.start()
    with Wire(file_broker.connect()) as wire:
        assert topic(wire, "wide").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic(wire, "before").error_code == ErrorCode.NONE
        (_, aborted), (_, [registered]) = batches(path)[-2:]
        assert aborted == [AbortTransactionRecord("Controller failover")]
        assert isinstance(registered, RegisterBrokerRecord), "this life, behind what the one before has left"
        wire.create_topic("wide", 3)
        assert len(topic(wire, "wide").partitions) == 3
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        assert len(topic(wire, "wide").partitions) == 3


def test_topics_configurations_and_features_survive_a_kill(file_broker: BrokerProcess) -> None:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("kept", 2, retention_ms="7")
        before = topic(wire, "kept")
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        assert topic(wire, "kept") == before
