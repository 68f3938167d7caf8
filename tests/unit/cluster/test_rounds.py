"""When a round begins: small ones at once, larger ones when they are full or have waited."""

import trio
import trio.testing

from fencepost.broker.cluster.commit.rounds import InlineBytes, RoundLimits, Rounds
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from tests.kit.shared_store import TOPIC_ID, Stores
from tests.unit.log.kit import NOW_MS, TP, batch

LIMITS = RoundLimits(inline_bytes=200, linger_s=0.25, linger_bytes=1000)


def rounds_and_log() -> tuple[Rounds, PartitionLog]:
    stores = Stores()
    broker = stores.broker(1, limits=LIMITS)
    found = broker.open(str(TP), LogConfig())
    return broker.rounds, PartitionLog(TP, TOPIC_ID, LogConfig(), broker.logs.files(str(TP)), found)


def send(log: PartitionLog, least_bytes: int) -> None:
    sent = 0
    while sent < least_bytes:
        data = batch(1)
        sent += len(data)
        log.append(data, AppendOrigin.COORDINATOR, NOW_MS)


def finish(rounds: Rounds) -> None:
    for task in rounds.begin():
        task.sync()
    rounds.deliver()


async def seconds_to_gather(rounds: Rounds) -> float:
    began = trio.current_time()
    await rounds.gather()
    return trio.current_time() - began


async def test_a_small_round_begins_at_once(autojump_clock: trio.testing.MockClock) -> None:
    rounds, log = rounds_and_log()
    send(log, 100)
    assert await seconds_to_gather(rounds) == 0


async def test_a_larger_round_waits_for_more_bytes_because_it_puts_an_object(
    autojump_clock: trio.testing.MockClock,
) -> None:
    rounds, log = rounds_and_log()
    send(log, 300)
    assert await seconds_to_gather(rounds) == LIMITS.linger_s
    finish(rounds)
    assert log.high_watermark == log.log_end_offset
    send(log, 100)
    assert await seconds_to_gather(rounds) == 0, "the bytes of the last round do not count"


async def test_a_full_round_waits_no_longer(autojump_clock: trio.testing.MockClock) -> None:
    rounds, log = rounds_and_log()
    send(log, 300)

    async def later() -> None:
        await trio.sleep(0.1)
        send(log, 700)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(later)
        assert await seconds_to_gather(rounds) == 0.1
    assert await seconds_to_gather(rounds) == 0


async def test_what_is_appended_during_a_round_counts_for_the_next(autojump_clock: trio.testing.MockClock) -> None:
    rounds, log = rounds_and_log()
    send(log, 300)
    (task,) = rounds.begin()
    send(log, 1000)
    task.sync()
    rounds.deliver()
    assert await seconds_to_gather(rounds) == 0
    finish(rounds)
    assert log.high_watermark == log.log_end_offset


def test_the_database_keeps_small_rounds_and_larger_ones_up_to_a_rate() -> None:
    inline = InlineBytes(always_bytes=100, bytes_per_second=4000, now=0.0)
    assert not inline.take(1001, 0.0), "more than a quarter of a second's bytes"
    assert inline.take(600, 0.0)
    assert not inline.take(500, 0.0)
    assert inline.take(100, 0.0), "a small one is always inline"
    assert inline.take(300, 0.0)
    assert inline.take(100, 0.0), "without counting below nothing"
    assert not inline.fit(200, 0.0)
    assert inline.fit(200, 0.05), "4,000 a second"
    assert inline.take(1000, 60.0), "a pause adds no more than a quarter of a second"
    assert not inline.fit(101, 60.0)
