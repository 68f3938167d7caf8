"""Each oracle finds what it is there for: a world in which all was well is made bad in one way, and is found out."""

import copy
from collections.abc import Callable

import pytest

from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Place
from tests.kit.history import Fate as Known
from tests.simulation import watch
from tests.simulation.oracles import by_markers, violations
from tests.simulation.sim_readers import RawBatch
from tests.simulation.story import play
from tests.simulation.whole_world import Fence, Outcome, run_world

GOOD_SEED = 3


@pytest.fixture(scope="module")
def good() -> Outcome:
    """A world with committed, aborted and fenced transactions, in which all was well."""
    outcome = run_world(GOOD_SEED)
    assert violations(outcome) == []
    return outcome


def committed_place(outcome: Outcome) -> Place:
    logs = outcome.history.finals[READ_COMMITTED]["live"]
    return max((place for place in logs if place[0] != "out"), key=lambda place: len(logs[place]))


def lose_a_record(outcome: Outcome) -> None:
    for logs in outcome.history.finals[READ_COMMITTED].values():
        del logs[committed_place(outcome)][0]


def deliver_twice(outcome: Outcome) -> None:
    place = committed_place(outcome)
    for logs in outcome.history.finals[READ_COMMITTED].values():
        logs[place].append((logs[place][-1][0] + 1, logs[place][0][1]))


def deliver_aborted(outcome: Outcome) -> None:
    transaction = next(t for w in outcome.history.writers for t in w.transactions.values() if t.fate is Known.COMMITTED)
    transaction.fate = Known.ABORTED


def deliver_open(outcome: Outcome) -> None:
    transaction = next(t for w in outcome.history.writers for t in w.transactions.values() if t.fate is Known.COMMITTED)
    transaction.fate = Known.OPEN


def tear(outcome: Outcome) -> None:
    transactions = [t for w in outcome.history.writers for t in w.transactions.values() if t.fate is Known.COMMITTED]
    transaction = max(transactions, key=lambda t: len(t.sent))
    transaction.fate = Known.UNKNOWN
    place, value = transaction.sent[0]
    for logs in outcome.history.finals[READ_COMMITTED].values():
        logs[place] = [one for one in logs[place] if one[1] != value]


def swap_two(outcome: Outcome) -> None:
    place = committed_place(outcome)
    for finals in outcome.history.finals.values():
        for logs in finals.values():
            (a, one), (b, other) = logs[place][0], logs[place][-1]
            logs[place][0], logs[place][-1] = (a, other), (b, one)


def show_a_reader_more(outcome: Outcome) -> None:
    reader = next(reader for reader in outcome.history.readers if reader.isolation == READ_COMMITTED)
    log = max((log for _, _, log in reader.passes), key=len)
    log.insert(0, (log[0][0], "what was never sent"))


def take_a_bound_back(outcome: Outcome) -> None:
    reader = next(reader for reader in outcome.history.readers if reader.isolation == READ_COMMITTED)
    bounds = max(reader.bounds.values(), key=len)
    bounds.append((bounds[-1][0] - 1, bounds[-1][1]))


def raise_the_lso(outcome: Outcome) -> None:
    reader = next(reader for reader in outcome.history.readers if reader.isolation == READ_COMMITTED)
    bounds = max(reader.bounds.values(), key=len)
    bounds.append((bounds[-1][0], bounds[-1][0] + 1))


def let_a_fenced_one_write(outcome: Outcome) -> None:
    fence = outcome.fences[0]
    ends = dict.fromkeys(outcome.raw, 0)
    outcome.fences.append(Fence(fence.transactional_id, fence.producer_id, fence.epoch + 1000, ends))


def let_one_end_both_ways(outcome: Outcome) -> None:
    of_second = {fence.producer_id for fence in outcome.fences if fence.version == 2}
    batches = [batch for batches in outcome.raw.values() for batch in batches]
    marker = next(batch for batch in batches if batch.commits and batch.producer_id in of_second)
    outcome.raw["in", 0] = [*outcome.raw["in", 0], marker._replace(commits=False)]


def leave_one_open(outcome: Outcome) -> None:
    outcome.still_open.append("writer0 is Ongoing")


def forget_in_replay(outcome: Outcome) -> None:
    assert outcome.rebuilt is not None
    name = next(name for name in outcome.rebuilt if name.startswith("transactional id"))
    outcome.rebuilt[name] = "Dead"


def copy_once_more(outcome: Outcome) -> None:
    for finals in outcome.history.finals.values():
        for logs in finals.values():
            logs["out", 0].append((10**6, "copied again"))
    outcome.history.transforms[:] = [("in", "out")]


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lose_a_record, "a committed transaction is not there completely"),
        (deliver_twice, "delivered more than once"),
        (deliver_aborted, "records of a transaction that was not committed are delivered"),
        (deliver_open, "records of a transaction that was not committed are delivered"),
        (tear, "a transaction is torn"),
        (swap_two, "out of order"),
        (show_a_reader_more, "what a reader saw is not what stands there at the end"),
        (take_a_bound_back, "a bound went back"),
        (raise_the_lso, "a bound went back"),
        (let_a_fenced_one_write, "had taken over, then"),
        (let_one_end_both_ways, "and aborted at"),
        (leave_one_open, "at the end, all faults long over"),
        (forget_in_replay, "by replay from zero"),
        (copy_once_more, "the output is not the input"),
    ],
)
def test_what_is_bad_is_found(good: Outcome, spoil: Callable[[Outcome], None], rule: str) -> None:
    bad = copy.deepcopy(good)
    spoil(bad)
    assert any(rule in violation for violation in violations(bad)), violations(bad)


def test_what_the_markers_say_is_held_against_the_aborted_list(good: Outcome) -> None:
    """A broker that answered an empty aborted list would show everything."""
    bad = copy.deepcopy(good)
    bad.history.finals[READ_COMMITTED] = bad.history.finals[READ_UNCOMMITTED]
    assert any("where the markers say" in violation for violation in violations(bad))


def test_the_verdict_of_a_batch_is_the_next_marker_of_its_producer() -> None:
    batches = [
        RawBatch(0, 0, 1, 0, None, [(0, "a")]),
        RawBatch(1, 1, 2, 0, None, [(1, "b")]),
        RawBatch(2, 2, 1, 1, True, []),
        RawBatch(3, 3, 1, 1, None, [(3, "c")]),
        RawBatch(4, 4, 2, 1, False, []),
        RawBatch(5, 5, 2, 1, None, [(5, "d")]),
        RawBatch(6, 6, 2, 2, True, []),
    ]
    assert by_markers(batches) == [(0, "a"), (5, "d")]


@pytest.mark.parametrize(
    ("before", "now"), [(None, (3, 2, 4)), (None, (1, 5, 4)), ((3, 4, 4), (2, 4, 4)), ((1, 4, 4), (1, 3, 4))]
)
def test_bounds_that_can_not_be_are_seen(before: tuple[int, int, int] | None, now: tuple[int, int, int]) -> None:
    assert watch.bounds_broken(before, now)
    assert not watch.bounds_broken((1, 2, 3), (1, 2, 4))


def test_a_transaction_that_outlives_its_timeout_is_seen() -> None:
    """Half a second before its second of grace is over all is well, half a second after it is not."""
    overdue = watch.overdue({"tx": 10.0}, "tx", may_last=2.0, now=12.5), watch.overdue({"tx": 10.0}, "tx", 2.0, 13.5)
    assert overdue == (None, 3.5)


def test_an_open_transaction_is_seen_at_the_end() -> None:
    """`open_transactions` looks at a broker in whose log a transaction is open, and then at one where it has ended."""
    said = play(
        ["topic t 1", "producer ada id=a timeout=60", "ada init", "ada send t-0 x", "open", "ada commit", "open"]
    )
    assert said[4] == ["a is Ongoing", "t-0 has LSO, HW, LEO (0, 1, 1)"]
    assert said[6] == []
