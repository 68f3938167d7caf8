"""Whoever handed in a record hears what became of it: of that record, whatever its neighbours in the batch heard."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError
from fencepost.protocol.batch_header import pack_header, read_header
from fencepost.protocol.messages.api00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from fencepost.protocol.messages.api03_metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from fencepost.protocol.record_batch import build_batch
from tests.kit.scripted_broker import ScriptedBroker

Script = Callable[..., Any]


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


@pytest.mark.parametrize("turn", range(6))
async def test_a_failure_that_one_task_was_told_the_other_is_told_as_well(script: Script, turn: int) -> None:
    """Their records share a batch. Which of them trio wakes first is chance, so it is tried some times."""
    broker = await script()
    heard: list[str] = []

    async def one() -> None:
        with pytest.raises(KafkaError, match="rejected"):
            await producer.send("t", b"one")
        heard.append("send")

    async def many() -> None:
        with pytest.raises(ExceptionGroup):
            async with producer.batch() as batch:
                await batch.send("t", b"another")
        heard.append("batch")

    async with client(broker) as kafka, kafka.producer(linger=0.05) as producer:
        await producer.partitions_for("t")
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.INVALID_RECORD)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(many)
        assert sorted(heard) == ["batch", "send"]
    assert len(broker.batches) == 1, "they shared one"


async def test_a_record_not_asked_about_is_raised_although_its_neighbour_was_asked_about(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.producer(linger=60) as producer:
        await producer.partitions_for("t")
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.INVALID_RECORD)] * 2
        asked, _ = producer.send_nowait("t", b"a"), producer.send_nowait("t", b"b")
        producer._appender.accumulator.flush()
        with pytest.raises(KafkaError, match="rejected"):
            await asked.wait()
        with pytest.raises(ExceptionGroup) as at_flush:
            await producer.flush()
        assert len(at_flush.value.exceptions) == 1
        await producer.flush()
        both = producer.send_nowait("t", b"a"), producer.send_nowait("t", b"b")
        producer._appender.accumulator.flush()
        for delivery in (*both, *both):
            with pytest.raises(KafkaError, match="rejected"):
                await delivery.wait()
        await producer.flush()
    assert len(broker.batches) == 2


async def test_an_acknowledgement_counts_although_the_topic_was_forgotten_meanwhile(script: Script) -> None:
    """Produce 13 and later name topics by id only; what the id meant when it was sent is what it means."""
    broker = await script()

    def unknown(request: Any, version: int) -> Any:
        topics = [
            MetadataResponseTopic(name=entry.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for entry in request.topics or ()
        ]
        here = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
        return MetadataResponse(brokers=[here], controller_id=1, topics=topics)

    async with client(broker) as kafka, kafka.producer() as producer:
        await producer.send("t", b"first")

        async def behind_metadata(request: Any, version: int) -> Any:
            assert version >= 13
            broker.scripts["Metadata"] = [unknown]
            await kafka._cluster.refresh(["t"])
            assert "t" not in kafka._cluster.topics
            return broker.on_Produce(request, version)

        broker.scripts["Produce"] = [behind_metadata]
        assert (await producer.send("t", b"second")).offset == 1
    assert broker.logs[0] == [b"first", b"second"]


async def test_a_header_that_can_not_be_encoded_is_the_callers_error(script: Script) -> None:
    """Not one of the task that sends, which would end everybody's client."""
    broker = await script()
    async with client(broker) as kafka, kafka.producer() as producer:
        with pytest.raises(ValueError, match="surrogates not allowed"):
            await producer.send("t", b"a", headers=[("\ud800", b"x")])
        with pytest.raises(ValueError, match="surrogates not allowed"):
            await producer.send("\ud800", b"a")
        assert (await producer.send("t", b"b", headers=[("größe", b"x")])).offset == 0


async def test_ready_batches_that_can_not_be_split_fail_by_themselves(script: Script) -> None:
    """Their CRC fits, so they were taken; that there are no records in them shows when they are too large."""
    broken = build_batch([(1, None, b"a", ()), (1, None, b"b", ())])
    broken[61:] = b"\xff" * (len(broken) - 61)
    pack_header(broken, 0, read_header(broken))
    broker = await script()

    def too_large(request: Any, version: int) -> Any:
        part = PartitionProduceResponse(index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
        topic = TopicProduceResponse(name="t", topic_id=broker.topic_id, partition_responses=[part])
        return ProduceResponse(responses=[topic])

    async with client(broker) as kafka, kafka.transactional_producer("x") as producer:
        broker.scripts["Produce"] = [too_large]
        with pytest.raises(fencepost.RecordRejectedError, match="cannot be split"):
            async with producer.transaction() as txn:
                await txn.send_batches("t", 0, broken)
        async with producer.transaction() as txn:
            await txn.send("t", b"good")
        figures = producer.metrics()
        assert figures.buffer_available_bytes == figures.buffer_total_bytes
    assert broker.logs[0] == [b"good"]
