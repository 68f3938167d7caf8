"""Transactions against a broker in this process, and how much of EndTxn goes into waiting for flushes."""

import functools
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import trio

from bench.pour import Pipe
from fencepost.broker.config.broker_config import load_config
from fencepost.broker.node import Node
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.record_batch import build_batch

PRODUCE_VERSION, CREATE_VERSION, INIT_VERSION, END_VERSION = 12, 5, 4, 5
"""Of the second version of the transaction protocol (KIP-890): no AddPartitionsToTxn, an epoch for each transaction."""
TOPIC, NAME = "rounds", "txn"


class Figures(NamedTuple):
    """Medians in ms, and means per transaction."""

    end_ms: float
    flush_ms: float
    rounds: float
    flushes: float


async def measure_transactions(folder: Path, partitions: int, count: int) -> Figures:
    """`count` transactions one after the other, each with a record in every one of `partitions`."""
    flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", "durability": "fsync"}
    node = Node(load_config(file=None, environ={}, assignments=(), flags=flags))
    async with trio.open_nursery() as nursery:
        endpoint = await nursery.start(node.run)
        run = functools.partial(_transact, str(endpoint), node, partitions, count)
        found = await trio.to_thread.run_sync(run)
        node.stop()
        await node.stopped.wait()
        nursery.cancel_scope.cancel()
    return found


def _transact(address: str, node: Node, partitions: int, count: int) -> Figures:
    """The client, in a thread of its own."""
    pipe = Pipe(address)

    def ask(api_key: int, version: int, request: object) -> Any:
        pipe.send(api_key, version, request)
        return pipe.answer(api_key, version)

    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1)
    ask(ApiKey.CREATE_TOPICS, CREATE_VERSION, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    answer = ask(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, init)
    assert not answer.error_code, answer
    producer_id, epoch = answer.producer_id, answer.producer_epoch
    ends, flushing = [], []
    first: tuple[int, int] = (0, 0)
    for number in range(count + 3):
        if number == 3:  # what comes before makes the files
            first = (node.commit.rounds, node.commit.flushes)
        _produce(ask, producer_id, epoch, partitions)
        slept, began = node.commit.sync_seconds, time.perf_counter()
        request = EndTxnRequest(transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, committed=True)
        answer = ask(ApiKey.END_TXN, END_VERSION, request)
        assert not answer.error_code, answer
        ends.append(time.perf_counter() - began)
        flushing.append(node.commit.sync_seconds - slept)
        producer_id, epoch = answer.producer_id, answer.producer_epoch
    pipe.socket.close()
    rounds, flushes = node.commit.rounds - first[0], node.commit.flushes - first[1]
    median = statistics.median
    return Figures(median(ends[3:]) * 1000, median(flushing[3:]) * 1000, rounds / count, flushes / count)


def _produce(ask: Any, producer_id: int, epoch: int, partitions: int) -> None:
    record = (int(time.time() * 1000), None, bytes(100), ())
    batch = bytes(
        build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    )
    data = [PartitionProduceData(index=partition, records=batch) for partition in range(partitions)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=30_000, topic_data=topics)
    answer = ask(ApiKey.PRODUCE, PRODUCE_VERSION, request)
    for part in answer.responses[0].partition_responses:
        assert not part.error_code, answer
