"""The idempotent producer against scripted answers: order, duplicates and epochs (rows P2 to P7, P12)."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, RetriableError
from fencepost.protocol.messages.api00_produce import LeaderIdAndEpoch
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

Script = Callable[..., Any]


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


async def test_a_lost_answer_is_asked_for_again_under_the_same_sequence(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """P3: the broker recognises the repeated sequence, so it must be repeated exactly."""
    broker = await script()
    broker.scripts["Produce"] = [HANG_UP]
    async with client(broker) as kafka, kafka.producer() as producer:
        meta = await producer.send("t", b"a")
        assert meta.offset == 0
        assert (await producer.send("t", b"b")).offset == 1
    assert [batch.place for batch in broker.batches] == [(1, 0), (1, 0), (1, 1)]
    assert broker.logs[0] == [b"a", b"b"]


async def test_order_survives_a_failure_of_the_first_of_five_in_flight(script: Script) -> None:
    """P2: what follows a refused batch is out of order for the broker, and goes out again behind it."""
    broker = await script()
    refused = [broker.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    refused += [broker.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)] * 4
    values = [b"%03d" % n for n in range(40)]
    async with client(broker) as kafka, kafka.producer(batch_size=200) as producer:
        await producer.send("t", b"first")
        broker.scripts["Produce"] = refused
        async with producer.batch() as batch:
            for value in values:
                await batch.send("t", value)
    assert broker.logs[0] == [b"first", *values]
    assert {batch.header.producer_epoch for batch in broker.batches} == {1}


async def test_the_same_with_every_answer_lost(script: Script, autojump_clock: trio.testing.MockClock) -> None:
    """P3: batches whose fate is unknown go out again in order, under the sequences they had."""
    broker = await script()
    broker.scripts["Produce"] = [HANG_UP] * 3
    values = [b"%03d" % n for n in range(40)]
    async with client(broker) as kafka, kafka.producer(batch_size=200) as producer, producer.batch() as batch:
        for value in values:
            await batch.send("t", value)
    assert broker.logs[0] == values
    by_sequence: dict[int, list[list[bytes | None]]] = {}
    for sent in broker.batches:
        by_sequence.setdefault(sent.header.base_sequence, []).append(sent.values)
    assert all(len({tuple(values) for values in same}) == 1 for same in by_sequence.values())


async def test_a_broker_that_lost_our_sequence_is_met_with_a_new_epoch(script: Script) -> None:
    """P7 (KIP-360): out of order although nothing earlier is open: epoch + 1, sequence 0, the same records."""
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer:
        await producer.send("t", b"a")
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
        await producer.send("t", b"b")
    assert [batch.place for batch in broker.batches] == [(1, 0), (1, 1), (2, 0)]
    assert broker.logs[0] == [b"a", b"b"]
    assert broker.names("InitProducerId") == ["InitProducerId"], "the bump asks nobody"


async def test_after_a_batch_that_failed_for_good_the_next_one_begins_a_new_epoch(script: Script) -> None:
    """P4: a sequence that nobody will ever send must not be followed by the next one."""
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.INVALID_RECORD)]
    async with client(broker) as kafka, kafka.producer() as producer:
        with pytest.raises(KafkaError) as refused:
            await producer.send("t", b"bad")
        assert refused.value.code is ErrorCode.INVALID_RECORD
        assert (refused.value.api, refused.value.node) == ("Produce", 1)
        await producer.send("t", b"good")
    assert [batch.place for batch in broker.batches] == [(1, 0), (2, 0)]


async def test_epochs_run_out_and_a_new_producer_id_is_asked_for(script: Script) -> None:
    """P12: 32766 is the last epoch a producer may use."""
    broker = await script()
    broker.identity = (7, 32765)
    async with client(broker) as kafka, kafka.producer() as producer:
        await producer.send("t", b"a")
        broker.identity = (8, -1)
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)]
        await producer.send("t", b"b")
    last = broker.batches[-1].header
    assert (last.producer_id, last.producer_epoch, last.base_sequence) == (8, 0, 0)


async def test_a_batch_too_large_for_the_broker_is_sent_in_halves(script: Script) -> None:
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.MESSAGE_TOO_LARGE)]
    async with client(broker) as kafka, kafka.producer() as producer:
        async with producer.batch() as batch:
            for n in range(7):
                await batch.send("t", b"%d" % n)
        assert (await producer.send("t", b"7")).offset == 7
    assert broker.logs[0] == [b"%d" % n for n in range(8)]
    assert [sent.place for sent in broker.batches] == [(1, 0), (1, 0), (1, 3), (1, 7)]


async def test_a_record_alone_too_large_is_the_programs_error(script: Script) -> None:
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.MESSAGE_TOO_LARGE)]
    async with client(broker) as kafka, kafka.producer() as producer:
        with pytest.raises(KafkaError, match="rejected a batch") as refused:
            await producer.send("t", b"x")
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_errors_of_many_records_come_as_one_group(script: Script) -> None:
    broker = await script(partitions=2)
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]

    async def work() -> None:
        async with client(broker) as kafka, kafka.producer() as producer, producer.batch() as batch:
            await batch.send("t", b"a", partition=0)
            await batch.send("t", b"b", partition=1)

    with pytest.raises(ExceptionGroup) as failed:
        await work()
    assert len(failed.value.exceptions) == 2
    assert all(isinstance(error, fencepost.AuthorizationError) for error in failed.value.exceptions)


async def test_what_is_retriable_is_retried_until_the_delivery_deadline(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """The caller sees RetriableError only when the deadline has ended, with the last reason as its cause."""
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 10_000
    async with client(broker) as kafka, kafka.producer(delivery_timeout=0.5) as producer:
        began = trio.current_time()
        with pytest.raises(RetriableError, match="gave up") as gave_up:
            await producer.send("t", b"a")
        assert 0.5 <= trio.current_time() - began < 5
        assert gave_up.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_silent_broker_is_left_after_the_request_timeout(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    broker.scripts["Produce"] = [SILENCE]
    async with client(broker, request_timeout=2) as kafka, kafka.producer() as producer:
        assert (await producer.send("t", b"a")).offset == 0
    assert [batch.place for batch in broker.batches] == [(1, 0), (1, 0)]


async def test_a_deadline_of_the_program_is_obeyed_at_once(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """Deadlines are trio's; the record itself may still arrive, and closing the producer waits for it."""
    broker = await script()
    async with client(broker, request_timeout=2) as kafka, kafka.producer() as producer:
        await producer.send("t", b"first")
        broker.scripts["Produce"] = [SILENCE]
        with pytest.raises(trio.TooSlowError):
            with trio.fail_after(0.5):
                await producer.send("t", b"second")
        assert broker.logs[0] == [b"first"]
    assert broker.logs[0] == [b"first", b"second"]


async def test_the_buffer_holds_back_the_program(script: Script) -> None:
    """Back-pressure: no more than buffer_memory waits in memory, and everything arrives in the end."""
    broker = await script()
    held: list[int] = []
    small = {"buffer_memory": 2048, "batch_size": 512}
    async with client(broker) as kafka, kafka.producer(**small) as producer, producer.batch() as batch:
        for n in range(200):
            await batch.send("t", b"%0100d" % n)
            held.append(producer._appender.accumulator.memory.used)
    assert max(held) < 2048 + 200
    assert broker.logs[0] == [b"%0100d" % n for n in range(200)]


async def test_records_without_a_key_fill_one_partition_before_the_next(script: Script) -> None:
    """KIP-480: runs make large batches; in the end both partitions have some."""
    broker = await script(partitions=4)
    async with client(broker) as kafka, kafka.producer(batch_size=1024) as producer, producer.batch() as batch:
        for n in range(300):
            await batch.send("t", b"%050d" % n)
    assert sum(map(len, broker.logs.values())) == 300
    assert len([log for log in broker.logs.values() if log]) > 1
    assert sum(len(sent.values) for sent in broker.batches) / len(broker.batches) > 5


async def test_an_unknown_topic_is_waited_for_until_the_deadline(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer(delivery_timeout=1) as producer:
        with pytest.raises(RetriableError) as missing:
            await producer.send("other", b"a")
        assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_old_broker_that_refuses_apiversions_3_is_asked_in_version_0(script: Script) -> None:
    """KIP-511: the refusal is written in version 0, whatever was asked."""
    broker = await script()
    broker.scripts["ApiVersions"] = [b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x02"]
    async with client(broker) as kafka, kafka.producer() as producer:
        await producer.send("t", b"a")
    assert [version for name, version, _ in broker.requests if name == "ApiVersions"][:2] == [3, 0]


async def test_an_answer_that_names_the_new_leader_saves_asking_for_it(script: Script) -> None:
    """KIP-951: the batch goes there at once, without a pause and without Metadata."""
    broker = await script()

    def moved(request: Any, version: int) -> Any:
        answer = broker.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)(request, version)
        answer.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=7)
        return answer

    patient = {"retry_backoff": 60, "retry_backoff_max": 60}
    async with client(broker, **patient) as kafka, kafka.producer() as producer:
        await producer.send("t", b"a")
        asked = len(broker.names("Metadata"))
        broker.scripts["Produce"] = [moved]
        with trio.fail_after(100):
            await producer.send("t", b"b")
        assert len(broker.names("Metadata")) == asked
    assert broker.logs[0] == [b"a", b"b"]
