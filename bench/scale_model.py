"""A cluster of many brokers over one PostgreSQL, simulated: what waits for the database, and how long.

The database is a queue before some cores. Each broker makes one commit at a time, with all that waits, as `Rounds`
does; it looks, follows, renews and polls as often as the product does. A transaction adds its partitions, writes one
batch to each, and ends: markers in one commit, then a read at each other leader. Deterministic for a seed.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from fencepost.broker.cluster.commit.remote_markers import LOOK_SECONDS
from fencepost.broker.peers.following import FOLLOW_SECONDS

RENEWALS_PER_LEASE = 4


class Costs(NamedTuple):
    """Seconds of the database's CPU for each statement, and seconds that others wait for besides."""

    look: float
    look_per_broker: float
    follow: float
    poll: float
    renew: float
    commit: float
    commit_per_row: float
    read: float
    flush: float
    """Of the write-ahead log, for each commit."""
    round_trip: float
    """Between brokers, and between a broker and the database."""


class Cluster(NamedTuple):
    """What is simulated."""

    brokers: int
    cores: int
    """Of the database."""
    transactions_per_second: float
    """In the whole cluster."""
    partitions: int = 12
    """Of a transaction, each led by any broker."""
    lease_s: float = 10.0
    seconds: float = 20.0
    seed: int = 1


class Outcome(NamedTuple):
    """What came of it."""

    busy: float
    """The share of the database's cores that worked."""
    ends: Sequence[float]
    """Seconds of each EndTxn."""

    def end_ms(self, share: float) -> float:
        """A quantile of EndTxn in milliseconds."""
        return 1000 * sorted(self.ends)[int(share * (len(self.ends) - 1))] if self.ends else 0.0


def chores(costs: Costs, cluster: Cluster) -> list[tuple[float, float]]:
    """What each broker does without a client: how often a second, and its cost."""
    return [
        (1 / FOLLOW_SECONDS, costs.look + costs.look_per_broker * cluster.brokers),
        (1 / FOLLOW_SECONDS, costs.follow),
        (1 / LOOK_SECONDS, costs.poll),
        (RENEWALS_PER_LEASE / cluster.lease_s, costs.renew),
    ]


def idle_cores(costs: Costs, cluster: Cluster) -> float:
    """How many cores of the database the brokers keep busy without a client."""
    return cluster.brokers * sum(per_second * cost for per_second, cost in chores(costs, cluster))


@dataclass
class _Broker:
    waiting: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    """Rows of the next commit, and what to do when they are durable."""
    committing: bool = False


class _World:
    def __init__(self, costs: Costs, cluster: Cluster) -> None:
        self.costs, self.cluster, self.random = costs, cluster, Random(cluster.seed)
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._free = [0.0] * cluster.cores
        self.worked = 0.0
        self.brokers = [_Broker() for _ in range(cluster.brokers)]
        self.ends: list[float] = []

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), do))

    def ask(self, cpu: float, done: Callable[[], None], beside: float = 0.0) -> None:
        """A statement: a round trip, its turn at a core, and what it waits for besides."""
        begun = max(self.now + self.costs.round_trip / 2, heapq.heappop(self._free))
        heapq.heappush(self._free, begun + cpu)
        if begun < self.cluster.seconds:
            self.worked += cpu
        self.at(begun + cpu + beside + self.costs.round_trip / 2, done)

    def run(self) -> None:
        while self._events and self._events[0][0] < self.cluster.seconds:
            self.now, _, do = heapq.heappop(self._events)
            do()

    # What brokers do without clients

    def often(self, per_second: float, cpu: float) -> None:
        """Each broker does this so often: a pause lies between the answer and the next question."""

        def again() -> None:
            self.ask(cpu, lambda: self.at(self.now + 1 / per_second, again))

        for _ in self.brokers:
            self.at(self.random.random() / per_second, again)

    # What they do for clients

    def commit(self, broker: int, rows: int, done: Callable[[], None]) -> None:
        one = self.brokers[broker]
        one.waiting.append((rows, done))
        if not one.committing:
            self._round(one)

    def _round(self, one: _Broker) -> None:
        cut, one.waiting, one.committing = one.waiting, [], True

        def durable() -> None:
            one.committing = False
            for _, done in cut:
                done()
            if one.waiting and not one.committing:
                self._round(one)

        cpu = self.costs.commit + self.costs.commit_per_row * sum(rows for rows, _ in cut)
        self.ask(cpu, durable, self.costs.flush)

    def transaction(self) -> None:
        """Begin one, and plan the next."""
        self.at(self.now + self.random.expovariate(self.cluster.transactions_per_second), self.transaction)
        coordinator = self.random.randrange(len(self.brokers))
        leaders = [self.random.randrange(len(self.brokers)) for _ in range(self.cluster.partitions)]
        others = set(leaders) - {coordinator}

        def written() -> None:
            began = self.now
            told = self.after(len(others), lambda: self.ends.append(self.now - began))

            def ended() -> None:
                for _ in others:
                    self.at(self.now + self.costs.round_trip, lambda: self.ask(self.costs.read, told))
                if not others:
                    told()

            self.commit(coordinator, len(leaders) + 1, ended)

        def added() -> None:
            one = self.after(len(leaders), written)
            for leader in leaders:
                self.commit(leader, 1, one)

        self.commit(coordinator, 1, added)

    def after(self, count: int, then: Callable[[], None]) -> Callable[[], None]:
        """What calls `then` when it was called so often (once if 0)."""
        left = max(1, count)

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        return one


def simulate(costs: Costs, cluster: Cluster) -> Outcome:
    """Some seconds of a cluster."""
    world = _World(costs, cluster)
    for per_second, cost in chores(costs, cluster):
        world.often(per_second, cost)
    if cluster.transactions_per_second:
        world.at(0.0, world.transaction)
    world.run()
    return Outcome(world.worked / (cluster.seconds * cluster.cores), world.ends)


def most_transactions(costs: Costs, cluster: Cluster, busy: float = 0.7, end_ms: float = 50.0) -> float:
    """How many transactions a second keep the cores busy for at most this share, and EndTxn's p99 below this time.

    0 if the brokers alone need more.
    """

    def bears(rate: float) -> bool:
        found = simulate(costs, cluster._replace(transactions_per_second=rate, seconds=3))
        return found.busy < busy and found.end_ms(0.99) < end_ms

    low, high = 0.0, 10.0
    while bears(high):
        low, high = high, high * 2
    for _ in range(5):
        middle = (low + high) / 2
        low, high = (middle, high) if bears(middle) else (low, middle)
    return low
