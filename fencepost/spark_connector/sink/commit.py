"""Commits a micro-batch on the driver: its records and the commit marker in one transaction, only once."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fencepost.client.core.group_types import GroupMetadata
from fencepost.client.errors import (
    AbortableError,
    AuthenticationError,
    AuthorizationError,
    FencedError,
    KafkaError,
    OutcomeUnknownError,
    RecordRejectedError,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import GROUP_TOPIC, TopicPartition
from fencepost.spark_connector.sink.commit_marker import BatchId, Marker, find_marker, is_done
from fencepost.spark_connector.sink.encode import SinkError
from fencepost.spark_connector.sink.message import Packed
from fencepost.spark_connector.sink.options import SinkOptions

log = logging.getLogger(__name__)

_ATTEMPTS = 3
_CREATED_WITHIN_MS = 5000
"""As long as a broker may take to create a topic; Kafka's producers wait a minute for one that is never created."""
_WITHOUT_A_TOPIC = TopicPartition(GROUP_TOPIC, 0)
Send = Callable[[Any], None]


def connect(options: SinkOptions, **others: Any) -> Any:
    """The sink's blocking client, with `others` before the options. Open it with `with`."""
    from fencepost.sync import Client

    return Client.from_config({"bootstrap_servers": options.bootstrap, **options.client, **options.producer, **others})


def main_producer(kafka: Any, options: SinkOptions) -> Any:
    """The producer for the driver's transactions. Opening it fences every earlier driver (row T2)."""
    return kafka.transactional_producer(options.transactional_id)


@contextmanager
def translate_client_errors(options: SinkOptions) -> Iterator[None]:
    """Turn the client's errors into SinkErrors that say what they mean for a query and what to do."""
    try:
        yield
    except FencedError as error:
        raise SinkError(
            f"another driver writes as {options.transactional_id!r} and has fenced this one: this driver has written"
            " nothing of this batch. Keep one of them running; if they are two queries, give one a different"
            " kafka.transactional.id"
        ) from error
    except AuthorizationError as error:
        raise SinkError(
            f"{error}. The sink needs: WRITE and READ on its topics (READ for the commit marker), WRITE and DESCRIBE on"
            f" transactional ids beginning with {options.transactional_id!r}, READ on the group of that name"
        ) from error
    except AuthenticationError as error:
        raise SinkError(f"{error}: check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*") from error
    except OutcomeUnknownError as error:
        raise SinkError(
            "the commit was sent, and no response came after all retries. Start the query again: the commit marker"
            " shows whether the batch was written"
        ) from error


def commit_batch(options: SinkOptions, parts: Sequence[Packed], batch: BatchId | None) -> bool:
    """Write a batch and its commit marker in one transaction. Without `batch` there is no commit marker.

    Returns False if the batch was written before. It is safe to call this again after a failure or a crash. It first
    aborts the transaction that a predecessor left open, and finds a committed batch by its commit marker.

    Raises SinkError, and the client's errors if the cluster is unavailable.
    """
    size = sum(part.size for part in parts)
    if size > options.max_transaction_bytes:
        raise too_large(options, size)

    def send(txn: Any) -> None:
        for part in parts:
            txn.send_batches(part.topic, part.partition, part.unpacked())

    with translate_client_errors(options), connect(options) as kafka:
        require_topic(kafka, options)
        with main_producer(kafka, options) as producer:
            if batch is None:
                transact(producer, send)
                return True
            marker = read_marker(kafka, options)
            if is_done(options.transactional_id, marker, batch, options.first_batch):
                log.info("batch %s of query %s was written before", batch.batch_id, batch.query_id)
                return False
            place = marker_place(options, marker, (part.topic for part in parts))
            transact(producer, send, options.group, Marker(place, batch.query_id, batch.batch_id))
            return True


def transact(producer: Any, send: Send, group: str = "", marker: Marker | None = None) -> None:
    """Run one transaction with the records of `send` and the commit marker.

    An aborted transaction runs again. After a commit without a response the producer asks until the outcome is known.
    Raises SinkError if the transaction cannot be committed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with producer.transaction() as txn:
                send(txn)
                if marker is not None:
                    txn.send_group_offsets(GroupMetadata(group), {marker.place: marker.committed()})
            return
        except OutcomeUnknownError as unknown:
            log.warning("a commit got no response, so the producer asks for its outcome: %s", unknown)
            if producer.reinitialise():
                return
        except (AbortableError, RecordRejectedError) as error:
            no_topic = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if attempt == _ATTEMPTS or no_topic or not error.retriable:
                raise SinkError(f"the transaction was aborted: {error}") from error
            log.warning("the transaction was aborted, and runs again: %s", error)
    raise SinkError(f"the transaction was aborted {_ATTEMPTS} times")


def read_marker(kafka: Any, options: SinkOptions) -> Marker | None:
    """The committed commit marker. It is certain to be the last one only after `main_producer` was opened."""
    with kafka.admin() as admin:
        return find_marker(options.group, admin.list_group_offsets(options.group))


def marker_place(options: SinkOptions, marker: Marker | None, topics: Iterable[str]) -> TopicPartition:
    """The partition whose offset is the commit marker: the current one, or partition 0 of a written topic.

    An empty batch may name no topic, if each row names its own. Then it is a partition of the offsets topic.
    """
    if marker is not None:
        return marker.place
    if options.topic is not None:
        return TopicPartition(options.topic, 0)
    first = min(topics, default=None)
    return _WITHOUT_A_TOPIC if first is None else TopicPartition(first, 0)


def require_topic(kafka: Any, options: SinkOptions) -> None:
    """Raise SinkError if the option `topic` names no existing topic. The client would wait for it for a minute."""
    if options.topic is not None:
        partitions_of(kafka, options, options.topic)


def partitions_of(kafka: Any, options: SinkOptions, topic: str) -> int:
    """The number of a topic's partitions. A missing topic is created, if the broker creates topics.

    Raises SinkError if there is no such topic.
    """
    try:
        with kafka.admin() as admin:
            return len(admin.describe_topics(topic)[topic].partitions)
    except KafkaError as error:
        failed: Collection[KafkaError] = getattr(error, "errors", {}).values() or [error]
        codes = [one.code for one in failed]
        if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes:
            return _created(options, topic)
        if ErrorCode.INVALID_TOPIC_EXCEPTION in codes:
            raise SinkError(f"{topic!r} is not a valid topic name") from None
        for one in failed:
            if isinstance(one, AuthorizationError):
                raise one from None
        raise


def _created(options: SinkOptions, topic: str) -> int:
    """Ask for the topic as Kafka's producers do, by which a broker with auto.create.topics.enable creates it."""
    try:
        with connect(options, max_block_ms=_CREATED_WITHIN_MS) as kafka, kafka.producer() as producer:
            return len(producer.partitions_for(topic))
    except AuthorizationError:
        raise
    except KafkaError as error:
        command = shlex.join(["fencepost", "topic", "create", topic, "--bootstrap", options.bootstrap])
        raise SinkError(
            f"topic {topic} does not exist, and the broker did not create it: create it by `{command}`"
        ) from error


def too_large(options: SinkOptions, size: int) -> SinkError:
    """The error for a micro-batch that is larger than maxTransactionBytes."""
    return SinkError(
        f"a micro-batch has {size} bytes of records, and maxTransactionBytes is {options.max_transaction_bytes}: they"
        " all pass through the driver. Make batches smaller (maxRecordsPerTrigger at the source), compress"
        " (kafka.compression.type), set twoPhase = true if the broker supports it, or raise maxTransactionBytes"
        " together with spark.driver.memory and spark.driver.maxResultSize"
    )
