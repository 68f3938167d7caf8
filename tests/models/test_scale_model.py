"""The simulation of many brokers behaves as its queue must; `python -m bench.cluster_scale` measures its costs."""

import pytest

from bench.scale_model import Cluster, Costs, idle_cores, most_transactions, simulate

COSTS = Costs(
    look=2e-4,
    look_per_broker=2e-6,
    follow=3e-4,
    poll=3e-4,
    renew=1e-4,
    commit=4e-4,
    commit_per_row=3e-5,
    read=3e-4,
    flush=1e-3,
    round_trip=5e-4,
)
TEN = Cluster(brokers=10, cores=2, transactions_per_second=100, seconds=5)


def test_a_seed_repeats_its_world() -> None:
    assert simulate(COSTS, TEN) == simulate(COSTS, TEN)
    assert simulate(COSTS, TEN).ends != simulate(COSTS, TEN._replace(seed=2)).ends


@pytest.mark.parametrize("brokers", [3, 10, 100])
def test_idle_brokers_keep_the_database_as_busy_as_the_formula_says(brokers: int) -> None:
    """Each pauses after an answer, so the simulation asks somewhat less often."""
    cluster = Cluster(brokers, 32, 0.0, seconds=5)
    found = simulate(COSTS, cluster).busy * 32
    assert 0.9 * idle_cores(COSTS, cluster) < found <= idle_cores(COSTS, cluster)


def test_twice_the_cores_are_half_as_busy() -> None:
    """As long as none of them is full."""
    light = TEN._replace(transactions_per_second=20)
    assert simulate(COSTS, light._replace(cores=4)).busy == pytest.approx(simulate(COSTS, light).busy / 2, rel=0.05)


def test_the_end_of_a_transaction_takes_a_commit_and_a_read_at_the_least() -> None:
    least = COSTS.commit + 13 * COSTS.commit_per_row + COSTS.flush + COSTS.read + 3 * COSTS.round_trip
    ends = simulate(COSTS, TEN._replace(cores=64)).ends
    assert min(ends) == pytest.approx(least, rel=0.01)


def test_a_database_that_cannot_follow_is_full_and_slow() -> None:
    full = simulate(COSTS, TEN._replace(transactions_per_second=1000))
    assert full.busy > 0.95
    assert full.end_ms(0.5) > 10 * simulate(COSTS, TEN).end_ms(0.5)
    assert 0 < most_transactions(COSTS, TEN) < 1000
