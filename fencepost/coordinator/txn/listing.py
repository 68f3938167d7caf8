"""The answers to ListTransactions and DescribeTransactions, from the states (rows T18, T19)."""

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.coordinator.regexes import InvalidRegex, compile_regex
from fencepost.coordinator.txn.state import (
    PHASES,
    Dead,
    Empty,
    Known,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    TxnState,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

STATE_NAMES = frozenset(phase.name for phase in PHASES) | {"PrepareEpochFence"}
"""Kafka's names of the states. The last one is never written, so filtering by it finds nothing."""


class Filters(NamedTuple):
    """The filters of a listing; an empty filter lets every transaction pass."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    running_longer_than_ms: int = -1
    """Only transactions that have been running for longer than this; a negative number means no such filter."""
    pattern: str = ""
    """A regular expression in RE2's syntax, which must match the whole transactional id (KIP-1152)."""


class Listed(NamedTuple):
    """One line of a listing."""

    transactional_id: str
    producer_id: int
    state: str


class Listing(NamedTuple):
    """The answer to ListTransactions."""

    error: ErrorCode
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[Listed, ...] = ()


class Description(NamedTuple):
    """The answer to DescribeTransactions for one id; times in ms since 1970, -1 if no transaction has begun."""

    transactional_id: str
    error: ErrorCode
    state: str = ""
    timeout_ms: int = 0
    started_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: frozenset[TopicPartition] = frozenset()
    """Those of the open transaction, or those that still lack a marker."""


def select(states: Iterable[tuple[str, TxnState]], filters: Filters, now_ms: int) -> Listing:
    """The ids that pass all filters, by name.

    Unknown state names are reported, not refused; a bad pattern is INVALID_REGULAR_EXPRESSION. The duration filter is
    about running transactions, so ids without one do not pass (in Kafka they do, with the start of their last one).
    """
    try:
        regex = compile_regex(filters.pattern) if filters.pattern else None
    except InvalidRegex:
        return Listing(ErrorCode.INVALID_REGULAR_EXPRESSION)
    found = [
        Listed(name, state.producer.producer_id, state.name)
        for name, state in states
        if not isinstance(state, Dead)
        and (not filters.producer_ids or state.producer.producer_id in filters.producer_ids)
        and (not filters.states or state.name in filters.states)
        and _runs_longer(state, filters.running_longer_than_ms, now_ms)
        and (regex is None or regex.fullmatch(name) is not None)
    ]
    unknown = tuple(sorted(filters.states - STATE_NAMES))
    return Listing(ErrorCode.NONE, unknown, tuple(sorted(found, key=lambda line: line.transactional_id)))


def _runs_longer(state: Known, duration_ms: int, now_ms: int) -> bool:
    if duration_ms < 0:
        return True
    if not isinstance(state, Ongoing | PrepareCommit | PrepareAbort):
        return False
    return now_ms - state.started_ms > duration_ms


def describe(transactional_id: str, state: TxnState, pending: frozenset[TopicPartition] | None) -> Description:
    """The description of one id. `pending`: the partitions that lack a marker, while the shell writes them."""
    if isinstance(state, Dead):
        return Description(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    partitions: frozenset[TopicPartition] = frozenset()
    if isinstance(state, Ongoing | PrepareCommit | PrepareAbort):
        partitions = state.partitions if pending is None else pending
    return Description(
        transactional_id,
        ErrorCode.NONE,
        state.name,
        state.timeout_ms,
        -1 if isinstance(state, Empty) else state.started_ms,
        state.producer.producer_id,
        state.producer.epoch,
        partitions,
    )
