"""The errors that records fail with."""

from typing import Any

from fencepost.client.core.txn_errors import TABLE, Meaning
from fencepost.client.core.txn_failures import error_of
from fencepost.client.errors import DeliveryError, KafkaError, error_for
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


def rejection(
    partition: TopicPartition, node: int, code: ErrorCode, response: Any, *, in_transaction: bool
) -> KafkaError:
    """The error for a partition's response, with the records that the broker rejects as notes (row L15)."""
    broker_message = None if response is None else response.error_message or None
    message = broker_message or f"the leader of {partition} rejected a batch"
    error: KafkaError
    if in_transaction and TABLE["Produce"][code] is not Meaning.DONE:
        error = error_of(code, message, "Produce", node)
    else:
        error = error_for(code, message, api="Produce", node=node)
    error.broker_message = broker_message
    for entry in (response.record_errors if response is not None else [])[:10]:
        error.add_note(f"record {entry.batch_index} of the batch: {entry.batch_index_error_message or 'invalid'}")
    return error
