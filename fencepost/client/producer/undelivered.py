"""The errors that records fail with."""

from collections.abc import Sequence
from typing import Any

from fencepost.client.core.txn_errors import TABLE, Meaning
from fencepost.client.core.txn_failures import error_of
from fencepost.client.errors import REJECTED, DeliveryError, KafkaError, RecordRejectedError, RejectedRecord, error_for
from fencepost.client.producer.accumulator import Batch, NewRecord
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


def too_late(seconds: float, last: KafkaError | None, *, may_be_written: bool) -> KafkaError:
    """`delivery_timeout` has passed; `last` is the last error."""
    reason = f"gave up on sending a batch after {seconds:g} s"
    error = DeliveryError(
        f"{reason}; last: {last.args[0]}" if last is not None else reason,
        may_be_written=may_be_written,
        code=last.code if last is not None else None,
        api=last.api if last is not None else "Produce",
        node=last.node if last is not None else None,
    )
    error.__cause__ = last
    return error


def state_lost(partition: TopicPartition, last: KafkaError | None) -> KafkaError:
    """The broker has lost this producer's state, and it is unknown whether the batch was written."""
    return DeliveryError(
        f"the leader of {partition} has lost this producer's state: a batch may or may not have been written",
        may_be_written=True,
        code=last.code if last is not None else None,
        api="Produce",
        node=last.node if last is not None else None,
    )


def unanswered(partition: TopicPartition) -> KafkaError:
    """The producer was closed while a request was under way."""
    return DeliveryError(
        f"the producer was closed before {partition} acknowledged a batch", may_be_written=True, api="Produce"
    )


def rejection(batch: Batch, node: int, code: ErrorCode, response: Any, *, in_transaction: bool) -> KafkaError:
    """The error for a partition's response to a batch, with the records that the broker rejects as notes (row L15)."""
    partition, records = batch.queue.partition, batch.records
    broker_message = None if response is None else response.error_message or None
    message = broker_message or f"the leader of {partition} rejected a batch"
    named = response.record_errors if response is not None else []
    error: KafkaError
    if code in REJECTED:
        reasons = {entry.batch_index: entry.batch_index_error_message or message for entry in named}
        reasons = reasons or dict.fromkeys(range(len(records)), message)
        rejected = [(records[index], reason) for index, reason in reasons.items() if 0 <= index < len(records)]
        what = f"the leader of {partition} rejected a batch ({len(rejected)} of {len(records)} records)"
        what = f"{what}: {broker_message}" if broker_message else what
        error = record_rejection(what, partition, rejected, code=code, api="Produce", node=node)
    elif in_transaction and TABLE["Produce"][code] is not Meaning.DONE:
        error = error_of(code, message, "Produce", node)
    else:
        error = error_for(code, message, api="Produce", node=node)
    error.broker_message = broker_message
    for entry in named[:10]:
        error.add_note(f"record {entry.batch_index} of the batch: {entry.batch_index_error_message or 'invalid'}")
    return error


def unsplittable(batch: Batch, code: ErrorCode, wrong: Exception) -> KafkaError:
    """The error for a batch that the program has built, which is too large and whose records cannot be decoded."""
    what = f"a batch is too large and cannot be split: {wrong}"
    return record_rejection(what, batch.queue.partition, [], code=code, api="Produce")


def record_rejection(
    message: str,
    partition: TopicPartition | None,
    records: Sequence[tuple[NewRecord, str]],
    *,
    code: ErrorCode,
    api: str | None = None,
    node: int | None = None,
) -> RecordRejectedError:
    """The error for records with the reason of each; it leaves out those whose batch the program has encoded."""
    rejected = [
        RejectedRecord(key, value, headers, timestamp_ms, reason)
        for (timestamp_ms, key, value, headers), reason in records
        if timestamp_ms >= 0
    ]
    return RecordRejectedError(message, partition=partition, records=rejected, code=code, api=api, node=node)
