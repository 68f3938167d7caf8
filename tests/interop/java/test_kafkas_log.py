"""Kafka's own log opens our partitions and comes to what we say of them; and we read what it leaves behind."""

from collections.abc import Mapping

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.conftest import StartBroker
from tests.interop.java.jars import RESOLVE_TIMEOUT_SECONDS
from tests.interop.java.kafka_jvm import KafkaJvm, OpenedLog
from tests.interop.java.written import COMPACTED, Shown, Wrote
from tests.kit.stores import needs_files
from tests.kit.wire import Wire, batch_of, records_in, values_in

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(2 * RESOLVE_TIMEOUT_SECONDS + 300),
    needs_files("Kafka's own code reads it"),
]


@pytest.mark.parametrize(
    ("mine", "clean"), [("stopped", True), ("stopped", False), ("killed", False)], indirect=["mine"]
)
def test_kafka_recovers_to_the_same_state(kafka: KafkaJvm, mine: Shown, clean: bool) -> None:
    """L2, P9, I1 to I3: end, LSO, producers and aborted transactions; by the snapshots, or from the batches alone."""
    for place, wrote in mine.wrote.items():
        opened = kafka.open_log(mine.partition(place), clean=clean)
        assert (*_facts(wrote), sorted(wrote.aborted)) == (*_facts(opened), sorted(opened.aborted)), place
    opened = kafka.open_log(mine.partition((COMPACTED, 0)), clean=clean)
    assert _facts(mine.compacted) == _facts(opened)
    assert set(opened.aborted) <= set(mine.compacted.aborted), "where the data is gone, an entry says nothing any more"


def _of_logs(rows: Mapping[str, int]) -> set[str]:
    """Without the rows of checksums and topic ids, which name no topic."""
    return {name for name in rows if not name.startswith("#")}


def test_kafka_reads_the_small_files(kafka: KafkaJvm, shown: Shown) -> None:
    """L1, L2: the checkpoints with our checksums in them, identities, and whether the directory was closed in order."""
    small = kafka.small_files(shown.data_dir)
    assert small.closed_in_order == (shown.state == "stopped")
    assert (len(small.cluster_id), small.node_id) == (22, 1)
    recovery_points = small.offsets["recovery-point-offset-checkpoint"]
    watermarks = small.offsets["replication-offset-checkpoint"]
    assert _of_logs(recovery_points) == _of_logs(watermarks)
    for (topic, partition), wrote in shown.wrote.items():
        assert len(small.topic_ids[f"{topic}-{partition}"]) == 22
        if shown.state == "stopped":
            assert recovery_points[f"{topic}-{partition}"] == wrote.end_offset
    assert small.topic_ids["tv1-0"] == small.topic_ids["tv1-1"]


@pytest.mark.parametrize("mine", ["killed"], indirect=True)
def test_we_go_on_where_kafka_has_written(kafka: KafkaJvm, mine: Shown, start_broker: StartBroker) -> None:
    """The other way round: Kafka recovers our partitions, appends and closes; its indexes and snapshots serve us."""
    broker = start_broker(files=True)
    producer_id = 4711
    added = [
        bytes(batch_of(b"by kafka", b"too", producer_id=producer_id, producer_epoch=0, base_sequence=2 * number))
        for number in range(3)
    ]
    for place in mine.wrote:
        kafka.open_log(mine.partition(place), clean=False, append=added)
    broker.stop()
    assert broker.data_dir is not None
    broker.data_dir = mine.data_dir
    broker.start()
    with Wire(broker.connect()) as wire:
        for (topic, partition), wrote in mine.wrote.items():
            answer = wire.fetch(topic, partition=partition)
            assert values_in(answer)[wrote.records :] == [b"by kafka", b"too"] * 3
            assert answer.high_watermark == wrote.end_offset + 6
            opens = wrote.last_stable_offset < wrote.end_offset
            assert answer.last_stable_offset == (wrote.last_stable_offset if opens else wrote.end_offset + 6)
            committed = wire.fetch(topic, partition=partition, isolation=1)
            aborted = sorted((one.producer_id, one.first_offset) for one in committed.aborted_transactions or ())
            assert aborted == sorted(wrote.aborted)
            again = wire.produce(topic, added[2], partition=partition)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, wrote.end_offset + 4), "P3"
            following = batch_of(b"ours", producer_id=producer_id, producer_epoch=0, base_sequence=6)
            assert wire.produce(topic, following, partition=partition).error_code == ErrorCode.NONE
            assert len(records_in(wire.fetch(topic, partition=partition))) == wrote.records + 7


def _facts(log: Wrote | OpenedLog) -> tuple[object, ...]:
    return log.end_offset, log.last_stable_offset, log.producers
