"""`fencepost topic move`: what operators type, and what they are answered (KIP-455)."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command
from tests.kit.cores_broker import Cores
from tests.kit.cores_moves import ongoing, reassign
from tests.kit.waiting import until
from tests.kit.wire import batch_of, values_in


@pytest.fixture
def cores(tmp_path: Path) -> Iterator[Cores]:
    with BrokerProcess(tmp_path / "work", data_dir=tmp_path / "data", cores=2) as broker:
        yield Cores(broker)


def move(cores: Cores, *words: str) -> tuple[int, str, str]:
    done = command(cores.broker, "topic", "move", *words)
    return done.exit_code, done.stdout, done.stderr


def test_partitions_move_and_those_that_are_there_stay(cores: Cores) -> None:
    before = cores.create("orders", 4)
    every = [word for number in range(4) for word in ("-p", str(number))]
    assert move(cores, "orders", *every, "--to", "2") == (0, "2 partitions of topic 'orders' moved to broker 2.\n", "")
    assert cores.leaders("orders") == [1] * 4
    assert move(cores, "orders", *every, "--to", "2")[1] == "0 partitions of topic 'orders' moved to broker 2.\n"
    code, out, _ = move(cores, "orders", "--partition", "3", "--to", "1", "--json")
    assert (code, json.loads(out)) == (0, [{"topic": "orders", "partition": 3, "from": 2, "to": 1}])
    assert cores.leaders("orders") == [1, 1, 1, 0]
    assert sorted(before) == [0, 0, 1, 1]


def test_what_cannot_move_is_said(cores: Cores) -> None:
    """ReplicationControlManager.alterPartitionReassignments."""
    cores.create("orders", 1)
    for words, why in (
        (("orders", "-p", "0", "--to", "7"), "7"),
        (("orders", "-p", "5", "--to", "2"), "5"),
        (("nowhere", "-p", "0", "--to", "2"), "nowhere"),
    ):
        code, out, error = move(cores, *words)
        assert (code, out) == (1, "")
        assert why in error
    assert ongoing(cores) == {}


def test_a_move_that_was_cancelled_is_not_called_done(cores: Cores) -> None:
    """It waits for a core that does not answer, until it is cancelled."""
    cores.create("orders", 2)
    ours = cores.leaders("orders").index(0)
    cores.broker.signal_core(1, SIGSTOP)
    try:
        with ThreadPoolExecutor() as pool:
            done = pool.submit(command, cores.broker, "topic", "move", "orders", "-p", str(ours), "--to", "2")
            tp = TopicPartition("orders", ours)
            until(lambda: ongoing(cores))
            assert reassign(cores, {tp: None}) == {tp: ErrorCode.NONE}
            cancelled = done.result(100)
    finally:
        cores.broker.signal_core(1, SIGCONT)
    assert cancelled.exit_code == 1
    assert f"orders:{ours} did not move to broker 2: the move was cancelled" in cancelled.stderr


def test_a_log_that_is_offline_is_named_once_and_goes_when_it_is_repaired(cores: Cores) -> None:
    """The move stays under way meanwhile, as in Kafka."""
    broker = cores.broker
    leaders = cores.create("orders", 2)
    number = leaders.index(0)
    tp = TopicPartition("orders", number)
    for value in (b"kept", b"lost"):
        assert cores.produce(0, "orders", batch_of(value), number).error_code == ErrorCode.NONE
    broker.stop()
    assert broker.data_dir is not None
    (broker.data_dir / str(tp)).rename(broker.data_dir / "elsewhere")
    broker.start()
    assert reassign(cores, {tp: [1]}) == {tp: ErrorCode.NONE}
    said = f"cannot move, its log is offline: repair the log and start again, or cancel the move partition={tp} to=2"
    until(lambda: said in broker.log())
    assert list(ongoing(cores)) == [tp]
    assert broker.log().count(said) == 1
    broker.stop()
    (broker.data_dir / "elsewhere").rename(broker.data_dir / str(tp))
    broker.start()
    until(lambda: ongoing(cores), lambda left: not left)
    assert cores.leaders("orders")[number] == 1
    assert values_in(cores.fetch(1, "orders", number)) == [b"kept", b"lost"]


def test_it_gives_up_after_its_timeout_and_the_move_goes_on(cores: Cores) -> None:
    """As every command does; a move waits while the new core does not answer."""
    partition = cores.create("orders", 2).index(0)
    cores.broker.signal_core(1, SIGSTOP)
    code, _, why = move(cores, "orders", "-p", str(partition), "--to", "2", "--timeout", "3")
    assert (code, "the move takes longer than 3 s, and continues" in why) == (1, True), why
    assert list(ongoing(cores)) == [TopicPartition("orders", partition)]
    cores.broker.signal_core(1, SIGCONT)
    until(lambda: cores.leaders("orders")[partition] == 1)
