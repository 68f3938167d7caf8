"""Rows and their bytes are read with few requests, also by a broker that takes over."""

from pathlib import Path
from threading import Barrier
from typing import cast

import pytest

from fencepost.broker.cluster.engine import Engine, Placement, Row, Span
from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.object_store import ObjectMissing, open_objects
from fencepost.broker.cluster.objects.row_objects import READ_AHEAD_BYTES, READERS, RowObjects
from fencepost.broker.cluster.reading.loading import load_logs
from fencepost.broker.cluster.reading.row_reading import GAP_BYTES, SPANS_AT_ONCE, all_rows, bytes_in_objects
from fencepost.broker.log.partition import AppendOrigin
from fencepost.broker.log.storage.layout import partition_of
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from tests.kit.engine_worlds import SimWorld, World, append, joined, row
from tests.kit.growing import opened
from tests.kit.shared_store import ObjectsInMemory, Stores
from tests.unit.log.kit import NOW_MS, batch


class CountedObjects(ObjectsInMemory):
    """Notes each request."""

    def __init__(self, engine: Engine, objects: dict[int, bytes]) -> None:
        super().__init__(engine, objects)
        self.requests: list[Placement] = []

    def read(self, place: Placement) -> bytes:
        self.requests.append(place)
        return super().read(place)


class CountedEngine:
    """Counts statements."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.statements = 0

    def __getattr__(self, name: str) -> object:
        self.statements += 1
        return getattr(self._engine, name)


def placed(*places: tuple[int, int, int]) -> list[Row]:
    return [row()._replace(inline=None, placement=Placement(*place)) for place in places]


def test_close_ranges_of_an_object_come_in_one_request() -> None:
    """Others do not: the bytes between them would cost more than a request."""
    objects = CountedObjects(SimWorld().engine(), {1: bytes(range(250)) * 2000, 2: b"second"})
    far = 120 + GAP_BYTES
    rows = placed((1, 0, 10), (2, 1, 3), (1, 100, 20), (1, far, 5), (1, far + GAP_BYTES + 6, 4))
    found = bytes_in_objects(objects, [*rows, row()])
    assert found == {one.placement: ObjectsInMemory.read(objects, one.placement) for one in rows}
    assert objects.requests == [
        Placement(1, 0, far + 5),
        Placement(1, far + GAP_BYTES + 6, 4),
        Placement(2, 1, 3),
    ]


def test_many_logs_come_in_one_statement(world: World) -> None:
    """Also more logs, and logs with more rows, than one statement returns."""
    broker = joined(world, 1)
    for seq in range(3):
        broker.commit(seq + 1, *(append(log, 3 * seq, row(3)) for log in range(SPANS_AT_ONCE + 5)))
    spans = [Span(log, log % 5, 8) for log in range(SPANS_AT_ONCE + 5)]
    separate = [broker.engine.rows(*span, inline=True) for span in spans]
    assert all_rows(broker.engine, spans, inline=True) == separate
    assert [one.base for one in separate[4]] == [3, 6]
    some = [Span(1, 4, 100), Span(999, 0, 100), Span(1, 5, 5), Span(0, 0, 100)]
    assert [[one.base for one in rows] for rows in broker.engine.many_rows(some, limit=2)] == [[3, 6], [], [], [0, 3]]
    assert broker.engine.many_rows([]) == []


def test_a_takeover_reads_each_object_once() -> None:
    """An object has rows of many logs; logs of users are not read. Statements are fewer than logs."""
    stores = Stores()
    broker = stores.broker(1, inline_bytes=0)
    names = [f"{topic}-{number}" for topic in (TRANSACTION_TOPIC, GROUP_TOPIC, "orders") for number in range(20)]
    ids = {name: number.to_bytes(16, "big") for number, name in enumerate(names)}
    logs = [opened(broker, tp, ids[name]) for name in names if (tp := partition_of(name)) is not None]
    for _ in range(3):
        for log in logs:
            log.append(batch(1), AppendOrigin.COORDINATOR, NOW_MS)
        broker.round()
    engine = CountedEngine(broker.engine)
    objects = CountedObjects(broker.engine, stores.objects)
    loaded = load_logs(cast("Engine", engine), objects)
    assert [one.object_id for one in objects.requests] == [1, 2, 3]
    assert engine.statements < len(logs) / 3
    for one in loaded:
        expected = [] if one.head.name.startswith("orders") else broker.engine.rows(one.head.log, 0, one.head.next)
        assert [(row._replace(inline=None), bytes(data)) for row, data in one.content] == [
            (row, broker.row_bytes.read(row.placement)) for row in expected
        ]
        assert len(one.rows) == 3


def test_ranges_are_read_by_several_threads_and_come_in_order(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}", "cluster")
    rows = RowObjects(objects, ClaimPool(SimWorld().engine()))
    places = [Placement(rows.put([b"%03d" % number]), 0, 3) for number in range(3 * READERS)]
    together, read = Barrier(READERS), rows.read

    def read_together(place: Placement) -> bytes:
        together.wait(timeout=30)
        return read(place)

    rows.read = read_together  # type: ignore[method-assign]
    assert list(rows.read_many(places)) == [b"%03d" % number for number in range(3 * READERS)]


def test_few_large_ranges_are_in_memory_at_once(tmp_path: Path) -> None:
    """The next one is not requested while others that wait are larger than the bound."""
    rows = RowObjects(open_objects(f"file://{tmp_path}", "cluster"), ClaimPool(SimWorld().engine()))
    begun: list[int] = []

    def read(place: Placement) -> bytes:
        begun.append(place.object_id)
        return b""

    rows.read = read  # type: ignore[method-assign]
    ranges = rows.read_many([Placement(number, 0, READ_AHEAD_BYTES // 2) for number in range(1, 9)])
    next(ranges)
    assert begun[0] == 1
    assert len(begun) <= 2
    assert list(ranges) == [b""] * 7


def test_an_error_of_one_range_is_raised(tmp_path: Path) -> None:
    rows = RowObjects(open_objects(f"file://{tmp_path}", "cluster"), ClaimPool(SimWorld().engine()))
    held = rows.put([b"123"])
    with pytest.raises(ObjectMissing):
        list(rows.read_many([Placement(held, 0, 3), Placement(held + 1, 0, 3), Placement(held, 0, 3)]))
