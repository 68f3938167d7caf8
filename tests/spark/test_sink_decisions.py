"""twoPhase: what a driver that claims must read of the decisions before it, and what may stand in its way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("pyarrow")

from fencepost.spark_connector.sink import lanes as sink_lanes
from fencepost.spark_connector.sink.commit_marker import BatchId
from fencepost.spark_connector.sink.encode import SinkError
from tests.kit.broker_process import BrokerProcess
from tests.spark.conftest import new_producer
from tests.spark.sink_kills import TWO_PHASE
from tests.spark.sink_tasks import Sink

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fencepost with two-phase commit."""
    with BrokerProcess(tmp_path_factory.mktemp("decisions"), settings=TWO_PHASE) as broker:
        yield broker.address


@contextmanager
def aborted(sink: Sink) -> Iterator[None]:
    """A transaction of somebody else in the decision topic that is open during the block and aborted then."""
    producer = new_producer(sink.bootstrap)
    producer.begin_transaction()
    producer.produce(sink.options().decision_topic, b"of another sink", key=b"another", partition=0)
    assert producer.flush(60) == 0
    try:
        yield
    finally:
        producer.abort_transaction(60)


def test_a_decision_topic_in_which_nothing_is_to_be_seen_keeps_no_driver_waiting(ours: str) -> None:
    """T11: its first driver died in the middle of the first decision, which was aborted. The next one goes on."""
    sink = Sink(ours, twoPhase="true", decisionTopic=f"decisions-{os.urandom(4).hex()}")
    batch = BatchId("q", 0)
    sink.claim(batch)
    with aborted(sink):
        pass
    claim = sink.claim(batch)
    written = sink.task(range(50), batch, claim)
    assert sink.decide([written], claim, batch) is True
    with aborted(sink):
        pass
    sink.claim(batch)
    assert sink.numbers() == list(range(50))


def test_a_decision_counts_although_another_sinks_transaction_hides_it(
    ours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2: above the last stable offset nobody reads. Who claims waits, and does not take a decision for not made."""
    sink = Sink(ours, twoPhase="true", decisionTopic=f"decisions-{os.urandom(4).hex()}")
    batch = BatchId("q", 0)
    claim = sink.claim(batch)
    written = sink.task(range(50), batch, claim)

    def dies(*_: Any) -> None:
        raise RuntimeError("killed between the decision and its completion")

    with aborted(sink):
        with monkeypatch.context() as patch:
            patch.setattr(sink_lanes, "_commit_lane", dies)
            with pytest.raises(RuntimeError, match="killed"):
                sink.decide([written], claim, batch)
        with monkeypatch.context() as patch:
            patch.setattr(sink_lanes, "STABLE_SECONDS", 0.5)
            with pytest.raises(SinkError, match=r"decisions-.* may have an open transaction there"):
                sink.claim(batch)
    assert sink.claim(batch).has(batch)
    assert sink.numbers() == list(range(50))


def test_a_driver_whose_batch_another_has_claimed_decides_nothing(ours: str) -> None:
    """T23: it prepared its transactions, slept, and a newer driver took over."""
    sink = Sink(ours, twoPhase="true")
    batch = BatchId("q", 0)
    old = sink.claim(batch)
    late = sink.task(range(50), batch, old)
    new = sink.claim(batch)
    fresh = sink.task(range(50, 100), batch, new)
    with pytest.raises(SinkError, match="has fenced this one: this driver has written nothing") as refused:
        sink.decide([late], old, batch)
    assert "belong to a newer driver" in str(refused.value.__cause__)
    assert sink.decide([fresh], new, batch) is True
    assert sink.numbers() == list(range(50, 100))
