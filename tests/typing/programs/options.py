"""Programs that give options: a checker knows each keyword and its type, and refuses all others."""

import re
from datetime import timedelta
from typing import Any, Unpack

import fencepost
from fencepost import TopicPartition, sync


async def seen(consumer: fencepost.Consumer[bytes, bytes], partitions: frozenset[TopicPartition]) -> None:
    await consumer.commit()


def seen_blocking(consumer: sync.Consumer[bytes, bytes], partitions: frozenset[TopicPartition]) -> None:
    consumer.commit()


def clients() -> None:
    fencepost.Client("a:1", client_id="billing", request_timeout=5, retry_backoff=0.05)
    fencepost.Client(["a:1", "b:2"], request_timeout=timedelta(minutes=1), security_protocol="sasl_ssl")
    sync.Client("a:1", timeout=timedelta(seconds=30), metadata_max_age=60)
    fencepost.Client("a:1", request_timeout_ms=5_000)  # refused
    fencepost.Client("a:1", client_idd="billing")  # refused
    fencepost.Client("a:1", request_timeout="5")  # refused
    fencepost.Client("a:1", timeout=5)  # refused
    sync.Client("a:1", request_timeout_ms=5_000)  # refused
    sync.Client("a:1", timeout="30")  # refused


def producers(kafka: fencepost.Client, blocking: sync.Client) -> None:
    kafka.producer(linger=0.005, compression="zstd", batch_size=1 << 20)
    kafka.producer(linger_ms=5)  # refused
    kafka.producer(compression="brotli")  # refused
    kafka.producer(acks="1")  # refused
    kafka.producer(enable_idempotence=False)  # refused
    kafka.producer(group="g")  # refused
    kafka.producer(transaction_timeout=30)  # refused
    kafka.transactional_producer("x", transaction_timeout=30, linger=0)
    kafka.transactional_producer("x", timeout=30)  # refused
    kafka.two_phase_producer("x", batch_size="large")  # refused
    blocking.producer(linger=timedelta(milliseconds=5))
    blocking.producer(linger_ms=5)  # refused


def consumers(kafka: fencepost.Client, blocking: sync.Client) -> None:
    kafka.consumer("t", group="g", isolation="read_uncommitted", session_timeout=6)
    kafka.consumer("t", isolation=fencepost.IsolationLevel.READ_COMMITTED, on_revoked=seen)
    kafka.consumer("t", "u")
    kafka.consumer(["t", "u"], group_protocol="consumer")
    kafka.consumer(re.compile("t-.*"))
    kafka.consumer("t", isolation="read_comitted")  # refused
    kafka.consumer("t", group_id="g")  # refused
    kafka.consumer("t", on_revoked=seen_blocking)  # refused
    kafka.consumer(5)  # refused
    blocking.consumer("t", group="g", on_revoked=seen_blocking)
    blocking.consumer("t", group_id="g")  # refused


async def subscribing(consumer: fencepost.Consumer, blocking: sync.Consumer) -> None:
    consumer.subscribe("t", "u", on_assigned=seen)
    consumer.subscribe(["t", "u"])
    consumer.subscribe(re.compile("t-.*"))
    consumer.subscribe(pattern="t-.*")
    consumer.subscribe(7)  # refused
    blocking.subscribe(["t", "u"], on_assigned=seen_blocking)
    consumer.batches(max_wait=timedelta(milliseconds=100))
    consumer.batches(max_wait="soon")  # refused
    await consumer.end_offsets(isolation="read_uncommitted")
    await consumer.end_offsets(isolation="uncommitted")  # refused


def wrapped(kafka: fencepost.Client, **options: Unpack[fencepost.ConsumerOptions]) -> fencepost.Consumer:
    return kafka.consumer("t", **options)


def from_anywhere(kafka: fencepost.Client, options: dict[str, Any]) -> None:
    kafka.consumer("t", **options)
