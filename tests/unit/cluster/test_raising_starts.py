"""The start of a log rises while its rows are merged, and while the broker has other logs and a lease."""

from collections.abc import Callable

import trio

from fencepost.broker.log.partition import AppendOrigin
from fencepost.protocol.topics import TopicPartition
from tests.kit.growing import growth_of, merge, opened
from tests.kit.shared_store import LEASE_MS, StoreBroker, Stores
from tests.kit.sim_engine import SimEngine
from tests.unit.log.kit import NOW_MS, batch


def before_each(broker: StoreBroker, hook: Callable[[str], None]) -> None:
    assert isinstance(broker.engine, SimEngine)
    broker.engine.before = hook


def raise_starts(broker: StoreBroker, starts: dict[str, int]) -> None:
    for task in broker.logs.start_targets(starts):
        task.sync()


def test_runs_that_are_merged_between_two_reads_keep_their_producers() -> None:
    """The old snapshot of the producers does not fit the new rows."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker)
    for number in range(5):
        log.append(batch(1, 7, 0, number), AppendOrigin.CLIENT, NOW_MS)
        broker.round()
    log.append(batch(1, 8, 0, 0, transactional=True), AppendOrigin.CLIENT, NOW_MS, guard=log.verify(8, 0, 0, 1))
    broker.round()
    growth = growth_of(broker, log)
    ((_, _, job),) = trio.run(growth._due, set())
    log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    left = ["many_rows"]

    def between(method: str) -> None:
        if method in left:
            left.clear()
            (new,) = growth._merger.run([job])  # in this thread, which has the lock of the database
            assert new.as_planned

    before_each(broker, between)
    raise_starts(broker, {str(log.tp): 7})
    assert not left
    again = opened(stores.broker(2))
    assert [again.producers.get(number) for number in (7, 8)] == [log.producers.get(number) for number in (7, 8)]


def test_the_starts_of_many_logs_leave_time_for_the_lease() -> None:
    """A statement takes a millisecond here. Another thread renews the lease, if it gets the writer."""
    stores = Stores()
    broker = stores.broker(1)
    logs = [opened(broker, TopicPartition("orders", n), n.to_bytes(16, "big")) for n in range(500)]
    for _ in range(4):
        for log in logs:
            log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    merge(growth_of(broker, *logs))
    idle_ms = [0]

    def hook(method: str) -> None:
        stores.world.age(1)
        idle_ms.append(stores.database.now_ms() - stores.database.brokers[1].seen_ms)
        if method != "renew" and idle_ms[-1] > LEASE_MS / 4 and not broker.writer._lock.locked():
            broker.engine.renew(broker.writer.identity)

    before_each(broker, hook)
    raise_starts(broker, {str(log.tp): 4 for log in logs})
    assert max(idle_ms) < LEASE_MS
    assert len(idle_ms) > LEASE_MS
    assert {head.start for head in broker.engine.heads()} == {4}
