"""Real Spark drivers, killed with -9 in the commit of a micro-batch: the output is the input, exactly once.

Three kills, with tasks that fail and are retried; FENCEPOST_LONG=1 has fifty, and as many with twoPhase
(`python -m tests.spark.sink_kills` plays them by hand).
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from tests.kit.broker_process import BrokerProcess
from tests.spark.sink_kills import TWO_PHASE, World, play

LONG = bool(os.environ.get("FENCEPOST_LONG"))
KILLS = 50

pytestmark = pytest.mark.spark


@pytest.fixture
def bootstrap(installed_spark: None, tmp_path: Path) -> Iterator[str]:
    with BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data", settings=TWO_PHASE) as broker:
        yield broker.address


@pytest.mark.timeout(1800)
def test_drivers_that_die_around_the_end_of_a_transaction_lose_and_double_nothing(
    bootstrap: str, tmp_path: Path
) -> None:
    world = World(bootstrap, tmp_path)
    world.produce(100)
    world.killed_at("EndTxn sent", flaky=True)
    world.killed_at("committed")
    world.produce(50)
    world.killed_at("before EndTxn", later=1)
    world.finish()
    world.check()


@pytest.mark.skipif(not LONG, reason="FENCEPOST_LONG plays it")
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("two_phase", [False, True])
def test_fifty_kills(bootstrap: str, tmp_path: Path, two_phase: bool) -> None:
    play(World(bootstrap, tmp_path, two_phase=two_phase, seed=50), KILLS)
