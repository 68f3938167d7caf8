"""Kafka's DumpLogSegments reads our directory: every file, after a stop, after kill -9, and after the next start."""

import json
from collections import Counter
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from tests.interop.java.dumped import Dumped, DumpedFile, newest_by_key, read_dump
from tests.interop.java.jars import RESOLVE_TIMEOUT_SECONDS
from tests.interop.java.kafka_jvm import KafkaJvm, ToolFailed
from tests.interop.java.written import CODECS, COMPACTED, COPIER, GROUP, TOMBSTONE, Place, Shown
from tests.kit.segment_files import batches_in, batches_of, txn_entries
from tests.kit.stores import needs_files

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(2 * RESOLVE_TIMEOUT_SECONDS + 300),
    needs_files("Kafka's own code reads it"),
]

DEEP = ("--deep-iteration", "--print-data-log")
ALL_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
COMPLETE_COMMIT, COMPLETE_ABORT, ONGOING = 4, 5, 1
OFFSET_ENTRY, TIME_ENTRY = Struct(">ii"), Struct(">qi")


def dump(kafka: KafkaJvm, files: list[Path], *options: str) -> Dumped:
    """A run of the tool that complains of nothing but the room that a kill leaves behind the last batch."""
    dumped = read_dump(kafka.dump(files, *options))
    assert set(dumped.complaints) <= {invalid for path in files if (invalid := room_behind(path))}
    assert list(dumped.files) == [str(path) for path in files]
    return dumped


def room_behind(path: Path) -> str:
    """What the tool says of the room behind the batches of a log; nothing where there is none."""
    if path.suffix != ".log":
        return ""
    room = path.stat().st_size - sum(batch.size_bytes for batch in batches_in(path))
    return f"Found {room} invalid bytes at the end of {path.name}" if room else ""


def of_partition(dumped: Dumped, shown: Shown, place: Place, suffix: str) -> list[DumpedFile]:
    """The files of one partition with a suffix, by offset."""
    directory = str(shown.partition(place)) + "/"
    return [file for name, file in dumped.files.items() if name.startswith(directory) and name.endswith(suffix)]


def decoded(kafka: KafkaJvm, shown: Shown, topic: str, decoder: str) -> list[tuple[Any, Any]]:
    """Keys and payloads of a topic of the broker's own, in order within each partition."""
    files = sorted(shown.data_dir.glob(f"{topic}-*/*.log"))
    assert files
    records = [record for file in dump(kafka, files, decoder).files.values() for record in file.records]
    return [tuple(None if text is None else json.loads(text) for text in (r["key"], r["payload"])) for r in records]


def test_every_batch_is_valid_and_as_many_as_were_written(kafka: KafkaJvm, shown: Shown) -> None:
    """Section 0, rows 1 to 4: batches, records and markers, by count and against a reader of our own."""
    dumped = dump(kafka, shown.files(".log"), *DEEP)
    codecs: Counter[str] = Counter()
    for place, wrote in shown.wrote.items():
        files = of_partition(dumped, shown, place, ".log")
        batches = [batch for file in files for batch in file.batches]
        codecs.update(batch["codec"] for batch in batches)
        assert sum(len(file.records) for file in files) == wrote.records, place
        markers = sum((file.markers for file in files), Counter())
        assert (markers["COMMIT"], markers["ABORT"]) == (wrote.commits, wrote.aborts), place
        if wrote.batches is not None:
            assert len(batches) == wrote.batches, place
        assert [(int(b["base"]), int(b["last"]), int(b["pid"]), b["control"] == "true") for b in batches] == [
            (b.base_offset, b.last_offset, b.producer_id, b.is_control) for b in batches_of(shown.partition(place))
        ], place
        assert int(batches[-1]["last"]) + 1 == wrote.end_offset
    assert set(codecs) == set(CODECS)
    assert max(len(of_partition(dumped, shown, place, ".log")) for place in shown.wrote) > 3, "several segments"


@pytest.mark.parametrize("shown", ["stopped", "recovered"], indirect=True)
def test_indexes_agree_with_the_log(kafka: KafkaJvm, shown: Shown) -> None:
    """L1: the tool looks every entry up in the log and names those that do not agree."""
    files = shown.files(".index", ".timeindex")
    entries = {name: file.entries for name, file in dump(kafka, files).files.items()}
    assert sum(count for name, count in entries.items() if name.endswith(".index")) > 20
    assert sum(count for name, count in entries.items() if name.endswith(".timeindex")) > 20
    dump(kafka, files, "--verify-index-only")
    dump(kafka, files, "--index-sanity-check")


@pytest.mark.parametrize("shown", ["stopped", "recovered"], indirect=True)
def test_index_entries_are_those_that_kafka_would_write(shown: Shown) -> None:
    """L1, stricter than the tool: the last offset of a batch and where it begins; the latest timestamp so far."""
    for log in shown.files(".log"):
        base, batches = int(log.stem), list(batches_in(log))
        starts = {(batch.last_offset - base, batch.position) for batch in batches}
        assert set(OFFSET_ENTRY.iter_unpack(_bytes_of(log.with_suffix(".index")))) <= starts
        latest, peaks = -1, set()
        for batch in batches:
            if batch.max_timestamp_ms > latest:
                latest = batch.max_timestamp_ms
                peaks.add((latest, batch.last_offset - base))
        times = list(TIME_ENTRY.iter_unpack(_bytes_of(log.with_suffix(".timeindex"))))
        assert set(times) <= peaks
        if shown.state == "stopped":
            assert times[-1][0] == latest


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("shown", ["stopped", "recovered"], indirect=True)
def test_the_aborted_index_has_each_abort_once(kafka: KafkaJvm, shown: Shown) -> None:
    """I2, I3: what the tool finds in `.txnindex` are the aborts, and what Fetch told of them."""
    dumped = dump(kafka, shown.files(".txnindex"))
    found = 0
    for place, wrote in shown.wrote.items():
        entries = [entry for file in of_partition(dumped, shown, place, ".txnindex") for entry in file.aborted]
        assert [tuple(entry) for entry in txn_entries(shown.partition(place))] == entries
        if shown.state == "stopped":  # a running broker keeps the last entries in memory
            assert sorted(entry[:2] for entry in entries) == sorted(wrote.aborted)
            assert len(entries) == wrote.aborts
        found += len(entries)
    assert found > 10


def test_producer_snapshots_are_what_the_broker_says(kafka: KafkaJvm, directories: dict[str, Shown]) -> None:
    """P9: Kafka's reader takes its entries and passes over the duplicate windows that follow them."""
    shown = directories["stopped"]
    dumped = dump(kafka, shown.files(".snapshot"))
    for place, wrote in shown.wrote.items():
        newest = of_partition(dumped, shown, place, ".snapshot")[-1]
        assert {
            int(one["pid"]): (int(one["epoch"]), int(one["sequence"] or -1), int(one["begun"] or -1))
            for one in newest.producers
        } == wrote.producers, place
    sections = [path.read_bytes().count(b"fpw1") for path in shown.files(".snapshot")]
    assert sum(sections), "our own section was there to be passed over"


def test_offsets_and_groups_can_be_read(kafka: KafkaJvm, shown: Shown) -> None:
    """G8: members, offsets, and the offsets of a transaction, behind Kafka's own decoder."""
    records = decoded(kafka, shown, "__consumer_offsets", "--offsets-decoder")
    offsets = [
        payload["data"]["offset"]
        for key, payload in records
        if key is not None and key["type"] == "1" and key["data"] == {"group": GROUP, "topic": "plain", "partition": 0}
    ]
    assert offsets == [200, 7, 9]
    groups = [payload["data"] for key, payload in records if key is not None and key["type"] == "2"]
    assert any(member["assignment"] for group in groups for member in group["members"])
    assert groups[-1]["members"] == []


def test_transactions_can_be_read(kafka: KafkaJvm, shown: Shown) -> None:
    """T14: the last record of each transactional id says how its last transaction stands."""
    state = {
        key["data"]["transactionalId"]: payload["data"]["transactionStatus"]
        for key, payload in decoded(kafka, shown, "__transaction_state", "--transaction-log-decoder")
    }
    assert state.keys() == {"tv1", "tv2", "mixed-a", "mixed-b", "mixed-c", "compact-1", "compact-2", COPIER}
    assert state[COPIER] == COMPLETE_ABORT
    assert state["mixed-a"] == (COMPLETE_COMMIT if shown.state == "stopped" else ONGOING)


def test_metadata_can_be_read(kafka: KafkaJvm, shown: Shown) -> None:
    """M1: every record of the metadata log is one of KRaft's."""
    payloads = [payload for _, payload in decoded(kafka, shown, "__cluster_metadata", "--cluster-metadata-decoder")]
    topics = {payload["data"]["name"] for payload in payloads if payload["type"] == "TOPIC_RECORD"}
    assert {name for name, _ in shown.wrote} <= topics
    assert any(payload["type"] == "PRODUCER_IDS_RECORD" for payload in payloads)


def test_a_compacted_partition_is_as_valid_as_any(kafka: KafkaJvm, shown: Shown) -> None:
    """L4 to L6: batches written anew, empty ones, tombstones and markers with a delete horizon among them."""
    directory = shown.data_dir / f"{COMPACTED}-0"
    dumped = dump(kafka, sorted(directory.glob("*.log")), *DEEP)
    records = [record for file in dumped.files.values() for record in file.records]
    assert 0 < len(records) < shown.compacted.records // 2
    batches = [batch for file in dumped.files.values() for batch in file.batches]
    assert int(batches[-1]["last"]) + 1 == shown.compacted.end_offset
    assert any(batch["horizon"] != ".empty" for batch in batches)
    left = {key: value for key, value in newest_by_key(dumped).items() if value != TOMBSTONE}
    assert left == {key: value for key, value in shown.newest.items() if value != TOMBSTONE}
    if shown.state != "killed":
        indexes = sorted(path for path in directory.iterdir() if path.suffix in ALL_SUFFIXES and path.suffix != ".log")
        dump(kafka, indexes)
        dump(kafka, [path for path in indexes if path.suffix in (".index", ".timeindex")], "--index-sanity-check")


@pytest.mark.parametrize("mine", ["stopped"], indirect=True)
def test_the_tool_would_have_complained(kafka: KafkaJvm, mine: Shown) -> None:
    """A flipped bit in a record and a wrong position in an index: what the tests above would have seen."""
    log = mine.files(".log")[0]
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    assert any("isvalid: false" in line for line in read_dump(kafka.dump([log])).complaints)
    index = next(path for path in mine.files(".index") if path.stat().st_size >= 16)
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    with pytest.raises(ToolFailed):  # it meets no batch there
        kafka.dump([index])
