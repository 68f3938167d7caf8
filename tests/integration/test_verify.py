"""The real command over a real broker's directory: what it says, and what the broker makes of the same damage."""

import json
from pathlib import Path

import pytest
import trio

from tests.kit import damage
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify

SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    trio.run(damage.make, tmp_path / "data", tmp_path / "killed")
    return tmp_path / "data"


def test_a_directory_in_use_is_left_alone(data: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "work", data_dir=data, settings=SETTINGS) as broker:
        told = verify(data)
        assert (told.returncode, told.stdout) == (2, "")
        assert "a broker runs on" in told.stderr
        assert broker.stop() == 0
    assert verify(data).returncode == 0
    assert verify(data, "--topic", "no-such").returncode == 2
    assert verify(tmp_path / "nowhere").returncode == 2


@pytest.mark.parametrize("inside", [None, "note.txt", "orders-0/note.txt"])
def test_what_is_no_data_directory_is_refused(tmp_path: Path, inside: str | None) -> None:
    if inside is not None:
        (tmp_path / inside).parent.mkdir(exist_ok=True)
        (tmp_path / inside).write_text("x")
    for words in ((), ("--json",)):
        told = verify(tmp_path, *words)
        assert (told.returncode, told.stdout) == (2, "")
        assert f"{tmp_path} is not a data directory" in told.stderr


def test_a_data_directory_without_its_identity_is_still_checked(data: Path) -> None:
    for path in data.glob("meta.properties*"):
        path.unlink()
    assert "0 damaged" in verify(data).stdout


def test_a_flipped_bit_is_named_and_costs_one_partition(data: Path, tmp_path: Path) -> None:
    before = contents(data)
    whole = verify(data)
    assert (whole.returncode, contents(data)) == (0, before), "nothing is written"
    assert "0 damaged" in whole.stdout
    path = data / "orders-1" / f"{0:020d}.txnindex"
    hurt = bytearray(path.read_bytes())
    hurt[9] ^= 4
    path.write_bytes(hurt)
    state = data / "__transaction_state-0" / f"{0:020d}.log"
    hurt = bytearray(state.read_bytes())
    hurt[100] ^= 1
    state.write_bytes(hurt)

    told = verify(data)
    assert told.returncode == 1
    assert "orders-1/00000000000000000000.txnindex at byte 0, offset" in told.stdout
    assert "__transaction_state-0/00000000000000000000.log at byte 0, offset 0" in told.stdout
    assert verify(data, "--topic", "orders", "--partition", "2").returncode == 0
    report = json.loads(verify(data, "--json", "--topic", "orders").stdout)
    assert report["damaged"]
    assert {finding["file"] for finding in report["findings"]} == {"orders-1/00000000000000000000.txnindex"}

    with BrokerProcess(tmp_path / "work", data_dir=data, settings=SETTINGS) as broker:
        log = broker.log()
        assert log.count("__transaction_state-0 cannot be replayed") == 1
        assert broker.stop() == 0
