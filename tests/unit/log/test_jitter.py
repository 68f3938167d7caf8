"""segment.jitter.ms: segments that are begun together are not closed together (row L1)."""

from dataclasses import replace

from fencepost.broker.log.config import LogConfig, jitter_ms
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.log.kit import NOW_MS, TOPIC_ID, batch, crashed, directory_over, send

HOUR_MS = 3_600_000
SEGMENT_MS = 24 * HOUR_MS
BEGAN_MS = NOW_MS - 2 * SEGMENT_MS
CONFIG = LogConfig(segment_ms=SEGMENT_MS, segment_jitter_ms=6 * HOUR_MS)


def closed_after_ms(number: int, config: LogConfig, *, reopened: bool = False) -> int:
    """How long, in steps of an hour, the first segment of a partition takes records before the next one begins."""
    tp = TopicPartition("jittery", number)
    store = MemoryStore()
    log = directory_over(store).create(tp, TOPIC_ID, config)
    age_ms = 0
    while len(log.segments) == 1:
        assert send(log, batch(timestamp_ms=BEGAN_MS + age_ms)).error is ErrorCode.NONE
        age_ms += HOUR_MS
        if reopened and len(log.segments) == 1:
            store = crashed(store)
            log = directory_over(store).create(tp, TOPIC_ID, config)
    return age_ms - HOUR_MS


def test_l1_segment_jitter_closes_segments_earlier_and_each_at_another_time():
    """Row L1: from segment.ms less the jitter on, never later than segment.ms."""
    ages = [closed_after_ms(number, CONFIG) for number in range(20)]
    assert min(ages) >= SEGMENT_MS - 6 * HOUR_MS
    assert max(ages) <= SEGMENT_MS + HOUR_MS
    assert len(set(ages)) > 3
    assert {closed_after_ms(number, replace(CONFIG, segment_jitter_ms=0)) for number in range(3)} == {
        SEGMENT_MS + HOUR_MS
    }


def test_l1_the_jitter_is_spread_over_its_range_and_below_both_bounds():
    """As Kafka: from 0 up to, not including, the smaller of segment.jitter.ms and segment.ms."""
    draws = [jitter_ms(f"segment {number}", CONFIG) for number in range(2000)]
    assert 0 <= min(draws) < HOUR_MS
    assert 5 * HOUR_MS < max(draws) < 6 * HOUR_MS
    assert 2.7 * HOUR_MS < sum(draws) / len(draws) < 3.3 * HOUR_MS
    wide = replace(CONFIG, segment_ms=1000)
    assert 900 < max(jitter_ms(f"segment {number}", wide) for number in range(2000)) < 1000


def test_l1_a_segment_keeps_its_jitter_over_restarts():
    ages = [closed_after_ms(number, CONFIG) for number in range(5)]
    assert [closed_after_ms(number, CONFIG, reopened=True) for number in range(5)] == ages
