"""Responses with the end of a log wait until the acknowledged records are flushed.

In Kafka, on a partition with one replica, the high watermark includes a record before the response to its Produce with
acks=1. Here the high watermark rises with the flush, for which acks=1 does not wait. So a request for the log's end
right after such a Produce waits instead.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from fencepost.broker.log.durability.flusher import awaits_flush
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker

Answer: TypeAlias = Response | Coroutine[Any, Any, Response]


def when_durable(node: Broker, logs: Iterable[PartitionLog | None], answer: Callable[[], Answer]) -> Answer:
    """The result of `answer` once the current content of `logs` is durable: at once if it is, else a coroutine.

    `answer` may return a coroutine. It does not wait for a log that is offline, or goes offline meanwhile.
    """
    waited_for = [log for log in logs if log is not None and awaits_flush(log)]
    return _later(node, waited_for, answer) if waited_for else answer()


async def _later(node: Broker, logs: list[PartitionLog], answer: Callable[[], Answer]) -> Response:
    await node.flusher.flush_all(logs)
    response = answer()
    return response if isinstance(response, Response) else await response
