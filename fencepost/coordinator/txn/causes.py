"""Why a request was refused: what made a producer's identity stale or ended its transaction, which client, and when."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple, Protocol

from fencepost.coordinator.txn.state import (
    NO_PRODUCER_ID,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    TxnState,
    holder,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY

CHANGES_KEPT = 8
REFUSALS_KEPT = 8
Identity = tuple[int, int]
"""Producer id and epoch."""

EXPLAINED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The error codes that have a recorded cause: 47, 48, 49, 51, 90, 120."""

TOOL_CLIENT_IDS = ("fencepost-txn", "adminclient-")
"""Prefixes of the client ids of administrators' tools: fencepost's, and the default of Java's Admin."""


class Caller(Protocol):
    """The client behind a request; the broker's request context is one."""

    api_key: int
    api_version: int
    client_id: str | None

    @property
    def client_host(self) -> str:
        """The client's host, without its port."""

    @property
    def principal(self) -> object:
        """Who the client is."""


class Reason(Enum):
    """The cause in one word: the `reason` label of the metrics."""

    NEWCOMER = "newcomer"
    """A client that showed no identity took the id with InitProducerId."""
    TOOL = "tool"
    """An administrator's tool took the id with InitProducerId."""
    REINIT = "reinit"
    """The holder itself called InitProducerId again and received the next epoch."""
    KEPT = "kept"
    """A successor took the transaction over to end it (KIP-939)."""
    TIMEOUT = "timeout"
    """The transaction exceeded its timeout."""
    WENT_BACK = "went_back"
    """The cluster's database went back in time, and the coordinator took the id. Records are lost, maybe."""
    ENDED = "ended"
    """The holder itself has ended that transaction: the request is late, or a copy."""
    EXPIRED = "expired"
    """The id was unused for `transactional.id.expiration.ms` and has expired."""
    BEFORE_START = "before_start"
    """It happened before this broker process started; only the former process knew the client."""
    NEVER_HELD = "never_held"
    """No client received that identity under this id, as far as the coordinator remembers."""
    UNKNOWN_ID = "unknown_id"
    """The transactional id is unknown."""
    COMPLETING = "completing"
    """The previous transaction is decided, and some of its markers are not written yet."""
    NOTHING_OPEN = "nothing_open"
    """There is no open transaction to end or to write to."""
    OTHER_VERDICT = "other_verdict"
    """The transaction ended before with the opposite result."""
    NOT_ADDED = "not_added"
    """The partition is not part of the transaction."""
    MARKER = "marker"
    """A marker ended the transaction on the partition."""
    NEWER_EPOCH = "newer_epoch"
    """The partition has seen a higher epoch of the producer id."""
    OWNED = "owned"
    """WriteTxnMarkers asked to end a hanging transaction only, and this one does not hang."""
    MIXED = "mixed_producers"
    """One request carried batches of several producers."""


class Change(NamedTuple):
    """The identity of an id changed, or its transaction was aborted, other than by EndTxn of its holder."""

    at_ms: int
    reason: Reason
    before: Identity
    after: Identity
    by: str
    """The request and its client; empty if the coordinator itself made the change."""
    aborted: bool
    """Whether the change aborted an open transaction."""


class Cause(NamedTuple):
    """Why a request was refused: one word, and one sentence."""

    reason: Reason
    text: str


@dataclass(slots=True)
class Refusal:
    """Requests that were refused for the same reason: the first is logged, the others are counted."""

    at_ms: int
    code: ErrorCode
    by: str
    client_id: str | None
    client_host: str
    shown: Identity
    cause: Cause
    times: int = 1
    last_ms: int = 0


@dataclass(slots=True)
class IdHistory:
    """The latest changes and refusals of one transactional id (or producer id) since this process started."""

    owner: Caller | None = None
    """The client whose InitProducerId created the newest identity."""
    writer: Caller | None = None
    """The client that last added partitions or ended a transaction."""
    ended: tuple[int, Identity, bool, Caller | None] | None = None
    """The last EndTxn: its time in ms, the identity it showed, whether it committed, its client."""
    aborting: Caller | None = None
    """The client whose InitProducerId aborted a transaction and waits for its markers."""
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=CHANGES_KEPT))
    refusals: deque[Refusal] = field(default_factory=lambda: deque(maxlen=REFUSALS_KEPT))

    def lines(self) -> Iterator[tuple[int, Change | Refusal]]:
        """Changes and refusals, oldest first, each with its time in ms."""
        both: list[tuple[int, Change | Refusal]] = [(change.at_ms, change) for change in self.changes]
        both += [(refusal.at_ms, refusal) for refusal in self.refusals]
        return iter(sorted(both, key=lambda line: line[0]))


def request_of(caller: Caller | None) -> str:
    """`InitProducerId v5 of client 'billing' at 10.0.0.7`, or nothing."""
    if caller is None:
        return ""
    api = API_BY_KEY[caller.api_key].name
    return f"{api} v{caller.api_version} of client {caller.client_id or ''!r} at {caller.client_host}"


def is_tool(caller: Caller | None) -> bool:
    """Whether the request came from an administrator's tool, by its client id."""
    return caller is not None and (caller.client_id or "").startswith(TOOL_CLIENT_IDS)


def iso(at_ms: int) -> str:
    """`2026-11-21T03:44:12.123Z`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe(change: Change) -> str:
    """The change as a sentence."""
    now, what = f"{change.after[0]}:{change.after[1]}", "; its transaction was aborted" if change.aborted else ""
    match change.reason:
        case Reason.TIMEOUT:
            return f"its transaction outlived its timeout and was aborted at {iso(change.at_ms)}; {now} is current"
        case Reason.WENT_BACK:
            return f"the cluster's database lost commits, so its producers were fenced at {iso(change.at_ms)}{what}"
        case Reason.EXPIRED:
            return f"the id was unused for too long and expired at {iso(change.at_ms)}"
        case Reason.KEPT:
            return f"{change.by} took its transaction over at {iso(change.at_ms)} to end it, as {now}"
        case Reason.REINIT:
            return f"{change.by} renewed it at {iso(change.at_ms)} to {now}{what}"
        case _:
            return f"{change.by} took the id over at {iso(change.at_ms)} as {now}{what}"


def explain(state: TxnState, history: IdHistory | None, shown: Identity | None, error: ErrorCode) -> Cause:
    """Why a request that shows this identity (None: none) fails with `error` for an id in `state`. Pure."""
    if error is ErrorCode.CONCURRENT_TRANSACTIONS:
        return Cause(Reason.COMPLETING, f"the previous transaction is in {state.name} and lacks markers")
    if isinstance(state, Dead):
        expired = next((c for c in reversed(history.changes) if c.reason is Reason.EXPIRED), None) if history else None
        if expired is not None:
            return Cause(Reason.EXPIRED, describe(expired))
        return Cause(Reason.UNKNOWN_ID, "the transactional id is unknown: never initialized, or expired")
    if shown is None or shown == holder(state):
        return _of_current(state)
    return _of_stale(state, history, shown)


def _of_current(state: TxnState) -> Cause:
    """The identity is current; the request does not fit the state."""
    match state:
        case Ongoing():
            if state.is_kept:
                return Cause(Reason.KEPT, "a successor took the transaction over to end it; no partition may be added")
            return Cause(Reason.NOT_ADDED, "the partition is not part of the open transaction")
        case CompleteCommit() | CompleteAbort():
            how = "committed" if isinstance(state, CompleteCommit) else "aborted"
            return Cause(
                Reason.NOTHING_OPEN,
                f"no transaction is open: the last one was {how} at {iso(state.updated_ms)} and none has begun since",
            )
        case PrepareCommit() | PrepareAbort():
            how = "committed" if isinstance(state, PrepareCommit) else "aborted"
            return Cause(Reason.OTHER_VERDICT, f"the transaction is already {how}, since {iso(state.updated_ms)}")
        case _:
            return Cause(Reason.NOTHING_OPEN, "no transaction has begun since InitProducerId")


def _of_stale(state: TxnState, history: IdHistory | None, shown: Identity) -> Cause:
    """Another identity is current: the cause is the first change that made this one stale."""
    assert not isinstance(state, Dead)
    producer_id, epoch = shown
    ended = history.ended if history is not None else None
    for change in history.changes if history is not None else ():
        if change.before[0] == producer_id and change.before[1] >= epoch:
            if change.before[1] == epoch:
                return Cause(change.reason, describe(change))
            return Cause(
                Reason.ENDED,
                f"its holder had ended that transaction and held {producer_id}:{change.before[1]} before"
                f" {iso(change.at_ms)}",
            )
    if ended is not None and ended[1][0] == producer_id and ended[1][1] >= epoch:
        at_ms, by, commit, caller = ended
        how, now = "committed" if commit else "aborted", "{}:{}".format(*holder(state))
        if by[1] > epoch:
            return Cause(Reason.ENDED, f"its holder ended that transaction long ago; {now} is current")
        return Cause(Reason.ENDED, f"{request_of(caller)} {how} its transaction at {iso(at_ms)}; {now} is current")
    known = {holder(state)[0], state.producer.producer_id, state.producer.previous_producer_id} - {NO_PRODUCER_ID}
    if producer_id in known and epoch <= _highest(state, producer_id):
        return Cause(
            Reason.BEFORE_START,
            f"{holder(state)[0]}:{holder(state)[1]} is current, by a record of {iso(state.updated_ms)} or older;"
            " the broker restarted since, so the requester is unknown",
        )
    return Cause(
        Reason.NEVER_HELD,
        f"no client received {producer_id}:{epoch} under this id, as far as the coordinator remembers;"
        f" {holder(state)[0]}:{holder(state)[1]} is current",
    )


def _highest(state: TxnState, producer_id: int) -> int:
    """The highest epoch of a producer id that this id can have held, by its state."""
    assert not isinstance(state, Dead)
    held_id, held_epoch = holder(state)
    return held_epoch if held_id == producer_id else (1 << 15) - 1
