"""Assembles committed transactions from the batches and markers of several partitions, never a part of one. Pure.

A log shows only this of a transaction: batches with (producer id, epoch), and behind them one marker in each partition
that it wrote to. No log lists these partitions. Three facts make it enough:

1. All records of a transaction are in their logs before its first marker is written anywhere. So a consumer that has
   read a COMMIT marker, then asked each other partition for its end (a fence) and read up to there, has read all of
   that transaction's records. Where its records have no marker yet, that marker is still being written.
2. Under TV2 (KIP-890) each transaction has an epoch of its own, and its markers carry the next one: (producer id,
   epoch) of the records names it, in whatever order the partitions are read.
3. Under TV1 the marker has the epoch of the records, and consecutive transactions share it. All markers of one are
   written before the next one writes anything. As long as a producer writes to only one of the partitions, each marker
   there ends a transaction. Where it writes to several, nothing in the logs matches their markers: such neighbours
   form one unit of several whole transactions, as soon as a fence has passed without anything new or open of that
   producer. A producer that never pauses never gets there.

    batch --add--> open --COMMIT--> closed --fence passed, nothing of it open--> unit
                    '---ABORT--> forgotten

Where reading begins in the middle of a log, the beginning of a transaction may be missing. A transaction whose first
batch does not have its producer's sequence 0 is left out (`cut`), unless reading continues from a place of `places`.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fencepost.client.core.offset_metadata import decode_metadata, encode_metadata
from fencepost.protocol.topics import TopicPartition

PLAIN: Final = -1
"""The "producer id" of records outside of transactions."""


class Piece(NamedTuple):
    """One batch of a transaction. `held` is the caller's handle for its bytes."""

    partition: TopicPartition
    base_offset: int
    next_offset: int
    size_bytes: int
    held: Any


@dataclass(slots=True)
class Share:
    """One transaction's batches in one partition; `marker` is the offset of its marker, once that was read."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int
    cut: bool
    pieces: list[Piece] = field(default_factory=list)
    marker: int = -1
    event: int = -1
    """The number of the marker among all events."""


@dataclass(slots=True)
class Unit:
    """One committed transaction, or records outside of any (`producer_id` PLAIN).

    `merged`: under TV1, the minimum number of neighbours that cannot be separated.
    """

    producer_id: int
    epoch: int
    shares: list[Share]
    merged: int = 1

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for share in self.shares for piece in share.pieces)


@dataclass(slots=True)
class _Closed:
    """Shares whose COMMIT was read, until no others can follow: under TV2 those of one transaction."""

    since: int
    """The number of its first COMMIT among all events."""
    shares: list[Share] = field(default_factory=list)
    last: int = 0
    """The number of its last event."""
    fenced: bool = False
    """A fence that was requested after its first COMMIT has passed."""
    covered: bool = False
    """The same is true of a later transaction of the same producer."""


class Place(NamedTuple):
    """Where to continue in a partition without loss; `metadata` lists what was given already from there on."""

    offset: int
    metadata: str


class Fence(NamedTuple):
    """The ends of all partitions, requested after event number `events`."""

    events: int
    ends: Mapping[TopicPartition, int]


class _Log:
    """The state of one partition."""

    __slots__ = ("clean", "cuts", "frontier", "given", "open", "seen", "skip", "start")

    def __init__(self, start: int, metadata: str | None) -> None:
        self.start = self.frontier = start
        self.open: dict[int, Share] = {}
        self.seen: set[int] = set()
        known = decode_metadata(start, metadata)
        self.clean = start == 0 or known is not None
        self.skip: dict[int, int] = known[0] if known is not None else {}
        self.cuts: set[int] = known[1] if known is not None else set()
        self.given: dict[int, int] = dict(self.skip)  # producer id -> its last processed offset


class Assembler:
    """Takes batches and markers in the order of each log; returns units in the order in which they become complete."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _Log] = {}
        self._closed: dict[tuple[int, int, bool], _Closed] = {}
        self._units: deque[Unit] = deque()
        self._fences: deque[Fence] = deque()
        self._events = 0
        self._asked = -1
        self._late = 0
        """The number of the last COMMIT that waits for a fence."""
        self.dropped: list[Piece] = []
        """Batches that were never given and are not needed any more: aborted, or of a partition that was revoked."""
        self.left_out = 0
        """How many transactions were left out because their beginning is missing."""
        self.held_bytes = 0

    # -- partitions

    def start(self, partition: TopicPartition, offset: int, metadata: str | None) -> None:
        """Reading begins at `offset`, perhaps again; `metadata` was committed with `offset`, None if nothing was."""
        self.stop(partition)
        self._logs[partition] = _Log(offset, metadata)

    def stop(self, partition: TopicPartition) -> None:
        """The partition was revoked: its next owner gives its transactions."""
        log = self._logs.pop(partition, None)
        if log is None:
            return
        for share in log.open.values():
            self._forget(share)
        for key, closed in list(self._closed.items()):
            for share in [share for share in closed.shares if share.partition == partition]:
                closed.shares.remove(share)
                self._forget(share)
            if not closed.shares:
                del self._closed[key]
        kept: deque[Unit] = deque()
        for unit in self._units:
            for share in [share for share in unit.shares if share.partition == partition]:
                unit.shares.remove(share)
                self._forget(share)
            if unit.shares:
                kept.append(unit)
        self._units = kept
        self._late = max(self._late, self._events)

    def frontier(self, partition: TopicPartition) -> int | None:
        """The next offset that is expected, None for a partition that is not read."""
        log = self._logs.get(partition)
        return log.frontier if log is not None else None

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._logs)

    # -- batches and markers

    def add(self, piece: Piece, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool) -> bool:
        """Add a batch of records; returns whether its bytes must be kept."""
        log = self._logs[piece.partition]
        log.frontier = max(log.frontier, piece.next_offset)
        owner = producer_id if transactional else PLAIN
        if piece.next_offset - 1 <= log.skip.get(owner, -1):
            return False
        if not transactional:
            plain = Share(piece.partition, PLAIN, -1, piece.base_offset, False, [piece], piece.next_offset - 1)
            self._units.append(Unit(PLAIN, -1, [plain]))
            self.held_bytes += piece.size_bytes
            return True
        share = log.open.get(producer_id)
        if share is None:
            share = log.open[producer_id] = Share(
                piece.partition,
                producer_id,
                epoch,
                piece.base_offset,
                self._is_cut(log, piece, producer_id, base_sequence),
            )
            log.seen.add(producer_id)
            self._touch(producer_id, epoch)
        if share.cut:
            return False
        share.pieces.append(piece)
        self.held_bytes += piece.size_bytes
        return True

    @staticmethod
    def _is_cut(log: _Log, piece: Piece, producer_id: int, base_sequence: int) -> bool:
        """Whether a transaction whose first batch is `piece` began before the start of reading."""
        if producer_id in log.seen:
            return False
        return piece.base_offset < log.start or producer_id in log.cuts or (not log.clean and base_sequence != 0)

    def end(self, partition: TopicPartition, offset: int, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Add a marker: the producer's open transaction in this partition is committed or aborted."""
        log = self._logs[partition]
        log.frontier = max(log.frontier, offset + 1)
        log.seen.add(producer_id)
        share = log.open.pop(producer_id, None)
        if share is None:
            return
        if not commit or share.cut:
            self.left_out += commit
            self._forget(share)
            self._touch(producer_id, share.epoch)
            return
        self._touch(producer_id, share.epoch)
        share.marker, share.event = offset, self._events
        key = (producer_id, share.epoch, epoch > share.epoch)
        closed = self._closed.get(key)
        if closed is None:
            closed = self._closed[key] = _Closed(since=self._events)
            self._late = self._events
        closed.shares.append(share)
        closed.last = self._events
        if not key[2]:
            self._late = self._events

    def advance(self, partition: TopicPartition, offset: int) -> None:
        """Everything below `offset` was read; it may be empty."""
        log = self._logs[partition]
        log.frontier = max(log.frontier, offset)

    def _touch(self, producer_id: int, epoch: int) -> None:
        self._events += 1
        for tv2 in (True, False):
            closed = self._closed.get((producer_id, epoch, tv2))
            if closed is not None:
                closed.last = self._events
                if not tv2:
                    self._late = self._events

    def _forget(self, share: Share) -> None:
        self.held_bytes -= sum(piece.size_bytes for piece in share.pieces)
        self.dropped += share.pieces

    # -- fences

    def wants_fence(self) -> bool:
        """Whether the caller should request the ends of the partitions now; it must call `asked` first."""
        return len(self._logs) > 1 and bool(self._closed) and self._asked < self._late

    def asked(self) -> int:
        """The caller requests the ends after this call; pass the returned number to `fence` together with them."""
        self._asked = self._events
        return self._events

    def not_asked(self) -> None:
        """The request that `asked` announced has failed."""
        self._asked = -1

    def fence(self, events: int, ends: Mapping[TopicPartition, int]) -> None:
        """The ends that were requested after `asked`."""
        self._fences.append(Fence(events, ends))

    # -- complete units

    def next_unit(self) -> Unit | None:
        """The unit that `ready` will return, or None."""
        if not self._units:
            self._complete()
        return self._units[0] if self._units else None

    def ready(self) -> Unit | None:
        """The next unit, or None. It counts as given from now on."""
        if self.next_unit() is None:
            return None
        unit = self._units.popleft()
        self.held_bytes -= unit.size_bytes
        for share in unit.shares:
            log = self._logs[share.partition]
            log.given[share.producer_id] = max(log.given.get(share.producer_id, -1), share.marker)
        return unit

    def _complete(self) -> None:
        if len(self._logs) <= 1:
            self._fences.clear()
            self._release(Fence(self._events, {}))
            return
        while self._fences:
            fence = self._fences[0]
            if not self._logs.keys() <= fence.ends.keys():
                self._fences.popleft()  # a partition was assigned since: the fence has no end of it
                self._asked = -1
                continue
            if any(log.frontier < fence.ends[partition] for partition, log in self._logs.items()):
                break
            self._fences.popleft()
            self._release(fence)
        self._release(Fence(-1, {}))

    def _release(self, fence: Fence) -> None:
        """Release the units that are complete now that all partitions are read up to `fence`, by producer in order."""
        covered: set[int] = set()
        for key in sorted(self._closed, key=lambda key: key[1:], reverse=True):
            closed = self._closed[key]
            # What is true of a producer's later transaction is true of its earlier ones: they ended before.
            closed.fenced |= closed.since <= fence.events or key[0] in covered
            closed.covered |= key[0] in covered
            if closed.fenced:
                covered.add(key[0])
        first: dict[int, int] = {}
        for key, closed in self._closed.items():
            first[key[0]] = min(first.get(key[0], closed.since), closed.since)
        for key in sorted(self._closed, key=lambda key: (first[key[0]], key[1:])):
            producer_id, epoch, tv2 = key
            closed = self._closed[key]
            at_work = {
                partition
                for partition, log in self._logs.items()
                if (share := log.open.get(producer_id)) is not None and share.epoch == epoch
            }
            if not tv2:
                self._release_tv1(key, closed, fence, at_work)
            elif closed.fenced and not at_work:
                self._units.append(Unit(producer_id, epoch, closed.shares))
                del self._closed[key]

    def _release_tv1(
        self, key: tuple[int, int, bool], closed: _Closed, fence: Fence, at_work: set[TopicPartition]
    ) -> None:
        where = {share.partition for share in closed.shares}
        if len(where | at_work) == 1:
            # The producer has no events in other partitions, and what follows here belongs to later transactions.
            done = [share for share in closed.shares if closed.covered or share.event <= fence.events]
            self._units += [Unit(key[0], key[1], [share]) for share in done]
            closed.shares = closed.shares[len(done) :]
            if not closed.shares:
                del self._closed[key]
        elif (closed.covered or closed.last <= fence.events) and not at_work:
            most = max(sum(share.partition == partition for share in closed.shares) for partition in where)
            self._units.append(Unit(key[0], key[1], closed.shares, merged=most))
            del self._closed[key]

    def largest(self) -> Share | None:
        """The share with the most bytes that is not complete."""
        shares = [share for log in self._logs.values() for share in log.open.values()]
        shares += [share for closed in self._closed.values() for share in closed.shares]
        return max(shares, key=lambda share: sum(piece.size_bytes for piece in share.pieces), default=None)

    def places(self) -> dict[TopicPartition, Place]:
        """For each partition the offset and the metadata to commit, so that no unit is cut or doubled.

        The offset is below everything that was not given yet. The metadata lists what was given above it.
        """
        undone: dict[TopicPartition, int] = {}
        shares = [share for log in self._logs.values() for share in log.open.values() if not share.cut]
        shares += [share for closed in self._closed.values() for share in closed.shares]
        shares += [share for unit in self._units for share in unit.shares]
        for share in shares:
            undone[share.partition] = min(undone.get(share.partition, share.first_offset), share.first_offset)
        places = {}
        for partition, log in self._logs.items():
            offset = undone.get(partition, log.frontier)
            log.given = {owner: last for owner, last in log.given.items() if last >= offset}
            cuts = [owner for owner, share in log.open.items() if share.cut]
            cuts += [owner for owner in log.cuts if owner not in log.seen]
            places[partition] = Place(offset, encode_metadata(offset, log.given, cuts))
        return places
