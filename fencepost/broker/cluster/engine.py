"""The interface to the database that orders all logs: what one commit is, and what makes it fail.

Every method is one transaction of the database: it happens whole or not at all. Every method with an identity renews
that broker's lease. An engine knows rows, offsets and fences; it knows no rule of Kafka
(docs/decisions/0060-one-commit-per-round.md). `postgres.py` is the engine of a cluster; tests/kit/sim_engine.py is its
specification in Python, and a test gives both the same commands.

All methods block; a broker calls them in threads. Each raises StoreUnavailable if the connection broke: then the
transaction may have happened or not, and `open_session` tells which.
"""

import hashlib
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from fencepost.broker.cluster.history import History

SLOTS = 256
"""A log never changes its slot; a slot belongs to at most one broker at a time."""
LOG_ID_BITS = 63
LAST_OFFSET = 1 << 62
"""The end of a span that reaches to the end of its log."""
ROWS_MAX = 1000
"""The most rows of one log that one statement returns."""


class StoreUnavailable(Exception):
    """The database or the object store cannot be reached; the text names which and why."""


class Fenced(Exception):
    """Another broker took this one's slots over, or a newer process or connection has its place. Nothing changed."""


class ClaimLost(Exception):
    """Garbage collection has deleted an object of the commit. Nothing changed."""


class Conflict(Exception):
    """Rows of other brokers came first in these logs, and appends may not move behind them. Nothing changed."""

    def __init__(self, logs: Collection[int]) -> None:
        super().__init__(f"rows of other brokers came first in logs {sorted(logs)}")
        self.logs = frozenset(logs)


class Changed(Exception):
    """The rows to replace are not those that the caller has read, or the log ends before them. Nothing changed."""


class LogIdTaken(Exception):
    """Another log has this id, so the new one cannot have it (two of 2^63 ids are equal). Nothing changed."""

    def __init__(self, log: int, held_by: str, wanted_by: str) -> None:
        super().__init__(f"log {wanted_by} cannot have the id {log}: log {held_by} has it")
        self.log = log


class SchemaMismatch(Exception):
    """The database has no schema, or that of another version; the text says what to run."""


class StillAlive(Exception):
    """A process with this broker id renewed its lease a moment ago."""

    def __init__(self, address: str, idle_ms: int) -> None:
        super().__init__(f"a broker with this id runs at {address}: it renewed its lease {idle_ms} ms ago")
        self.address = address
        self.idle_ms = idle_ms


class Identity(NamedTuple):
    """Who commits. The database knows the newest incarnation and session of each broker; all others are fenced."""

    broker: int
    incarnation: int
    """Rises when the broker's process starts, and when another broker takes its slots over."""
    session: int
    """Rises when the broker connects. What was sent over an older connection cannot take effect any more."""


class Session(NamedTuple):
    """A new connection of a broker, and the answer to its last commit."""

    identity: Identity
    commit_seq: int
    """The sequence number of the last commit that happened."""
    bases: tuple[int, ...]
    """Its base offsets, as `commit` returned them or would have."""


class Placement(NamedTuple):
    """Where the bytes of a row are: inline in the database (`object_id` 0), or in a part of an object."""

    object_id: int
    position: int
    size_bytes: int


class RowKind(IntEnum):
    """How a row came to be."""

    RUN = 0
    """The batches of one commit. `heads` rebuilds the producers' state."""
    SEGMENT = 1
    """Merged from runs, or written by compaction. `aborted` lists the transactions that its markers abort."""


class Row(NamedTuple):
    """One run of whole batches in a log. The bytes at `placement` may carry other base offsets and leader epochs:
    readers set them, counting from `base` on.
    """

    base: int
    count: int  # type: ignore[assignment]  # tuple.count, which is never called on a row
    """The number of offsets."""
    kind: RowKind
    leader_epoch: int
    placement: Placement
    max_timestamp_ms: int
    batches: int
    producer_ids: tuple[int, ...]
    """Every producer id in it, sorted: an append of the same producer may not move behind this row."""
    heads: bytes | None
    """The batches' headers, and whole control batches; None for a segment."""
    aborted: bytes
    """Entries of Kafka's transaction index; empty for a run."""
    inline: bytes | None = None
    """The batches, if they are in the database, and the caller wanted them."""
    checksum: int | None = None
    """CRC-32C of the bytes at `placement`, as `stamping.checksum_of` computes it; None in rows that were
    written before rows had one. The batches' own CRC-32C does not show that the bytes are those of another row."""

    @property
    def end(self) -> int:
        return self.base + self.count


class Span(NamedTuple):
    """The offsets [start, end) of a log."""

    log: int
    start: int
    end: int


class NewLog(NamedTuple):
    """The name of a log, for its first row."""

    name: str
    """Topic and partition, as in `orders-0`."""
    topic_id: bytes


class Append(NamedTuple):
    """One row for one log. A commit has at most one for each log."""

    log: int
    expected: int | None
    """Where the owner expects the log to end. None: a guest's marker, for the log of another broker; it is placed
    where the log ends."""
    fixed: bool
    """The row may not move: any row of another broker before it is a Conflict."""
    row: Row
    """`base` is ignored."""
    new_log: NewLog | None = None
    """Set for the first row of a log that the owner has not seen in the database."""


class Commit(NamedTuple):
    """All that a broker appended up to one instant, in all logs."""

    identity: Identity
    seq: int
    """One more than that of the last commit that happened."""
    appends: Sequence[Append]
    objects: Sequence[int] = ()
    """Claimed objects that hold bytes of these rows; the commit makes them live."""


class Head(NamedTuple):
    """The bounds of one log."""

    log: int
    name: str
    topic_id: bytes
    next: int
    start: int
    """The log start offset: readers may not read below it."""
    size_bytes: int


class Snapshot(NamedTuple):
    """A value that stands for the rows of a log below `base`."""

    log: int
    base: int
    kind: str
    """`producers`: the state of the producers, in Kafka's format of a producer snapshot."""
    value: bytes


class Replacement(NamedTuple):
    """Merging or compaction: these rows take the place of all rows in [start, end)."""

    log: int
    start: int
    end: int
    bases: Sequence[int]
    """The base offsets of the rows that the caller has read there."""
    rows: Sequence[Row]
    objects: Sequence[int]
    """Claimed objects that hold the new rows' bytes."""
    snapshots: Sequence[Snapshot] = ()


class Proposed(NamedTuple):
    """A compaction that another program has computed, for the owner of the log to commit or refuse."""

    number: int
    log: int
    value: bytes
    """As proposals.py encodes it."""


class Member(NamedTuple):
    """One broker in the database."""

    broker: int
    incarnation: int
    idle_ms: int
    """Since its last transaction with its identity, by the database's clock."""
    left: bool
    """It released its slots and stopped, or never began."""
    addresses: str
    """Its listeners, as JSON."""
    draining: bool = False
    """It owns no slots because an operator wants that; also after a restart."""
    ready: bool = False
    """This incarnation serves clients: other brokers may give slots to it."""


class Slot(NamedTuple):
    """The owner of one slot."""

    slot: int
    broker: int | None
    epoch: int
    """The leader epoch of the slot's partitions; it rises with every change of hands."""


class Engine(Protocol):
    """The database of a cluster. See the module's docstring for what every method raises."""

    def watch(self, history: "History") -> None:
        """Compare the database with this history from now on: every method raises HistoryLost if something is lost."""

    def position(self) -> int:
        """How much the database has: see history.py."""

    def reset(self, known_life: int) -> None:
        """Something was lost: fence all brokers, so that each joins again. Once for each start of the database."""

    # Brokers and slots

    def cluster_id(self, wanted: str) -> str:
        """The cluster's id; `wanted`, if it has none yet."""

    def join(self, broker: int, addresses: str, lease_ms: int) -> Session:
        """Begin a new incarnation. Slots that the broker had belong to no broker then. Raises StillAlive."""

    def open_session(self, identity: Identity) -> Session:
        """Begin a new session of the same incarnation, after the connection broke. Waits for a transaction of the
        old connection that is still under way. Raises Fenced if the incarnation is not the newest.
        """

    def renew(self, identity: Identity) -> None:
        """Renew the lease. Raises Fenced. This is also a read barrier: the broker still had its slots."""

    def take_over(self, identity: Identity, slots: Collection[int], lease_ms: int) -> list[Slot]:
        """Own those of the slots whose broker did not renew its lease for `lease_ms`, left, or does not exist.

        Such a broker gets a new incarnation, and loses all its slots; slots that the caller did not want belong to no
        broker then. Returns the slots taken, with their new epochs. Raises Fenced.
        """

    def release(self, identity: Identity) -> None:
        """Give all slots up, and leave: the incarnation ends. Raises Fenced."""

    def ready(self, identity: Identity) -> None:
        """This incarnation serves clients from now on. Raises Fenced."""

    def give_up(self, identity: Identity, slots: Collection[int]) -> None:
        """Give up those of these slots that it owns. It has committed all appends to their logs. Raises Fenced."""

    def drain(self, broker: int, draining: bool) -> bool:
        """Have a broker give all its slots up, or let it own slots again; False if no broker has this id."""

    def secret(self, wanted: bytes) -> bytes:
        """What all brokers of the cluster know, and no client; `wanted`, if there is none yet."""

    def members(self) -> list[Member]:
        """Every broker that ever joined, by id."""

    def slots(self) -> list[Slot]:
        """All slots, in order."""

    # Order

    def commit(self, commit: Commit) -> tuple[int, ...]:
        """Append all rows, or none; return the base offset of each, in the order of `appends`.

        In this order: the fence (`Fenced` if the identity is not the newest, or `seq` not the next), the heads locked
        in the order of their ids, the expectations (`Conflict`), the objects (`ClaimLost`), the rows. The lease is
        renewed. An append whose log ends behind `expected` moves to the end, unless it is fixed, or one of the rows
        from `expected` on has a producer id in common with it, or the log starts behind `expected`. It is a Conflict,
        too, if the log does not exist and `new_log` is None, or if it ends before `expected`. Raises LogIdTaken.

        The objects in `objects` have to be claimed. Others that the rows refer to have to be live already.
        """

    # Reading

    def heads(self, slots: Collection[int] | None = None) -> list[Head]:
        """The bounds of all logs, or of those in these slots, by id."""

    def heads_of(self, logs: Collection[int]) -> list[Head]:
        """The bounds of each of these logs that exists, by id."""

    def rows(self, log: int, start: int, end: int, inline: bool = False, limit: int = ROWS_MAX) -> list[Row]:
        """At most `limit` rows of a log that overlap [start, end), in order; with the inline bytes if wanted."""

    def many_rows(self, spans: Sequence[Span], inline: bool = False, limit: int = ROWS_MAX) -> list[list[Row]]:
        """As `rows`, for each of these spans: at most `limit` rows of each."""

    def snapshots(self, logs: Collection[int], kind: str) -> list[Snapshot]:
        """The newest snapshot of this kind of each log that has one."""

    # Growth

    def raise_start(self, identity: Identity, starts: Sequence[tuple[int, int]]) -> None:
        """Raise the start offsets of logs, at most to their ends, and delete rows wholly below them. Unknown logs are
        ignored. Raises Fenced.
        """

    def replace(self, identity: Identity, replacement: Replacement) -> None:
        """Replace rows, and keep each snapshot that is not older than the last of its log and kind. Raises Fenced,
        Changed, and ClaimLost.
        """

    def drop(self, identity: Identity, logs: Collection[int]) -> None:
        """Delete logs with all their rows and snapshots. Raises Fenced."""

    # Proposals

    def propose(self, log: int, value: bytes) -> int:
        """Store a proposal; returns its number. No log changes."""

    def proposed(self) -> list[Proposed]:
        """The proposals without an answer, the oldest first."""

    def answer(self, identity: Identity, number: int, answer: str) -> None:
        """Store the owner's answer to a proposal, unless it has one. Raises Fenced."""

    def answer_to(self, number: int) -> str | None:
        """The answer to a proposal; None if there is none yet."""

    # Objects

    def claim(self, count: int) -> list[int]:
        """Ids for new objects. Objects are put under these ids only, and only by the caller. No life of the database
        gives an id twice, nor does another database. Fewer than `count` if some are taken, which is improbable.
        """

    def doomed(self, idle_ms: int, limit: int = 1000) -> list[int]:
        """Mark claims older than `idle_ms` and objects without rows for deletion; return all marked ones. A commit with
        a marked claim fails with ClaimLost.
        """

    def forget(self, objects: Collection[int]) -> None:
        """Delete marked objects from the database, after they were deleted from the object store."""

    def known(self, objects: Collection[int]) -> set[int]:
        """Those of these objects that the database has. An id that it does not have is never claimed again."""


def log_id(topic_id: bytes, partition: int) -> int:
    """The id of a partition's log. The database stores the name and topic id beside it, and refuses another log with
    the same id.
    """
    digest = hashlib.blake2b(topic_id + partition.to_bytes(4, "big"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - LOG_ID_BITS)


def slot_of(log: int) -> int:
    return log % SLOTS
