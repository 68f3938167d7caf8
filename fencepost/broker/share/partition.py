"""A share partition as its leader sees it: pure decisions (Kafka 4.4's SharePartition)."""

from collections.abc import Callable, Sequence

from fencepost.broker.share.change import Change
from fencepost.broker.share.values import AckBatch, Acquired, DeadLetters, Fetched, Limits, Want
from fencepost.coordinator.share.values import StoredState


class SharePartition:
    """The records of one partition that one share group has in flight. Times are milliseconds of a clock that only grows.

    One fetch at a time: between reading `next_fetch_offset` and `acquire` with what the log gave, begin no other fetch.
    Every `Change` is stored and then settled, in the order in which they came; fetches that wait may find records after
    a settled change and after `expire`.
    """

    def __init__(self, limits: Callable[[], Limits]) -> None:
        """`limits` is asked at each decision, for the settings of a group change while it runs."""

    def restore(self, state: StoredState, first_offset: int) -> tuple[DeadLetters, ...]:
        """Begin with what the persister knows, once, before anything else; `first_offset` if it has no start offset.

        `first_offset` is what `share.auto.offset.reset` leads to. Answers what a leader before this one has not written
        to the dead-letter topic. Raises ValueError if the stored batches lie before the start or end before they begin.
        """

    @property
    def start_offset(self) -> int:
        """The first offset that may still be delivered (SPSO)."""

    @property
    def end_offset(self) -> int:
        """The last offset that was acquired; equal to the start offset while nothing is in flight."""

    @property
    def state_epoch(self) -> int:
        """The epoch at which the group's state was restored: each update carries it."""

    @property
    def in_flight(self) -> int:
        """How many offsets lie from the start offset to the end offset, settled ones included; 0 if none is known."""

    @property
    def delivery_complete_count(self) -> int:
        """How many records at or after the start offset are acknowledged or archived (KIP-1226)."""

    def next_fetch_offset(self) -> int:
        """Where to read the log for the next acquisition: at records that are available again, else behind the end."""

    def can_acquire(self) -> bool:
        """Whether a fetch could acquire something: records are available again, or the limit in flight has room."""

    def acquire(self, member_id: str, fetched: Fetched, want: Want, now_ms: int) -> list[Acquired]:
        """Give a member what is available of the records that were read, until its locks end.

        Nothing is stored. Records of aborted transactions are archived instead. Available records between the fetch
        offset and the first batch are archived too: the log has no longer got them.
        """

    def acknowledge(self, member_id: str, batches: Sequence[AckBatch], now_ms: int) -> Change:
        """Take what a member says of records that it holds; the answer to it waits until the change is stored.

        Raises Refused, having undone what came before in `batches` (but for renewed locks).
        """

    def release(self, member_id: str) -> Change:
        """Make available again what a member holds, which left or whose session ended."""

    def expire(self, now_ms: int) -> Change:
        """Release the records whose locks have ended: at once, whether it can be stored or not."""

    def next_expiry(self) -> int | None:
        """When to call `expire` next: no lock ends before. None if no record is locked."""

    def log_start_moved(self, log_start_offset: int) -> None:
        """Retention or DeleteRecords removed the records below: archive what was available there.

        Stored with the next change. Records that a member holds stay locked until it acknowledges them or the lock ends.
        """

    def archive(self, dead: DeadLetters) -> Change:
        """Records that are written to the dead-letter topic, or could not be: they are done."""
