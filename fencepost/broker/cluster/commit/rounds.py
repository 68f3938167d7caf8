"""One round commits everything that this broker appended up to one instant, in all logs.

`LogFlusher` runs the rounds, as it does for files: a log's `sync_targets` begins a round, a thread runs it, and the
log's `deliver` reports the results on the event loop. The first log of a round begins it for all logs.
"""

import errno
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

import trio

from fencepost.broker.cluster.commit.writer import Stopped, Writer
from fencepost.broker.cluster.engine import (
    LAST_OFFSET,
    Append,
    ClaimLost,
    Conflict,
    Engine,
    Fenced,
    Identity,
    NewLog,
    Placement,
    Row,
    RowKind,
    StoreUnavailable,
)
from fencepost.broker.cluster.reading.row_reading import Foreign, foreign_rows
from fencepost.broker.cluster.reading.stamping import checksum_of
from fencepost.broker.log.storage.store import SyncTask
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader

logger = logging.getLogger(__name__)


INLINE_BURST_SECONDS = 0.25
"""How long larger rounds may be inline at any rate, after a pause."""


class RoundLimits(NamedTuple):
    """When a round begins, and where it keeps its bytes."""

    inline_bytes: int = 16 << 10
    """The database keeps the bytes of a round of at most this size."""
    inline_bytes_per_second: int = 0
    """It also keeps those of larger rounds, up to this many bytes a second."""
    linger_s: float = 0.0
    """How long a round waits for more bytes if it puts an object. Other rounds begin at once."""
    linger_bytes: int = 4 << 20
    """A round of this size begins without further waiting."""


DEFAULT_LIMITS = RoundLimits()


class InlineBytes:
    """Decides which rounds the database keeps whole: small ones, and larger ones up to a rate."""

    def __init__(self, always_bytes: int, bytes_per_second: int, now: float) -> None:
        self._always = always_bytes
        self._rate = bytes_per_second
        self._capacity = self._left = bytes_per_second * INLINE_BURST_SECONDS
        self._counted_at = now

    def fit(self, size_bytes: int, now: float) -> bool:
        """Whether the database would keep a round of that size."""
        self._left = min(self._capacity, self._left + (now - self._counted_at) * self._rate)
        self._counted_at = now
        return size_bytes <= max(self._always, self._left)

    def take(self, size_bytes: int, now: float) -> bool:
        """As `fit`, and count the bytes."""
        fits = self.fit(size_bytes, now)
        if fits:
            self._left = max(0.0, self._left - size_bytes)
        return fits


class RowBytes(Protocol):
    """Where rows' bytes come from and go to. The methods block."""

    def put(self, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        """Put the parts, one after the other, as a new object, durable on return; return its id, which is claimed.

        Raises StoreUnavailable.
        """

    def read(self, place: Placement) -> bytes:
        """A range of an object. Raises StoreUnavailable and CorruptLogFile."""

    def read_many(self, places: Sequence[Placement]) -> Iterator[bytes]:
        """Ranges of objects, in this order; several requests may be under way. Raises as `read`."""

    def ids(self) -> Iterator[int]:
        """Every object of the cluster, in no order. Raises StoreUnavailable."""

    def delete(self, object_ids: Collection[int]) -> None:
        """Delete objects that no row refers to; a missing one is not an error. Raises StoreUnavailable."""

    def check_owner(self) -> None:
        """Raise NotOwner if the objects belong to another database, and StoreUnavailable."""

    def forget_claims(self) -> None:
        """Use no claim that was made before: a commit failed with ClaimLost."""


class Cut(NamedTuple):
    """The waiting appends of one log at the instant of a round."""

    log: "Participant"
    log_id: int
    expected: int | None
    """None: markers for the log of another broker, which go where it ends."""
    fixed: bool
    batches: Sequence[bytearray]
    headers: Sequence[BatchHeader]
    leader_epoch: int
    new_log: NewLog | None

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))


class Participant(Protocol):
    def cut(self) -> Cut | None:
        """All appends that wait; None if there are none. They stay until `committed` or `refused`."""

    def committed(self, row: Row, foreign: Sequence[Foreign]) -> None:
        """The appends of the last `cut` are durable as `row`, behind these rows of other brokers."""

    def refused(self, foreign: Sequence[Foreign]) -> None:
        """These rows came first, and nothing of the last `cut` was committed."""


class Rounds:
    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        row_bytes: RowBytes,
        fenced: Callable[[], None] = lambda: None,
        limits: RoundLimits = DEFAULT_LIMITS,
    ) -> None:
        """`fenced` is called on the event loop when the broker learns that it was taken over."""
        self.engine = engine
        self.writer = writer
        self.row_bytes = row_bytes
        self.limits = limits
        self._inline = InlineBytes(limits.inline_bytes, limits.inline_bytes_per_second, writer.now())
        self._fenced = fenced
        self._waiting: dict[Participant, None] = {}
        self._waiting_bytes = 0
        self._full = trio.Event()
        """Set when a round of `linger_bytes` waits."""
        self._round: _Round | None = None
        self.count = 0

    def change(self, change: Callable[[Identity], None]) -> None:
        """Run a fenced change of the engine, in a thread. Raises OSError if this broker was taken over, or stops."""
        try:
            self.writer.change(change)
        except (Fenced, Stopped) as error:
            raise OSError(errno.EROFS, str(error)) from error

    def enlist(self, log: Participant, size_bytes: int = 0) -> None:
        """The log has an append for the next round; `size_bytes` of it were not counted before."""
        self._waiting[log] = None
        self._waiting_bytes += size_bytes
        if self._waiting_bytes >= self.limits.linger_bytes:
            self._full.set()

    @property
    def wants_more(self) -> bool:
        """Whether the next round puts an object, and is not full."""
        return not self._full.is_set() and not self._inline.fit(self._waiting_bytes, self.writer.now())

    async def gather(self) -> None:
        """Wait for more bytes if the next round puts an object."""
        if self.wants_more:
            with trio.move_on_after(self.limits.linger_s):
                await self._full.wait()

    def forget(self, log: Participant) -> None:
        self._waiting.pop(log, None)

    def begin(self) -> list[SyncTask]:
        """The task that commits everything appended so far; none if a round is under way or nothing waits."""
        if self._round is not None:
            if not self._round.done:
                return []
            self.deliver()  # the logs that waited for it were deleted meanwhile
        cuts = [cut for log in self._waiting if (cut := log.cut()) is not None]
        self._waiting.clear()
        self._waiting_bytes = 0
        self._full = trio.Event()
        if not cuts:
            return []
        size_bytes = sum(cut.size_bytes for cut in cuts)
        self._round = _Round(self, cuts, inline=self._inline.take(size_bytes, self.writer.now()))
        return [self._round]

    def deliver(self) -> None:
        """Report the results of a finished round to all its logs."""
        finished = self._round
        if finished is None or not finished.done:
            return
        self._round = None
        self.count += 1
        if finished.fenced:
            self._fenced()
            return
        for cut, result in zip(finished.cuts, finished.results, strict=True):
            if result.row is not None:
                cut.log.committed(result.row, result.foreign)
            elif result.foreign:
                cut.log.refused(result.foreign)
            else:
                self._waiting[cut.log] = None


class _Result(NamedTuple):
    """What became of one log's appends."""

    row: Row | None
    foreign: Sequence[Foreign]


class _Round:
    """One round: a `SyncTask`."""

    def __init__(self, rounds: Rounds, cuts: Sequence[Cut], inline: bool) -> None:
        self.cuts = cuts
        self._inline = inline
        self.done = False
        self.fenced = False
        self.results: list[_Result] = []
        self._rounds = rounds

    def sync(self) -> None:
        """Commit, whatever time that takes. Raises nothing: `done` and the results say what happened."""
        try:
            self.results = self._commit()
        except (Fenced, Stopped) as error:
            logger.warning("nothing more is committed by this incarnation of the broker: %s", error)
            self.fenced = True
        self.done = True

    def _commit(self) -> list[_Result]:
        while True:
            rows, objects = self._placed()
            appends = [
                Append(cut.log_id, cut.expected, cut.fixed, row, cut.new_log)
                for cut, row in zip(self.cuts, rows, strict=True)
            ]
            try:
                bases = self._rounds.writer.commit(appends, objects)
            except ClaimLost as error:
                logger.warning(
                    "the database does not have the claim of an object any more, the object is put again: %s", error
                )
                self._rounds.row_bytes.forget_claims()
            except Conflict as error:
                return [_Result(None, self._since(cut) if cut.log_id in error.logs else ()) for cut in self.cuts]
            else:
                results = [
                    _Result(row._replace(base=base), self._before(cut, base))
                    for cut, row, base in zip(self.cuts, rows, bases, strict=True)
                ]
                if any(result.foreign for result in results):
                    # Another connection has read them, maybe of another server that was promoted without this commit.
                    self._rounds.writer.renew()
                return results

    def _placed(self) -> tuple[list[Row], list[int]]:
        """The rows, inline or in one object."""
        if self._inline:
            return [_row(cut, Placement(0, 0, cut.size_bytes), b"".join(cut.batches)) for cut in self.cuts], []
        object_id = self._put([batch for cut in self.cuts for batch in cut.batches])
        rows, position = [], 0
        for cut in self.cuts:
            rows.append(_row(cut, Placement(object_id, position, cut.size_bytes), None))
            position += cut.size_bytes
        return rows, [object_id]

    def _put(self, parts: Sequence[bytearray]) -> int:
        while True:
            try:
                return self._rounds.row_bytes.put(parts)
            except StoreUnavailable as error:
                self._rounds.writer.pause(error)

    def _since(self, cut: Cut) -> list[Foreign]:
        return self._before(cut, LAST_OFFSET)

    def _before(self, cut: Cut, end: int) -> list[Foreign]:
        """The rows of other brokers from where this log was expected to end."""
        while cut.expected is not None and cut.expected < end:
            try:
                return foreign_rows(self._rounds.engine, self._rounds.row_bytes, cut.log_id, cut.expected, end)
            except StoreUnavailable as error:
                self._rounds.writer.pause(error)
        return []


def _row(cut: Cut, placement: Placement, inline: bytes | None) -> Row:
    """The row of one log; the commit sets its base offset."""
    headers = cut.headers
    heads = [
        bytes(batch) if header.is_control else bytes(batch[:HEADER_SIZE])
        for batch, header in zip(cut.batches, headers, strict=True)
    ]
    return Row(
        base=-1,
        count=sum(header.last_offset_delta + 1 for header in headers),
        kind=RowKind.RUN,
        leader_epoch=cut.leader_epoch,
        placement=placement,
        max_timestamp_ms=max(header.max_timestamp for header in headers),
        batches=len(headers),
        producer_ids=producer_ids(headers),
        heads=b"".join(heads),
        aborted=b"",
        inline=inline,
        checksum=checksum_of(cut.batches),
    )


def producer_ids(headers: Collection[BatchHeader]) -> tuple[int, ...]:
    return tuple(sorted({header.producer_id for header in headers if header.producer_id >= 0}))
