"""kill -9 at any moment: what was acknowledged is there again, and so is the memory of who wrote it."""

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of, committed_values, values_in

READ_COMMITTED = 1


def test_acknowledged_records_survive(file_broker: BrokerProcess) -> None:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t", partitions=3)
        for number in range(30):
            answer = wire.produce("t", batch_of(b"%d" % number), partition=number % 3)
            assert answer.error_code == ErrorCode.NONE
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        for partition in range(3):
            assert values_in(wire.fetch("t", partition=partition)) == [b"%d" % n for n in range(partition, 30, 3)]
            assert wire.produce("t", batch_of(b"next"), partition=partition).base_offset == 10


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_duplicates_are_recognised_after_a_restart(file_broker: BrokerProcess, way: str) -> None:
    """P3 over a restart: the same batch sent again is answered with its first offset and not appended."""
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
        producer_id, epoch = wire.init_producer_id()

        def batch(number: int) -> bytearray:
            return batch_of(b"%d" % number, producer_id=producer_id, producer_epoch=epoch, base_sequence=number)

        assert [wire.produce("t", batch(number)).base_offset for number in range(7)] == list(range(7))
    if way == "stop":
        assert file_broker.stop() == 0
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        answer = wire.produce("t", batch(6))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 6)
        assert wire.produce("t", batch(9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert wire.produce("t", batch(7)).base_offset == 7
        assert len(values_in(wire.fetch("t"))) == 8


def test_producer_ids_never_come_twice(file_broker: BrokerProcess) -> None:
    """P1, row 11: blocks are reserved before they are used, crash or not."""
    seen: set[int] = set()
    for _ in range(3):
        with Wire(file_broker.connect()) as wire:
            for _ in range(5):
                producer_id, _ = wire.init_producer_id()
                assert producer_id > 0
                assert producer_id not in seen
                seen.add(producer_id)
        file_broker.restart()


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_goes_on_after_a_crash(file_broker: BrokerProcess, commit: bool) -> None:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t", partitions=2)
        producer = wire.init_producer_id("tx")
        wire.add_partitions("tx", producer, "t", 0)
        first = batch_of(b"a", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0)
        assert wire.produce("t", first, version=8, transactional_id="tx").error_code == ErrorCode.NONE
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        held = wire.fetch("t", isolation=READ_COMMITTED)
        assert (values_in(held), held.last_stable_offset, held.high_watermark) == ([], 0, 1)
        wire.add_partitions("tx", producer, "t", 1)
        second = batch_of(
            b"b", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
        )
        answer = wire.produce("t", second, partition=1, version=8, transactional_id="tx")
        assert answer.error_code == ErrorCode.NONE
        assert wire.end_txn("tx", producer, commit=commit).error_code == ErrorCode.NONE
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        for partition, value in ((0, b"a"), (1, b"b")):
            answer = wire.fetch("t", partition=partition, isolation=READ_COMMITTED)
            assert committed_values(answer) == ([value] if commit else [])
            assert answer.last_stable_offset == answer.high_watermark
            assert answer.high_watermark in (2, 3), "a marker may stand twice: the kill may have come before Complete"


def test_an_open_transaction_times_out_after_a_crash(file_broker: BrokerProcess) -> None:
    """T10: its clock goes on over the restart; the abort frees the readers."""
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("t")
        producer = wire.init_producer_id("tx", timeout_ms=5000)
        wire.add_partitions("tx", producer, "t", 0)
        left = batch_of(
            b"left", transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0
        )
        assert wire.produce("t", left, version=8, transactional_id="tx").error_code == ErrorCode.NONE
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        wire.produce("t", batch_of(b"after"))
        answer = wire.fetch("t", isolation=READ_COMMITTED, max_wait_ms=60_000, version=11)
        assert committed_values(answer) == [b"after"]
        assert wire.end_txn("tx", producer, commit=True).error_code == ErrorCode.PRODUCER_FENCED


def test_topics_and_their_deletion_survive(file_broker: BrokerProcess) -> None:
    from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest

    assert file_broker.data_dir is not None
    with Wire(file_broker.connect()) as wire:
        for name in ("stays", "goes"):
            wire.create_topic(name)
            wire.produce(name, batch_of(b"x"))
        wire.call(20, 1, DeleteTopicsRequest(topic_names=["goes"], timeout_ms=1000))
    file_broker.restart()
    with Wire(file_broker.connect()) as wire:
        assert values_in(wire.fetch("stays")) == [b"x"]
        assert wire.fetch("goes").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wire.create_topic("goes")
        assert values_in(wire.fetch("goes")) == []
        assert wire.produce("goes", batch_of(b"new")).base_offset == 0


def test_many_kills_under_load_lose_nothing(start_broker: StartBroker) -> None:
    """Each round: write until the broker is killed in the middle of it; all that was acknowledged stays, in order."""
    broker = start_broker(files=True)
    with Wire(broker.connect()) as wire:
        wire.create_topic("t", internal_segment_bytes="2000")
        producer_id, epoch = wire.init_producer_id()
    acknowledged = 0
    for _ in range(4):
        with Wire(broker.connect()) as wire:
            for number in range(acknowledged, acknowledged + 25):
                batch = batch_of(b"%d" % number, producer_id=producer_id, producer_epoch=epoch, base_sequence=number)
                answer = wire.produce("t", batch)
                assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
            acknowledged += 25
            batch = batch_of(
                b"%d" % acknowledged, producer_id=producer_id, producer_epoch=epoch, base_sequence=acknowledged
            )
            wire.socket.sendall(wire.frame(0, 9, _request(batch))[1])
            broker.kill()
        broker.start()
    with Wire(broker.connect()) as wire:
        values = values_in(wire.fetch("t"))
        assert values[:acknowledged] == [b"%d" % n for n in range(acknowledged)]
        assert len(values) <= acknowledged + 1


def _request(batch: bytearray) -> object:
    from tests.kit.wire import produce_request

    return produce_request("t", batch)
