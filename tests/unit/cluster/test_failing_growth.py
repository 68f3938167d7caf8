"""One log of a cluster that cannot be compacted or merged: the active broker goes on, and the other logs shrink."""

import pytest
import trio
from trio.testing import MockClock

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.protocol.topics import TopicPartition
from tests.kit.growing import compact, content, growth_of, merge, opened
from tests.kit.shared_store import StoreBroker, Stores
from tests.kit.unreadable import unreadable
from tests.unit.cluster.table_kit import CONFIG
from tests.unit.log.compaction_kit import keyed, records
from tests.unit.log.kit import NOW_MS, batch


def two_logs(broker: StoreBroker, config: LogConfig) -> list[PartitionLog]:
    """Two logs of one topic."""
    return [opened(broker, TopicPartition("t", n), bytes([n + 1] * 16), config) for n in range(2)]


@pytest.mark.parametrize("size_bytes", [200, 9000])
def test_a_batch_that_cannot_be_unpacked_ends_no_broker_of_a_cluster(size_bytes: int) -> None:
    """Seen: a cluster died broker by broker, because each one that took the log over compacted it."""
    broker = Stores().broker(1)
    noise, fine = two_logs(broker, LogConfig(retention_ms=-1))
    noise.append(unreadable(NOW_MS, size_bytes=size_bytes), AppendOrigin.CLIENT, NOW_MS)
    for number in range(6):
        for log in (noise, fine):
            log.append(keyed([("a", str(number))]), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    noise.config = fine.config = CONFIG
    growth = growth_of(broker, noise, fine, cluster_merge_min_rows=2)
    compact(growth)
    content(broker, fine)
    assert records(fine) == [(5, "a", "5")]
    assert "at byte 0" in noise.failed_upkeep["compaction"]
    assert not fine.failed_upkeep
    assert noise.log_end_offset == 7


def test_a_log_that_cannot_be_merged_does_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A programming error, first where the merge is planned, then where all planned ones are carried out at once."""
    broker = Stores().broker(1)
    bad, good = two_logs(broker, LogConfig(retention_ms=-1))
    growth = growth_of(broker, bad, good)
    job, run, failing = growth._job, growth._merger.run, [""]

    def plan(log, shared):
        if failing[0] == "plan" and log is bad:
            raise ZeroDivisionError
        return job(log, shared)

    def carry_out(jobs):
        if failing[0] == "run" and any(one.log_id == bad.segments.log_id for one in jobs):
            raise ZeroDivisionError
        return run(jobs)

    monkeypatch.setattr(growth, "_job", plan)
    monkeypatch.setattr(growth._merger, "run", carry_out)
    monkeypatch.setattr("fencepost.broker.cluster.growth.loops.RETRY_SECONDS", 0.0)
    for failing[0] in ("plan", "run"):
        for _ in range(5):
            for log in (bad, good):
                log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
            broker.round()
        merge(growth)
        assert len(good.segments) < len(bad.segments)
        assert bad.failed_upkeep == {"merge": "ZeroDivisionError: "}
    failing[0] = ""
    merge(growth)
    assert len(bad.segments) < 5
    assert content(broker, bad) == content(broker, good)


async def test_a_periodic_step_that_fails_is_done_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evicting local copies, of which a directory may be gone, is one of them."""
    growth = growth_of(Stores().broker(1))
    calls = []

    async def evict() -> None:
        calls.append(trio.current_time())
        raise OSError(5, "Input/output error")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(growth._repeat, 1000, evict)
        await trio.sleep(3.5)
        nursery.cancel_scope.cancel()
    assert len(calls) == 3
    assert growth._upkeep.counts == {"evict": 3}
