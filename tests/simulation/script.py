"""The fixed history that the tests play over and over: about two hundred operations on a handful of partitions."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from fencepost.broker.log.config import LogConfig
from fencepost.protocol.topics import TopicPartition
from tests.simulation.world import World

ORDERS = TopicPartition("orders", 0)
MONEY = TopicPartition("money", 1)
SHORT = TopicPartition("short.lived", 0)
GONE = TopicPartition("gone", 0)
TABLE = TopicPartition("table", 0)

SMALL = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
WIDE = LogConfig(segment_bytes=5000, index_interval_bytes=400, retention_ms=-1)
KEEPS_LITTLE = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_bytes=1500, retention_ms=-1)
COMPACTED = LogConfig(
    segment_bytes=900, index_interval_bytes=150, cleanup_policy=frozenset({"compact"}), delete_retention_ms=25_000
)
KEEPS_BRIEFLY = LogConfig(segment_bytes=800, index_interval_bytes=100, retention_ms=40_000)

Operation = Callable[[World], None]


def script() -> Iterator[tuple[str, Operation]]:
    """The operations with their names."""
    for number, (name, operation) in enumerate(_story()):
        yield f"{number}: {name}", operation


def _story() -> Iterator[tuple[str, Operation]]:
    yield "create", lambda world: world.create(ORDERS, b"orders".ljust(16), SMALL)
    yield "create", lambda world: world.create(MONEY, b"money".ljust(16), WIDE)
    yield "create", lambda world: world.create(SHORT, b"short".ljust(16), KEEPS_LITTLE)
    yield "create", lambda world: world.create(GONE, b"gone".ljust(16), SMALL)
    yield "create", lambda world: world.create(TABLE, b"table".ljust(16), COMPACTED)
    yield from _act(1, 28)
    yield "checkpoint", lambda world: world.checkpoint(MONEY)
    yield "housekeep", lambda world: world.housekeep(1_000)
    yield from _act(2, 22)
    yield "compact", lambda world: world.compact(TABLE)
    yield "delete records", lambda world: world.delete_records(ORDERS, 0.5)
    yield from _act(3, 14)
    yield "delete topic", lambda world: world.delete(GONE)
    yield "create again", lambda world: world.create(GONE, b"gone again".ljust(16), KEEPS_BRIEFLY)
    yield from _act(4, 24)
    yield "checkpoint", lambda world: world.checkpoint(MONEY)
    yield "housekeep", lambda world: world.housekeep(30_000)
    yield "close", lambda world: world.close()
    yield from _act(5, 22)
    yield "crash", lambda world: world.crash()
    yield "compact", lambda world: world.compact(TABLE)
    yield "housekeep", lambda world: world.housekeep(20_000)
    yield "delete records", lambda world: world.delete_records(MONEY, 0.9)
    yield from _act(6, 20)
    yield "crash", lambda world: world.crash()
    yield from _act(7, 8)
    yield "close", lambda world: world.close()
    yield "delete records", lambda world: world.delete_records(GONE, 1.0)
    yield from _act(8, 18)
    yield "housekeep", lambda world: world.housekeep(60_000)
    yield "group commit", lambda world: world.commit([TABLE])
    yield "compact", lambda world: world.compact(TABLE)
    yield "delete all records", lambda world: world.delete_records(SHORT, 1.0)
    yield from _act(9, 12)
    yield "close", lambda world: world.close()


def _act(seed: int, length: int) -> Iterator[tuple[str, Operation]]:
    """A stretch of producing, with transactions that stay open for a while and group commits in between."""
    random = Random(seed)
    tps = (ORDERS, ORDERS, MONEY, MONEY, SHORT, GONE, TABLE, TABLE)
    for _ in range(length):
        tp = random.choice(tps)
        size_bytes = random.choice((10, 60, 60, 150, 300))
        kind = random.choice(("plain", "idempotent", "transactional", "transactional", "end", "end", "commit"))
        producer = {"plain": -1, "idempotent": 100 + random.randrange(2)}.get(kind, 200 + random.randrange(3))
        if kind == "end":
            commit = random.random() < 0.5
            version = 1 if producer == 200 else 2
            name = f"{'commit' if commit else 'abort'} of {producer} on {tp}"
            yield name, partial(World.mark, tp=tp, producer=producer, commit=commit, version=version)
        elif kind == "commit":
            some = random.sample((ORDERS, MONEY, SHORT, GONE, TABLE), random.randrange(1, 6))
            yield f"group commit of {len(some)}", partial(World.commit, tps=some)
        else:
            count = random.randrange(1, 4) if size_bytes < 300 else 1
            name = f"{kind} append of {producer} on {tp}"
            transactional = kind == "transactional"
            yield (
                name,
                partial(
                    World.append,
                    tp=tp,
                    producer=producer,
                    count=count,
                    size_bytes=size_bytes,
                    transactional=transactional,
                ),
            )
