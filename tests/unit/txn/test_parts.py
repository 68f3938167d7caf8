"""The small pure parts: hashing, epochs, expiry, markers, a shard, listing, error codes."""

import time
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.coordinator.partitioning import java_string_hash, partition_for
from fencepost.coordinator.ports import coordinator_error
from fencepost.coordinator.txn import epochs, expiry, listing, wire_codes
from fencepost.coordinator.txn.causes import Reason
from fencepost.coordinator.txn.commands import Answer, Expire, InitProducerId
from fencepost.coordinator.txn.completion import lacking
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.fencing_history import FencingHistory
from fencepost.coordinator.txn.listing import Filters
from fencepost.coordinator.txn.shard_state import TxnRecords
from fencepost.coordinator.txn.state import DEAD, PHASES, Empty, Ongoing, Producer, TxnRecord, TxnState
from fencepost.coordinator.txn.tallies import Tallies
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.patterns import NEEDS_RE2
from tests.unit.txn.kit import P0, P1, P2
from tests.unit.txn.states import ABORTED, ABORTING, COMMITTED, COMMITTING, EMPTY, ONGOING


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("order-service-0-1", -1067342147),
        ("polygenelubricants", -(2**31)),
        ("ü", 252),
        ("tx-😀-9", 757058552),
    ],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    """Row T1: String.hashCode over UTF-16 code units."""
    assert java_string_hash(text) == value


def test_partitions_are_kafkas() -> None:
    """Row T1: the smallest int has no positive twin and goes to partition 0."""
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("order-service-0-1", 50) == 1067342147 % 50
    assert {partition_for(f"tx-{number}", 50) for number in range(1000)} == set(range(50))


def test_no_epoch_passes_the_largest_int16() -> None:
    """Row P12."""
    worn = Producer(7, epochs.MAX_EPOCH)
    assert epochs.bumped(worn, same_client=True).epoch == epochs.MAX_EPOCH
    assert not epochs.is_exhausted(32765)
    assert epochs.is_exhausted(32766)


def test_a_two_phase_transaction_has_no_timeout() -> None:
    """Row T22: int32 max as the timeout is the mark of two-phase commit."""
    assert expiry.due_in_ms(replace(ONGOING, timeout_ms=2**31 - 1), 10**15) is None


def test_deadlines_count_from_the_start_but_never_from_the_future() -> None:
    """Row T10, and a clock that was set back must not lengthen a transaction."""
    assert expiry.due_in_ms(ONGOING, ONGOING.started_ms + 1_000) == 59_000
    assert expiry.due_in_ms(ONGOING, ONGOING.started_ms + 61_000) == -1_000
    assert expiry.due_in_ms(replace(ONGOING, started_ms=10**15), 5_000) == 60_000


def test_only_idle_ids_are_forgettable() -> None:
    """Row T12."""
    states: dict[str, TxnState] = {
        "e": EMPTY,
        "o": ONGOING,
        "c": COMMITTING,
        "done": COMMITTED,
        "new": replace(EMPTY, updated_ms=9_000),
    }
    found = list(expiry.unused_ids(states.items(), 10_000, 5_000))
    assert found == [("e", Expire(EMPTY.updated_ms)), ("done", Expire(COMMITTED.updated_ms))]


def test_markers_are_settled_by_what_their_error_means() -> None:
    """Row T8."""
    three = frozenset({P0, P1, P2})
    assert lacking(three, dict.fromkeys(three, ErrorCode.NONE)) == frozenset()
    passing = {P0: ErrorCode.KAFKA_STORAGE_ERROR, P1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert lacking(three, passing) == three, "an answer that is missing is owed, too"
    assert lacking(three, dict.fromkeys(three, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) == frozenset()
    for error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        assert lacking(frozenset({P0, P1}), {P0: error, P1: ErrorCode.REQUEST_TIMED_OUT}) == {P1}


def test_pauses_double_up_to_a_limit() -> None:
    config = TxnConfig(marker_retry_backoff_ms=20, marker_retry_backoff_max_ms=100)
    assert list(islice(config.marker_pauses(), 5)) == [0.02, 0.04, 0.08, 0.1, 0.1]


def test_a_shard_counts_by_phase_and_knows_what_is_open() -> None:
    records = TxnRecords(TxnConfig)
    book = records.empty()
    for state in (EMPTY, ONGOING):
        records.apply(book, TxnRecord("a", state))
    records.apply(book, TxnRecord("b", COMMITTING))
    assert {phase.name: book.count(phase) for phase in PHASES if book.count(phase)} == {
        "Ongoing": 1,
        "PrepareCommit": 1,
    }
    assert book.open == {"a": ONGOING}
    assert book.prepared() == [("b", COMMITTING)]
    assert len(book) == 2
    for name in ("a", "b", "never seen"):
        records.apply(book, TxnRecord(name, DEAD))
    assert len(book) == 0
    assert book.open == {}
    assert sum(book.count(phase) for phase in PHASES) == 0
    assert book.state_of("a") is DEAD


STATES: dict[str, TxnState] = {
    "orders-1": ONGOING,
    "orders-2": replace(ONGOING, producer=Producer(8, 0), started_ms=9_000),
    "idle": EMPTY,
    "done": COMMITTED,
    "going": ABORTING,
}


@NEEDS_RE2
@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (Filters(), ["done", "going", "idle", "orders-1", "orders-2"]),
        (Filters(states=frozenset({"Ongoing"})), ["orders-1", "orders-2"]),
        (Filters(states=frozenset({"Ongoing", "Empty"})), ["idle", "orders-1", "orders-2"]),
        (Filters(states=frozenset({"PrepareEpochFence"})), []),
        (Filters(producer_ids=frozenset({8})), ["orders-2"]),
        (Filters(running_longer_than_ms=0), ["going", "orders-1", "orders-2"]),
        (Filters(running_longer_than_ms=1_000), ["going", "orders-1"]),
        (Filters(running_longer_than_ms=8_000), []),
        (Filters(pattern="orders-.*"), ["orders-1", "orders-2"]),
        (Filters(pattern="orders"), []),
        (Filters(states=frozenset({"Ongoing"}), pattern=".*-1"), ["orders-1"]),
    ],
    ids=lambda given: str(sorted(given.states)) + given.pattern if isinstance(given, Filters) else ",".join(given),
)
def test_listings_hold_what_passes_every_filter(filters: Filters, names: list[str]) -> None:
    """Row T18, KIP-994, KIP-1152."""
    found = listing.select(STATES.items(), filters, 10_000)
    assert [line.transactional_id for line in found.transactions] == names
    assert found.error is ErrorCode.NONE
    assert found.unknown_states == ()


def test_unknown_states_are_told_and_bad_patterns_refused() -> None:
    """Row T18."""
    found = listing.select(STATES.items(), Filters(states=frozenset({"Asleep", "Empty"})), 0)
    assert found.unknown_states == ("Asleep",)
    assert [line.transactional_id for line in found.transactions] == ["idle"]
    refused = listing.select(STATES.items(), Filters(pattern="("), 0)
    assert refused == listing.Listing(ErrorCode.INVALID_REGULAR_EXPRESSION)


@NEEDS_RE2
@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a|b", "ab", False),
        ("x{2,4}", "xxx", True),
        ("^tx-\\d+$", "tx-12", True),
        ("[\\w.-]+", "abc-1.2", True),
        (".", "é", True),
        ("\\D*", "é", True),
        ("a.b", "a\nb", False),
        ("\\Qa.b\\E.*", "a.bcd", True),
        ("\\Qa.b\\E.*", "axbcd", False),
        ("\\Q(", "(", True),
        ("\\x{1F600}", "😀", True),
        ("(?i)ORDERS", "orders", True),
        ("\\pL+", "été", True),
    ],
)
def test_a_pattern_means_what_it_means_to_re2_t18(pattern: str, name: str, matches: bool) -> None:
    """KIP-1152: the whole id must match, in the syntax of RE2, which Kafka's RE2/J follows."""
    found = listing.select([(name, STATES["idle"])], Filters(pattern=pattern), 0)
    assert [line.transactional_id for line in found.transactions] == [name] * matches


@pytest.mark.parametrize(
    "pattern", ["(", ")", "[a", "[z-a]", "*a", "+", "a**", "a{4,2}", "a{1001}", "(a)\\1", "(?=a)", "\\", "\\x{110000}",
                "(a{1000}){1000}"]
)  # fmt: skip
def test_a_pattern_that_is_no_expression_of_re2_is_refused_t18(pattern: str) -> None:
    """Back references and look-around, which cannot be matched in linear time; too large; wrong."""
    refused = listing.select(STATES.items(), Filters(pattern=pattern), 0)
    assert refused == listing.Listing(ErrorCode.INVALID_REGULAR_EXPRESSION)


def test_a_pattern_takes_time_linear_in_the_id_t18() -> None:
    """A backtracking engine would need 2**1000 steps here, and stop the broker meanwhile."""
    start = time.process_time()
    assert listing.select([("a" * 1000, STATES["idle"])], Filters(pattern="(a|a)*(a|aa)*(a*)*b"), 0).transactions == ()
    assert time.process_time() - start < 1


def test_descriptions_show_the_partitions_that_still_lack_a_marker() -> None:
    """Row T19."""
    told = listing.describe("a", ONGOING, None)
    assert (told.state, told.started_ms, told.partitions) == ("Ongoing", 2_000, frozenset({P0}))
    assert listing.describe("a", ABORTING, frozenset()).partitions == frozenset()
    assert listing.describe("a", EMPTY, None).started_ms == -1
    assert listing.describe("a", DEAD, None).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(("api_key", "since"), [(22, 4), (24, 2), (25, 2), (26, 2)])
def test_old_clients_hear_invalid_producer_epoch(api_key: int, since: int) -> None:
    """Row T11, KIP-588."""
    fenced = ErrorCode.PRODUCER_FENCED
    assert wire_codes.visible(api_key, since - 1, fenced) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert wire_codes.visible(api_key, since, fenced) is fenced
    assert wire_codes.visible(api_key, 0, ErrorCode.INVALID_TXN_STATE) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("api_key", "since"), [(22, 5), (24, 5), (25, 4), (26, 4)])
def test_old_clients_do_not_hear_transaction_abortable(api_key: int, since: int) -> None:
    abortable = ErrorCode.TRANSACTION_ABORTABLE
    assert wire_codes.visible(api_key, since - 1, abortable) is ErrorCode.INVALID_TXN_STATE
    assert wire_codes.visible(api_key, since, abortable) is abortable


@pytest.mark.parametrize(
    ("error", "adds", "knows", "seen"),
    [
        (ErrorCode.PRODUCER_FENCED, True, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, False, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, False, False, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, False, True, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, False, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, True, True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_produce_may_show(error: ErrorCode, adds: bool, knows: bool, seen: ErrorCode) -> None:
    """Rows P4 and T11."""
    assert wire_codes.visible_to_producer(error, adds=adds, knows_abortable=knows) is seen


@pytest.mark.parametrize(
    ("refused", "seen"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_refused_append_looks_like(refused: ErrorCode, seen: ErrorCode) -> None:
    """Row T7."""
    assert coordinator_error(refused) is seen


def test_an_answer_is_spread_over_its_partitions() -> None:
    wanted = frozenset({P0, P1})
    spread = wire_codes.by_partition(wanted, Answer(missing=frozenset({P1})))
    assert spread == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}


def test_states_are_values() -> None:
    assert Ongoing(Producer(1, 0), 1, frozenset({TopicPartition("t", 0)}), 1, 1) == Ongoing(
        Producer(1, 0), 1, frozenset({TopicPartition("t", 0)}), 1, 1
    )
    with pytest.raises(AttributeError):
        EMPTY.timeout_ms = 1  # type: ignore[misc]
    assert isinstance(EMPTY, Empty)


def test_a_transaction_is_counted_with_how_long_it_was_open() -> None:
    """In seconds, from the first partition to the last marker; without a partition there is nothing to measure."""
    tallies = Tallies()
    tallies.count(COMMITTING, COMMITTED, Reason.ENDED)
    tallies.count(ABORTING, replace(ABORTED, started_ms=2_000, updated_ms=4_500), Reason.TIMEOUT)
    tallies.count(replace(ABORTING, partitions=frozenset()), ABORTED, Reason.ENDED)
    assert (tallies.durations[True].sum_seconds, tallies.durations[False].sum_seconds) == (0.7, 2.5)
    assert tallies.ended == {
        ("commit", "client"): 1,
        ("abort", "client"): 0,
        ("abort", "timeout"): 1,
        ("abort", "empty"): 1,
    }


@pytest.mark.parametrize(
    ("keep", "after", "reason"),
    [(True, ONGOING, Reason.KEPT), (True, EMPTY, Reason.NEWCOMER), (False, ONGOING, Reason.NEWCOMER)],
)
def test_a_transaction_is_kept_if_that_was_wanted_and_there_was_one(
    keep: bool, after: TxnState, reason: Reason
) -> None:
    """KIP-939: what the history tells of a successor that takes an open transaction over, or finds none."""
    caller: Any = SimpleNamespace(principal="User:a", client_host="h", client_id="c", api_key=22, api_version=6)
    history = FencingHistory(SimpleNamespace(now_ms=lambda: 1))
    before = replace(after, producer=Producer(7, 3, 7, 2))
    history.identity_changed("a", before, InitProducerId(60_000, keep_prepared=keep), after, caller)
    found = history.of("a")
    assert found is not None
    assert [change.reason for change in found.changes] == [reason]
