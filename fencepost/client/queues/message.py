"""A message of a queue: a record that this member has acquired, and the ways to acknowledge it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self

import anyio
import anyio.lowlevel

from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.held_records import HeldRecord
from fencepost.client.errors import KafkaError
from fencepost.client.key_value import K, V
from fencepost.client.options import seconds
from fencepost.client.queues.share_requests import Identity
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.consumer.consumed import ConsumerRecord
    from fencepost.client.keywords import Duration

DELAY_S_MAX = 366 * 24 * 3600
"""The longest delay that a broker takes (`DELAY_MS_MAX` there)."""
_PAST = {AcknowledgeType.ACCEPT: "accepted", AcknowledgeType.RELEASE: "released", AcknowledgeType.REJECT: "rejected"}


class AcknowledgementError(KafkaError):
    """No broker confirmed an acknowledgement: the message's lock had ended, or no response came in time.

    The record is delivered again, with a higher `delivery_count`; but not if the acknowledgement had arrived, and only
    its response was lost.
    """


class Acknowledging(Protocol):
    """What a message needs of its queue."""

    who: Identity

    def decide(self, record: HeldRecord, kind: AcknowledgeType, delay_s: float = 0.0) -> None: ...
    def giving(self, records: Sequence[HeldRecord], kind: AcknowledgeType) -> AbstractAsyncContextManager[None]: ...
    def retry_delay_s(self, delivery_count: int) -> float: ...
    def block_began(self, record: HeldRecord) -> None: ...
    def block_ended(self, record: HeldRecord) -> None: ...
    async def wait_until(self, condition: Callable[[], bool]) -> None: ...


class Message(Generic[K, V]):
    """One record, with the fields of a ConsumerRecord, and `delivery_count`: 1 at the first delivery.

    `async with message:` accepts it at the end of the block. An exception releases it, to be delivered again after
    `retry_delay`, and leaves the block; a cancellation releases it at once. Its lock is renewed while the block runs.
    Without a block, its lock ends after the group's `share.record.lock.duration.ms`.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int

    def __init__(self, queue: Acknowledging, record: HeldRecord, consumed: "ConsumerRecord[K, V]") -> None:
        self._queue = queue
        self._record = record
        self.topic = consumed.topic
        self.partition = consumed.partition
        self.offset = consumed.offset
        self.timestamp_ms = consumed.timestamp_ms
        self.key = consumed.key
        self.value = consumed.value
        self.headers = consumed.headers
        self.delivery_count = record.delivery_count

    def __repr__(self) -> str:
        state = "in hand" if self._record.decision is None else _PAST[self._record.decision]
        if self._record.result not in (None, ErrorCode.NONE):
            state = "lost"
        return f"<Message {self.topic}-{self.partition} {self.offset}: delivery {self.delivery_count}, {state}>"

    def accept(self) -> None:
        """It is processed. Sent in the background; raises RuntimeError after another decision."""
        self._decide(AcknowledgeType.ACCEPT)

    def release(self, delay: "Duration" = 0.0) -> None:
        """Deliver it again, to any member of the group, after `delay` (seconds, or a timedelta).

        Fencepost's broker holds the record back, whatever becomes of this process; it rounds the delay up to 0.1 s. For
        other brokers this process keeps the lock until then: if it ends, the delay ends, and meanwhile the message
        counts for `max_in_flight`. Raises RuntimeError after another decision, ValueError for a delay below 0 or above
        366 days.
        """
        delay_s = seconds(delay)
        if not 0 <= delay_s <= DELAY_S_MAX:
            raise ValueError(f"a delay of {delay_s:g} s: it must be from 0 to {DELAY_S_MAX} (366 days)")
        self._decide(AcknowledgeType.RELEASE, delay_s)

    def reject(self) -> None:
        """Archive it: it cannot be processed, and no member gets it again. Raises RuntimeError as `accept`."""
        self._decide(AcknowledgeType.REJECT)

    async def acknowledged(self) -> None:
        """Wait until the broker has taken the acknowledgement. Raises AcknowledgementError if it is not confirmed.

        Raises RuntimeError if nothing is decided yet.
        """
        record = self._record
        if record.decision is None and record.result is None:
            raise RuntimeError(f"{self!r} has no acknowledgement: accept, release or reject it first")
        await self._queue.wait_until(lambda: record.result is not None)
        if record.result is not ErrorCode.NONE:
            what = f"the acknowledgement of {self.topic}-{self.partition} {self.offset} is not confirmed"
            raise AcknowledgementError(f"{what}: the record may be delivered again", code=record.result)

    async def __aenter__(self) -> Self:
        """Raises RuntimeError if the message is decided already."""
        await anyio.lowlevel.checkpoint()
        if self._record.decision is not None:
            raise RuntimeError(f"{self!r} cannot begin a block: it is decided already")
        self._queue.block_began(self._record)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        record = self._record
        self._queue.block_ended(record)
        if record.decision is not None:
            return
        if error is None:
            self._queue.decide(record, AcknowledgeType.ACCEPT)
        else:
            failed = isinstance(error, Exception)
            delay_s = self._queue.retry_delay_s(record.delivery_count) if failed else 0.0
            self._queue.decide(record, AcknowledgeType.RELEASE, delay_s)

    def _decide(self, kind: AcknowledgeType, delay_s: float = 0.0) -> None:
        self._check_undecided(kind)
        self._queue.decide(self._record, kind, delay_s)

    def _check_undecided(self, kind: AcknowledgeType) -> None:
        if self._record.decision is not None:
            raise RuntimeError(f"{self!r} cannot be {_PAST[kind]}: it is decided already")
