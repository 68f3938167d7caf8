"""Local copies of records within their bound, and files that the database keeps beside a log."""

import trio

from fencepost.broker.log.partition import AppendOrigin
from fencepost.broker.log.reading import read_batches
from fencepost.broker.metadata.log import METADATA_PARTITION, METADATA_TOPIC_ID
from fencepost.protocol.topics import TopicPartition
from tests.kit.engine_worlds import World
from tests.kit.growing import content, growth_of, opened
from tests.kit.shared_store import Stores
from tests.unit.log.kit import NOW_MS, UNCOMMITTED, batch

MIB = 1 << 20


def test_tails_above_the_bound_are_given_up_and_read_again_as_old_records() -> None:
    """From the logs that have most; what was appended since is local."""
    stores = Stores()
    broker = stores.broker(1)
    large, small = (opened(broker, TopicPartition("orders", n), bytes([n]) * 16) for n in (0, 1))
    for _ in range(6):
        large.append(batch(1, value=bytes(MIB // 3)), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    small.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    before = content(broker, large)
    growth = growth_of(broker, large, small, cluster_tail_max_bytes=MIB)
    trio.run(growth.evict)
    assert large.segments.tail_bytes == 0 < small.segments.tail_bytes < MIB
    assert read_batches(large, 0, MIB, UNCOMMITTED).missing is not None
    assert content(broker, large) == before
    large.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    broker.round()
    assert read_batches(large, 6, MIB, UNCOMMITTED).missing is None
    trio.run(growth.evict)
    assert large.segments.tail_bytes > 0, "below the bound nothing goes"
    assert content(broker, large)[: len(before)] == before


def test_the_metadata_stays_local() -> None:
    """Its readers cannot wait for missing records."""
    stores = Stores()
    broker = stores.broker(1)
    log = opened(broker, METADATA_PARTITION, METADATA_TOPIC_ID)
    for _ in range(6):
        log.append(batch(1, value=bytes(MIB // 3)), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    trio.run(growth_of(broker, log, cluster_tail_max_bytes=MIB).evict)
    assert log.segments.tail_bytes > MIB


def test_the_next_broker_begins_at_the_snapshot_of_the_metadata(world: World) -> None:
    """It reads no records below it; they are deleted when it stores the log's start."""
    stores = Stores(world)
    broker = stores.broker(1)
    log = opened(broker, METADATA_PARTITION, METADATA_TOPIC_ID)
    for _ in range(5):
        log.append(batch(2), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    name = str(METADATA_PARTITION)
    for offset in (4, 6):
        broker.logs.keep_file(name, "metadata", offset, f"{offset}.checkpoint", b"image\n%d" % offset).sync()
    broker.logs.keep_file(name, "deleted-topics", 6, "deleted-topics", b"").sync()
    successor = stores.broker(2)
    files = successor.logs.files(name)
    assert files.load("6.checkpoint") == b"image\n6"
    assert files.load("4.checkpoint") is None, "the newest is enough"
    assert files.load("deleted-topics") == b""
    again = opened(successor, METADATA_PARTITION, METADATA_TOPIC_ID)
    assert (again.segments.first_offset, again.log_end_offset) == (6, 10)
    again.raise_log_start(again.segments.first_offset)
    assert [row.base for row in successor.engine.rows(again.segments.log_id, 0, 99)] == [0, 2, 4, 6, 8]
    for task in again.log_start_files():
        task.sync()
    assert [row.base for row in successor.engine.rows(again.segments.log_id, 0, 99)] == [6, 8]
    again.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
    successor.round()
    assert again.high_watermark == 11
