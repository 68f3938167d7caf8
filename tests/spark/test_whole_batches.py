"""The ends of an export's batches: no committed transaction is in two of them, whatever producers and brokers do."""

from __future__ import annotations

import pytest

from fencepost.spark_connector.offsets import Offsets
from fencepost.spark_pipelines.export_store import next_ends
from fencepost.spark_pipelines.whole_batches import WholeBatches
from tests.spark.transaction_logs import Logs

versions = pytest.mark.parametrize("version_2", [False, True], ids=["version 1", "version 2"])


def check_whole(logs: Logs, begin: Offsets, end: Offsets) -> None:
    for transaction, part in logs.seen(begin, end).items():
        assert part == logs.records[transaction], f"transaction {transaction} between {begin} and {end}"


@versions
@pytest.mark.parametrize("producers", [1, 3])
def test_each_transaction_is_in_one_batch(version_2: bool, producers: int) -> None:
    """Batches are planned while producers write, decide and mark; in the end everything is exported."""
    batches = 0
    for seed in range(150):
        logs = Logs(seed, producers=producers, version_2=version_2)
        begin = dict.fromkeys(logs.partitions, 0)
        whole = WholeBatches()
        for _ in range(8):
            logs.steps(logs.random.randrange(40))
            if logs.random.random() < 0.2:
                whole = WholeBatches()  # the export was started again
            end = whole.ends(logs.bounds(begin), logs.random.choice([1, 5, 1000]), logs.read)
            check_whole(logs, begin, end)
            batches += end != begin
            begin = end
        logs.end_all()
        stable = {tp: logs.stable(tp) for tp in logs.partitions}
        while begin != stable:
            end = whole.ends(logs.still(begin), 5, logs.read)
            assert end != begin, f"seed {seed}: nothing is open, but the export stands still at {begin}"
            check_whole(logs, begin, end)
            batches += 1
            begin = end
    assert batches > 450


@versions
def test_ends_by_offsets_alone_tear_transactions(version_2: bool) -> None:
    """The control: what the export did before, at the last stable offsets and below them."""
    torn = {1: 0, 1000: 0}
    for most in torn:
        for seed in range(100):
            logs = Logs(seed, version_2=version_2)
            logs.steps(60)
            begin = dict.fromkeys(logs.partitions, 0)
            end = next_ends(begin, logs.bounds(begin).stable, most)
            torn[most] += any(part != logs.records[one] for one, part in logs.seen(begin, end).items())
    assert min(torn.values()) > 10, torn


def test_a_limit_is_exceeded_by_no_more_than_the_transactions_that_begin_before_it() -> None:
    """Transactions of one producer do not overlap, so a limit of one offset gives few of them."""
    logs = Logs(1, producers=1)
    logs.steps(400)
    logs.end_all()
    begin = dict.fromkeys(logs.partitions, 0)
    stable = {tp: logs.stable(tp) for tp in logs.partitions}
    whole, sizes = WholeBatches(), []
    while begin != stable:
        end = whole.ends(logs.still(begin), 1, logs.read)
        sizes.append(len(logs.seen(begin, end)))
        begin = end
    assert sum(sizes) == len(logs.committed) > 30
    assert max(sizes) <= 10


def test_what_cannot_be_whole_yet_waits_and_the_rest_does_not() -> None:
    """A producer's marker is late in one partition. Its transaction waits, and so does what is behind it."""
    logs = Logs(0, partitions=3, producers=2)
    early, late, other = logs.partitions
    first, second = logs.producers
    logs.write(first, early, 2)
    logs.write(first, late, 2)
    logs.write(second, other, 4)
    logs.decide(first)
    logs.mark(first, early)
    logs.decide(second)
    logs.mark(second, other)
    logs.write(second, early, 1)
    logs.decide(second)
    logs.mark(second, early)
    begin = dict.fromkeys(logs.partitions, 0)
    whole = WholeBatches()
    now = logs.still(begin)
    assert now.stable == {early: 5, late: 0, other: 5}
    assert whole.ends(now, 1000, logs.read) == {early: 0, late: 0, other: 5}
    assert whole.held_back is not None
    assert whole.held_back.producer_id == first.producer_id
    logs.mark(first, late)
    assert whole.ends(logs.still({early: 0, late: 0, other: 5}), 1, logs.read) == {early: 2, late: 2, other: 5}
