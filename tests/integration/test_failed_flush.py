"""A flush that fails (reliability.md, fsyncgate): nobody is told a lie, and by default the process ends by it."""

from contextlib import suppress
from pathlib import Path

import pytest

from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from tests.conftest import StartBroker
from tests.kit.broken_disk import failing_flushes, why_not
from tests.kit.broker_process import BrokerProcess
from tests.kit.ready import ready
from tests.kit.wire import ConnectionEnded, Wire, batch_of, produce_request, values_in

_REASON = why_not()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))

FIND_COORDINATOR = 10
OFFLINE = {"log.failure.policy": "offline"}


def segment(broker: BrokerProcess, partition: str) -> Path:
    """The first data file of a partition."""
    assert broker.data_dir is not None
    return broker.data_dir / partition / f"{0:020d}.log"


def test_by_default_the_process_ends_with_a_line_that_names_the_file(start_broker: StartBroker) -> None:
    """And what was acknowledged before is there at the next start."""
    broker = start_broker(files=True)
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        assert wire.produce("t", batch_of(b"kept")).error_code == ErrorCode.NONE
        with failing_flushes(broker.pid, segment(broker, "t-0")):
            with suppress(ConnectionEnded):  # whether the answer is faster than the end is nobody's promise
                answer = wire.produce("t", batch_of(b"never acknowledged"))
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.wait() == 1
    line = next(line for line in broker.log().splitlines() if "cannot continue" in line)
    assert "fdatasync: Input/output error" in line
    assert str(segment(broker, "t-0")) in line
    broker.start()
    with Wire(broker.connect()) as wire:
        assert values_in(wire.fetch("t"))[0] == b"kept"


def test_with_the_other_policy_only_that_log_goes_offline(start_broker: StartBroker) -> None:
    """Waiters and appends get KAFKA_STORAGE_ERROR, what was durable is read on, others live, a start heals."""
    broker = start_broker(files=True, settings=OFFLINE, arguments=["--metrics", "127.0.0.1:0"])
    with Wire(broker.connect()) as wire:
        wire.create_topic("t", partitions=2)
        for partition in range(2):
            assert wire.produce("t", batch_of(b"kept"), partition=partition).error_code == ErrorCode.NONE
        with failing_flushes(broker.pid, segment(broker, "t-1")):
            for number in range(3):  # in one flight: each answer is its own
                wire.send(0, 9, produce_request("t", batch_of(b"%d" % number), partition=number % 2))
            answers = [wire.receive(0, 9)[1].responses[0].partition_responses[0] for _ in range(3)]
        assert [answer.error_code for answer in answers] == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert [answer.base_offset for answer in answers] == [1, -1, 2]
        ends = [wire.offset_of("t", -1, partition=partition).offset for partition in range(2)]
        assert ends == [3, 1], "the end of a log that is offline is what was durable, and nobody waits for more"
        for _ in range(2):  # the disk is well again, and still nothing is taken: what is on it nobody knows
            assert wire.produce("t", batch_of(b"more"), partition=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        answer = wire.fetch("t", partition=1)
        assert (answer.high_watermark, values_in(answer)) == (1, [b"kept"])
        assert wire.produce("t", batch_of(b"more"), partition=0).error_code == ErrorCode.NONE
    reason = "1 partitions are offline: t-1. The broker's log has the cause"
    status, facts = ready(broker.facts["metrics"])
    assert (status, facts["ready"], facts["reasons"]) == (503, False, {"log_offline": reason})
    assert broker.stop() == 0
    assert "partition is offline until the next start partition=t-1" in broker.log()
    broker.start()
    with Wire(broker.connect()) as wire:
        assert values_in(wire.fetch("t", partition=1))[0] == b"kept"
        assert wire.produce("t", batch_of(b"more"), partition=1).error_code == ErrorCode.NONE


def test_a_coordinator_whose_log_is_offline_is_not_available(start_broker: StartBroker) -> None:
    """The transaction's outcome is not told; other ids go on; after the next start the id is served again."""
    broker = start_broker(files=True, settings=OFFLINE | {"transaction.state.log.num.partitions": "2"})
    ids = ["a", "b", "c", "d"]
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        producers = {name: wire.init_producer_id(name) for name in ids}
        broken, *others = ids
        wire.add_partitions(broken, producers[broken], "t", 0)
        header = dict(zip(("producer_id", "producer_epoch"), producers[broken], strict=True))
        batch = batch_of(b"x", base_sequence=0, transactional=True, **header)
        assert wire.produce("t", batch, transactional_id=broken).error_code == ErrorCode.NONE
        home = _home(broken)
        with failing_flushes(broker.pid, segment(broker, home)):
            answer = wire.end_txn(broken, producers[broken], commit=True)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = wire.call(FIND_COORDINATOR, 3, FindCoordinatorRequest(key=broken, key_type=1))
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        other = next(name for name in others if _home(name) != home)
        assert wire.init_producer_id(other)[1] == producers[other][1] + 1
    broker.restart()
    with Wire(broker.connect()) as wire:
        assert wire.init_producer_id(broken)[0] == producers[broken][0]


def _home(name: str) -> str:
    """The partition that looks after an id, of two."""
    return f"__transaction_state-{partition_for(name, 2)}"


def test_a_failed_flush_of_the_metadata_ends_the_process_whatever_the_policy(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=OFFLINE)
    with Wire(broker.connect()) as wire, failing_flushes(broker.pid, segment(broker, "__cluster_metadata-0")):
        with suppress(ConnectionEnded), pytest.raises(AssertionError, match="metadata log refused"):
            wire.create_topic("t")
        assert broker.wait() == 1
    assert "__cluster_metadata-0" in next(line for line in broker.log().splitlines() if "cannot continue" in line)
