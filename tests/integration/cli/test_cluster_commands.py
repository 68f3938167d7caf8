"""`fencepost cluster` against a running broker, as an operator types it (rows D3, D8, M3)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json
from tests.kit.wire import Wire, batch_of


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a directory, so that there is something to measure."""
    work_dir = tmp_path_factory.mktemp("cluster")
    with BrokerProcess(work_dir, data_dir=work_dir / "data") as running:
        yield running


def cluster(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "cluster", *words)


def told(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    return command_json(broker, "cluster", *words)


def test_the_cluster_is_described(broker: BrokerProcess) -> None:
    """Row D3: DescribeCluster, and the quorum of the metadata where the broker tells of it."""
    found = told(broker, "describe")
    assert found["cluster_id"]
    assert found["controller_id"] == 1
    (one,) = found["brokers"]
    assert (one["broker_id"], one["host"], one["port"], one["controller"]) == (1, broker.host, broker.port, True)
    assert found["features"]["transaction.version"] == {"level": 2, "supported": [0, 2]}
    text = cluster(broker, "describe").stdout
    assert re.search(rf"^cluster id +{re.escape(found['cluster_id'])}$", text, re.MULTILINE)
    assert re.search(rf"^ +1 +{re.escape(broker.host)} +{broker.port} +- +controller$", text, re.MULTILINE), text
    assert told(broker, "brokers") == found["brokers"]


def test_features_are_shown_and_set(broker: BrokerProcess) -> None:
    """Row M3: UpdateFeatures, checked without being done, and a lower level only by consent."""
    assert re.search(r"^transaction.version +2 +0 to 2$", cluster(broker, "features").stdout, re.MULTILINE)
    refused = cluster(broker, "set-feature", "transaction.version", "1")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "fencepost: feature 'transaction.version' is at level 2: a lower level needs --downgrade, or --unsafe if"
        " metadata may be lost (INVALID_UPDATE_VERSION)\n",
    )
    assert told(broker, "set-feature", "transaction.version", "1", "--downgrade", "--dry-run")["before"] == 2
    assert told(broker, "features")["features"]["transaction.version"]["level"] == 2
    assert cluster(broker, "set-feature", "transaction.version", "1", "--downgrade").exit_code == 0
    assert told(broker, "features")["features"]["transaction.version"]["level"] == 1
    assert "went from 1 to 2" in cluster(broker, "set-feature", "transaction.version", "2").stdout


def test_log_dirs_say_how_much_is_where(broker: BrokerProcess) -> None:
    """Row D8: DescribeLogDirs."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("measured", partitions=2)
        wire.produce("measured", batch_of(b"x" * 100_000))
    (one,) = told(broker, "log-dirs", "--topic", "measured")
    sizes = {entry["partition"]: entry["size_bytes"] for entry in one["replicas"]}
    assert set(sizes) == {"measured:0", "measured:1"}
    assert sizes["measured:0"] > 100_000
    assert one["error"] is None
    assert 0 < one["usable_bytes"] <= one["total_bytes"]
    text = cluster(broker, "log-dirs", "--topic", "measured", "--by-partition").stdout
    assert re.search(r"^measured:0 +1 +9\d.\d KiB$", text, re.MULTILINE), text
    assert re.search(r"^measured +2 +9\d.\d KiB$", cluster(broker, "log-dirs", "--by-topic").stdout, re.MULTILINE)
    assert str(broker.data_dir) in cluster(broker, "log-dirs").stdout


def test_leaders_are_elected_and_nothing_moves(broker: BrokerProcess) -> None:
    """Row D8: a single node leads all it has, and moves nothing."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("led", partitions=2)
    assert cluster(broker, "elect-leaders", "--all").exit_code == 0
    assert "2 partitions led by the preferred replica already" in cluster(broker, "elect-leaders", "led").stdout
    assert told(broker, "elect-leaders", "led:1") == [{"partition": "led:1", "elected": False, "refused": None}]
    assert told(broker, "reassignments") == []
    assert cluster(broker, "reassignments").stderr == "0 partitions being reassigned\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("elect-leaders",), "or use --all"),
        (("log-dirs", "--by-topic", "--by-partition"), "exclude each other"),
        (("set-feature", "transaction.version", "-1"), "No such option"),
    ],
)
def test_wrong_usage_is_explained(broker: BrokerProcess, words: tuple[str, ...], says: str) -> None:
    result = cluster(broker, *words)
    assert (result.exit_code, says in result.stderr) == (2, True), result.output


def test_a_directory_that_can_not_be_read_is_told_as_offline(tmp_path: Path) -> None:
    """KIP-113: KAFKA_STORAGE_ERROR for the directory; the broker's log names the cause, and the connection stays."""
    with BrokerProcess(tmp_path, data_dir=tmp_path / "data") as running:
        with Wire(running.connect()) as wire:
            for name in ("spoilt", "beside"):
                wire.create_topic(name)
                wire.produce(name, batch_of(b"a"))
        running.stop()
        place = tmp_path / "data" / "spoilt-0"
        (place / "partition.metadata").write_bytes(b"damaged")  # so this log is not opened
        running.restart()
        place.rename(tmp_path / "aside")
        place.write_bytes(b"")  # a file where a log that is not open has its directory
        told = command(running, "cluster", "log-dirs", "--json")
        assert (told.exit_code, [one["error"] for one in json.loads(told.stdout)]) == (1, ["KAFKA_STORAGE_ERROR"])
        assert "cannot read the size of a log partition=spoilt-0 cause=" in running.log()
        beside = command(running, "cluster", "log-dirs", "--topic", "beside", "--by-partition")
        assert (beside.exit_code, "beside:0" in beside.stdout) == (0, True), beside.output
        place.unlink()
        (tmp_path / "aside").rename(place)
