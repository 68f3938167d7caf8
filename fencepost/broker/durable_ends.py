"""Answers that show where logs end: they wait for the flush of what is already acknowledged.

Kafka's high watermark includes a record before its Produce with acks=1 is answered, on a partition with one replica.
Here it follows the flush, which acks=1 does not wait for. So a request for the end right after it waits instead.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from fencepost.broker.log.durability.flusher import awaits_flush
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import HasFlusher

if TYPE_CHECKING:
    from fencepost.broker.log.partition import PartitionLog

Answer: TypeAlias = Response | Coroutine[Any, Any, Response]


def at_durable_ends(node: HasFlusher, logs: Iterable["PartitionLog | None"], answer: Callable[[], Answer]) -> Answer:
    """What `answer` returns once all that `logs` hold now is durable: at once where it is, else a coroutine.

    `answer` may return a coroutine of its own. A log that is offline, or goes offline meanwhile, is not waited for.
    """
    waited_for = [log for log in logs if log is not None and awaits_flush(log)]
    return _later(node, waited_for, answer) if waited_for else answer()


async def _later(node: HasFlusher, logs: list["PartitionLog"], answer: Callable[[], Answer]) -> Response:
    await node.commit.flush_all(logs)
    answered = answer()
    return answered if isinstance(answered, Response) else await answered
