"""What a queue has in hand: messages that wait for the program, those it processes, and their acknowledgements."""

import base64
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from fencepost.client.config import QueueConfig
from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.held_records import HeldRecord, HeldRecords
from fencepost.client.network.cluster import Cluster
from fencepost.client.queues.message import AcknowledgementError, Message
from fencepost.client.queues.share_requests import Identity
from fencepost.protocol.errors import ErrorCode

_LOG = logging.getLogger(__name__)
_SHOWN_LOST = 5


class Hand:
    """Between the program, which takes and decides messages, and the tasks that talk to the brokers."""

    def __init__(self, cluster: Cluster, config: QueueConfig) -> None:
        self._cluster = cluster
        self._config = config
        random_bytes = bytes(int(cluster.random.random() * 256) for _ in range(16))
        self.who = Identity(config.group_id, base64.urlsafe_b64encode(random_bytes).decode().rstrip("="))
        self.held = HeldRecords()
        self.buffer: deque[Message[Any, Any]] = deque()
        self.changed = anyio.Event()
        self.failure: Exception | None = None
        self.is_stopping = False
        """No more messages are fetched or given."""
        self.is_closing = False
        """All messages are decided: the tasks end once their acknowledgements are answered."""
        self.lost = 0
        self.reserved = 0
        """How many records the requests under way may still acquire."""
        self._blocks = 0

    # -- for the program

    async def next(self) -> Message[Any, Any] | None:
        """The next message whose lock has not ended; None once the queue is stopping. Raises the failure."""
        await anyio.lowlevel.checkpoint()
        while True:
            if self.failure is not None:
                raise self.failure
            if self.is_stopping:
                return None
            while self.buffer:
                message = self.buffer.popleft()
                if message._record.result is None:
                    self.held.keep_lock(message._record, False)
                    if not self.buffer:
                        self.notify()  # fetch more
                    return message
            await self.changed.wait()

    def decide(self, record: HeldRecord, kind: AcknowledgeType, delay_s: float = 0.0) -> None:
        """Acknowledge a record, in the background."""
        waits = delay_s > 0 and (record.broker_delays or not self.is_stopping)
        release_at = anyio.current_time() + delay_s if waits else -math.inf
        self.held.decide(record, kind, release_at)
        self.notify()

    @asynccontextmanager
    async def giving(self, records: Sequence[HeldRecord], kind: AcknowledgeType) -> AsyncIterator[None]:
        """A transaction acknowledges these in the block; an exception leaves them undecided.

        Raises AcknowledgementError if a lock has ended, RuntimeError if another task has decided meanwhile.
        """
        await self.wait_until(lambda: not any(record.under_way for record in records))
        for record in records:
            if record.result is not None:
                name = self._cluster.names.get(record.place[0], "?")
                what = f"the lock of {name}-{record.place[1]} {record.offset} has ended: it may be delivered again"
                raise AcknowledgementError(what, code=record.result)
            if record.decision is not None:
                raise RuntimeError(f"offset {record.offset} was decided by another task")
        self.held.give(records, kind)
        taken = False
        try:
            yield
            taken = True
        finally:
            self.held.give_ends(records, taken=taken)
            self.notify()

    def retry_delay_s(self, delivery_count: int) -> float:
        """How long a record waits after its handler has failed."""
        doublings = min(max(delivery_count - 1, 0), 30)
        delay_ms: int = min(self._config.retry_delay_ms << doublings, self._config.retry_delay_max_ms)
        return delay_ms / 1000

    def block_began(self, record: HeldRecord) -> None:
        self._blocks += 1
        self.held.keep_lock(record, True)
        self.notify()

    def block_ended(self, record: HeldRecord) -> None:
        self._blocks -= 1
        if record.decision is None:
            self.held.keep_lock(record, False)
        self.notify()

    @property
    def has_open_blocks(self) -> bool:
        return self._blocks > 0

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change that makes it true."""
        while not condition():
            await self.changed.wait()

    # -- for the tasks

    def notify(self) -> None:
        """Wake all that wait for a change."""
        self.changed.set()
        self.changed = anyio.Event()

    def fail(self, error: Exception) -> None:
        """The program's next call raises this."""
        if self.failure is None:
            self.failure = error
        self.notify()

    def room(self) -> int:
        """How many records the next fetch may acquire: 0 while the program has enough before it."""
        free = self._config.max_in_flight - self.held.in_flight - self.reserved
        enough = len(self.buffer) > 0 and free < self._config.max_in_flight // 2
        return 0 if enough or self.is_stopping else max(free, 0)

    def report_lost(self) -> None:
        """Log the locks and acknowledgements that were lost, and let those that wait for them know."""
        lost, self.held.lost = self.held.lost, []
        if not lost:
            return
        self.lost += len(lost)
        names = self._cluster.names
        shown = ", ".join(
            f"{names.get(one.place[0], '?')}-{one.place[1]} {one.offset}" for one in lost[:_SHOWN_LOST]
        ) + ("" if len(lost) <= _SHOWN_LOST else f" and {len(lost) - _SHOWN_LOST} more")
        codes = ", ".join(sorted({(one.result or ErrorCode.NONE).name for one in lost}))
        _LOG.warning(
            "queue of %s: lost the locks of %s (%s): they may be delivered again", self._config.group_id, shown, codes
        )
        self.notify()

    @property
    def is_done(self) -> bool:
        """Whether no request must follow."""
        return self.is_closing and self.held.is_settled

    def release_all(self) -> None:
        """Release at once all that is undecided, and all whose release waits: the queue is closing."""
        self.is_closing = True
        self.buffer.clear()
        for record in self.held:
            self.held.release_now(record)
        self.notify()

    def give_up(self) -> None:
        """No acknowledgement is sent any more: those that wait did not count."""
        for record in self.held:
            record.result = ErrorCode.NETWORK_EXCEPTION
            self.held.lost.append(record)
        self.report_lost()
