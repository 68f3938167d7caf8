"""Transactions by hand, over one connection, that stay open or hang."""

from fencepost.protocol.errors import ErrorCode
from tests.kit.wire import NOW_MS, Wire, batch_of

LONGEST_MS = 15 * 60 * 1000
HOUR_MS = 3_600_000
Identity = tuple[int, int]


def write(
    wire: Wire, topic: str, name: str, held: Identity, *, sequence: int = 0, partition: int = 0, age_ms: int = 0
) -> None:
    """One record in the transaction of `name`."""
    header = {"transactional": True, "producer_id": held[0], "producer_epoch": held[1], "base_sequence": sequence}
    batch = batch_of(b"in a transaction", timestamp_ms=NOW_MS - age_ms, **header)
    answer = wire.produce(topic, batch, partition=partition, transactional_id=name)
    assert answer.error_code == ErrorCode.NONE


def begin(wire: Wire, topic: str, name: str) -> Identity:
    """Open a transaction on the first partition of a new topic, with a record before it.

    It lasts as long as a broker allows by default: the tests of a module may share it, on a slow machine.
    """
    wire.create_topic(topic, partitions=2)
    assert wire.produce(topic, batch_of(b"before")).error_code == ErrorCode.NONE
    held = wire.init_producer_id(name, LONGEST_MS)
    wire.add_partitions(name, held, topic, 0)
    write(wire, topic, name, held)
    return held


def hang(wire: Wire, topic: str, name: str) -> Identity:
    """A transaction that no coordinator knows, an hour old: its coordinator never heard of the partition."""
    wire.create_topic(topic)
    held = wire.init_producer_id(name)
    write(wire, topic, name, held, age_ms=HOUR_MS)
    return held
