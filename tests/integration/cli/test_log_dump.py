"""`fencepost log dump` of the files of a broker, and of damaged ones."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest
from click.testing import CliRunner, Result

from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.log.recovery.snapshots import encode_snapshot
from fencepost.cli.main import cli
from fencepost.protocol.batch_header import HEADER_SIZE, read_header
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of


def dump(*words: object) -> Result:
    return CliRunner().invoke(cli, ["log", "dump", *map(str, words)])


def lines(*words: object) -> list[Any]:
    done = dump(*words, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A partition with a plain record, a committed, an aborted and an open transaction; its broker still runs."""
    place = tmp_path_factory.mktemp("dumped")
    with BrokerProcess(place, data_dir=place / "data") as broker, Wire(broker.connect()) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"plain", b"\xff\x00"))
        for number, end in enumerate((True, False, None)):
            producer = wire.init_producer_id(f"id{number}")
            data = batch_of(
                b"in %d" % number,
                transactional=True,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
            )
            wire.produce("t", data, version=12, transactional_id=f"id{number}")
            if end is not None:
                wire.end_txn(f"id{number}", producer, commit=end)
        yield place / "data" / "t-0"


def test_each_batch_has_its_outcome(log: Path) -> None:
    found = [line for line in lines(log) if "base_offset" in line]
    outcomes = [(line["base_offset"], line["last_offset"], line["outcome"], line["control"]) for line in found]
    assert outcomes == [
        (0, 1, None, None),
        (2, 2, "committed", None),
        (3, 3, None, "COMMIT"),
        (4, 4, "aborted", None),
        (5, 5, None, "ABORT"),
        (6, 6, "open", None),
    ]
    assert found[2]["coordinator_epoch"] == 0
    assert all(line["damage"] is None for line in found)
    assert {line["producer_id"] for line in found[1:3]} == {found[1]["producer_id"]}


def test_the_text_is_a_line_for_each_batch(log: Path) -> None:
    done = dump(log)
    assert done.exit_code == 0
    first, head, *rest = done.stdout.splitlines()
    assert first == str(log / f"{0:020d}.log")
    assert head.split()[:4] == ["OFFSETS", "POSITION", "BYTES", "RECORDS"]
    assert [line.split()[0] for line in rest[:6]] == ["0..1", "2", "3", "4", "5", "6"]
    assert rest[2].endswith("COMMIT (coordinator epoch 0)")
    assert rest[3].endswith(" aborted")
    assert rest[6].endswith("are reserved"), "space of the last segment is no damage"


def test_records_are_shown(log: Path) -> None:
    first, *_ = lines(log / f"{0:020d}.log", "--records")
    assert [(record["offset"], record["key"], record["value"]) for record in first["content"]] == [
        (0, None, "plain"),
        (1, None, "\\xff\x00"),
    ]
    assert "value='plain'" in dump(log, "--records").stdout
    assert r"value='\xff\x00'" in dump(log, "--records").stdout


def test_only_aborted_ones_are_shown(log: Path) -> None:
    assert [line["base_offset"] for line in lines(log, "--aborted") if "base_offset" in line] == [4, 5]


def test_the_marker_may_be_in_a_later_segment(log: Path, tmp_path: Path) -> None:
    """The first segment alone would leave its transactions open."""
    data = (log / f"{0:020d}.log").read_bytes()
    cut = next(line["position"] for line in lines(log) if line.get("base_offset") == 3)
    (tmp_path / f"{0:020d}.log").write_bytes(data[:cut])
    (tmp_path / f"{3:020d}.log").write_bytes(data[cut:])
    assert lines(tmp_path / f"{0:020d}.log")[1]["outcome"] == "committed"
    (tmp_path / f"{3:020d}.log").unlink()
    assert lines(tmp_path / f"{0:020d}.log")[1]["outcome"] == "open"


def test_damage_is_shown_and_fails(log: Path, tmp_path: Path) -> None:
    data = bytearray((log / f"{0:020d}.log").read_bytes().rstrip(b"\0"))
    data[HEADER_SIZE] ^= 1
    broken = tmp_path / f"{0:020d}.log"
    broken.write_bytes(data + b"torn end" * 10)
    done = dump(broken)
    assert done.exit_code == 1
    assert "DAMAGED: the CRC does not match" in done.stdout
    assert "are no batch" in done.stdout
    assert "committed" in done.stdout, "later batches are shown all the same"
    assert "fencepost verify" in done.stderr


def test_snapshots_and_indexes_are_shown(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, data_dir=tmp_path / "data") as broker, Wire(broker.connect()) as wire:
        wire.create_topic("t")
        producer = wire.init_producer_id("id")
        data = batch_of(b"x", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0)
        wire.produce("t", data, version=12, transactional_id="id")
        wire.end_txn("id", producer, commit=False)
        assert broker.stop() == 0
    log = tmp_path / "data" / "t-0"
    (index,) = lines(log / f"{0:020d}.txnindex")
    assert (index["first_offset"], index["marker_offset"]) == (0, 1)
    (entry,) = lines(log / f"{2:020d}.snapshot")
    assert (entry["producer_id"], entry["open_since_offset"]) == (producer[0], None)


def test_other_files_are_refused(log: Path, tmp_path: Path) -> None:
    for path, why in ((tmp_path, "has no segments"), (log / "partition.metadata", "is no directory of a log")):
        done = dump(path)
        assert (done.exit_code, why in done.stderr) == (1, True)


def written(log: Path, to: Path, change: Callable[[bytearray], None]) -> Path:
    """The first batch of a log, changed, with a checksum that matches."""
    data = bytearray((log / f"{0:020d}.log").read_bytes()[: read_header(log_bytes(log), whole=False).size_bytes])
    change(data)
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    target = to / f"{0:020d}.log"
    target.write_bytes(data)
    return target


def log_bytes(log: Path) -> bytes:
    return (log / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_records_that_cannot_be_decoded_are_damage_and_no_traceback(
    log: Path, tmp_path: Path, form: tuple[str, ...]
) -> None:
    """A batch with a matching checksum whose record has a wrong length ended in `CorruptBatch`."""

    def lengthen(data: bytearray) -> None:
        data[HEADER_SIZE] = 0x7E

    done = dump(written(log, tmp_path, lengthen), "--records", *form)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    assert "record 0 of 2" in done.stdout
    assert dump(tmp_path / f"{0:020d}.log", *form).exit_code == 0, "without records its checksum counts"


@pytest.mark.parametrize("timestamp_ms", [2**63 - 1, 253_402_300_800_000, 2**55])
def test_a_timestamp_beyond_the_year_9999_is_a_number_of_ms(log: Path, tmp_path: Path, timestamp_ms: int) -> None:
    """`year 292278994 is out of range`; clients choose timestamps, too."""

    def far_away(data: bytearray) -> None:
        data[35:43] = timestamp_ms.to_bytes(8, "big")

    for words in ((), ("--records",)):
        done = dump(written(log, tmp_path, far_away), *words)
        assert done.exit_code == 0, done.output
        assert f"{timestamp_ms} ms" in done.stdout


def test_a_snapshot_with_a_timestamp_beyond_the_year_9999_is_shown(tmp_path: Path) -> None:
    """A place that was not reported."""
    path = tmp_path / f"{2:020d}.snapshot"
    path.write_bytes(encode_snapshot([ProducerEntry(7, 0, 0, 2**62, -1, ())]))
    assert lines(path)[0]["last_timestamp"] == f"{2**62} ms"


def test_a_marker_that_compaction_emptied_is_no_damage(log: Path, tmp_path: Path) -> None:
    """KIP-534: the batch stays, without its record, as long as its producer is known."""

    def emptied(data: bytearray) -> None:
        data[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
        data[21:23] = (0x30).to_bytes(2, "big")
        data[57:61] = bytes(4)
        del data[HEADER_SIZE:]

    (found,) = lines(written(log, tmp_path, emptied))
    assert (found["damage"], found["records"], found["control"]) == (None, 0, "control")
