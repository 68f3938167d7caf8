"""The blocking queue, and its messages."""

from collections.abc import Callable
from typing import Any

from fencepost.client.queues.message import Message as AsyncMessage
from fencepost.client.queues.queue import Queue as AsyncQueue
from fencepost.sync.loop import Loop
from fencepost.sync.mirror import Callback, Opened


class Message(Opened, of=AsyncMessage):
    """As fencepost.Message, blocking: `with message:` accepts it at the end, and releases it on an exception."""

    def __init__(self, loop: Loop, inner: AsyncMessage[Any, Any]) -> None:
        super().__init__(loop, inner)
        # Copies: a property would ask the client's thread for each.
        self.topic = inner.topic
        self.partition = inner.partition
        self.offset = inner.offset
        self.timestamp_ms = inner.timestamp_ms
        self.key = inner.key
        self.value = inner.value
        self.headers = inner.headers
        self.delivery_count = inner.delivery_count


class Queue(Opened, of=AsyncQueue):
    """As fencepost.Queue, blocking. Several threads may iterate over it, and each gets other messages."""

    def run(self, handler: Callable[[Message], object], *, workers: int = 1) -> None:
        """Call `handler(message)` for each message in its block, in up to `workers` threads, until `stop`.

        An exception of the handler is logged with its traceback, and releases the message; the worker continues.
        Raises the error of the background once all handlers have ended. The client's timeout does not bound it.
        """
        self._call("run", Callback(self._loop, handler), workers=workers, patient=True)
