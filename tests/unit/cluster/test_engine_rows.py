"""How every database of a cluster reads, shrinks and collects: one rule of `Engine` in each test."""

import pytest

from fencepost.broker.cluster.engine import (
    SLOTS,
    Changed,
    ClaimLost,
    Head,
    Replacement,
    RowKind,
    Snapshot,
)
from tests.kit.engine_worlds import World, append, joined, name_of, row

MINUTE_MS = 60_000


# Reading


def test_heads_are_those_of_the_slots(world: World) -> None:
    """A new owner loads its slots only."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0), append(SLOTS + 7, 0), append(8, 0))
    assert [head.log for head in broker.engine.heads()] == [7, 8, SLOTS + 7]
    assert [head.log for head in broker.engine.heads([7, 9])] == [7, SLOTS + 7]
    assert broker.engine.heads([]) == []


def test_rows_are_those_that_overlap(world: World) -> None:
    """A range may begin and end within a row; the limit counts rows."""
    broker = joined(world, 1)
    for seq, base in enumerate((0, 3, 6, 9), start=1):
        broker.commit(seq, append(7, base, row(3)))

    def bases(start: int, end: int) -> list[int]:
        return [found.base for found in broker.engine.rows(7, start, end)]

    assert bases(4, 7) == [3, 6]
    assert bases(3, 6) == [3]
    assert bases(0, 100) == [0, 3, 6, 9]
    assert bases(12, 100) == bases(5, 5) == bases(6, 6) == []
    assert [found.base for found in broker.engine.rows(7, 4, 100, limit=2)] == [3, 6]
    assert broker.engine.rows(8, 0, 100) == []


def test_inline_bytes_come_only_if_wanted(world: World) -> None:
    """Who needs the bounds only reads little."""
    broker = joined(world, 1)
    (held,) = broker.engine.claim(1)
    broker.commit(1, append(7, 0), append(8, 0, row(object_id=held)), objects=[held])
    assert [found.inline for found in broker.engine.rows(7, 0, 1)] == [None]
    assert [found.inline for found in broker.engine.rows(7, 0, 1, inline=True)] == [b"bbbbb"]
    assert broker.engine.rows(8, 0, 1, inline=True) == [row(object_id=held)]


# Growth


def test_rows_wholly_below_the_start_are_deleted(world: World) -> None:
    """A row that the start cuts stays; a start never falls, and never passes the end."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0, row(3)), append(8, 0, row(3)))
    broker.commit(2, append(7, 3, row(3)))
    broker.engine.raise_start(broker.identity, [(7, 4), (8, 100), (9, 1)])
    assert broker.engine.heads() == [Head(7, *name_of(7), 6, 4, 5), Head(8, *name_of(8), 3, 3, 0)]
    assert [found.base for found in broker.engine.rows(7, 0, 6)] == [3]
    broker.engine.raise_start(broker.identity, [(7, 1)])
    assert broker.engine.heads()[0].start == 4


def test_replaced_rows_give_way_to_the_new_ones(world: World) -> None:
    """Three runs become one segment; the other rows, the end and the start stay."""
    broker = joined(world, 1)
    for seq in range(1, 6):
        broker.commit(seq, append(7, seq - 1))
    (held,) = broker.engine.claim(1)
    segment = row(3, 11, base=1, object_id=held, size_bytes=9)._replace(
        kind=RowKind.SEGMENT, heads=None, aborted=b"one"
    )
    broker.engine.replace(broker.identity, Replacement(7, 1, 4, [1, 2, 3], [segment], [held]))
    kept = [row(base=0), segment, row(base=4)]
    assert broker.engine.rows(7, 0, 5, inline=True) == kept
    assert broker.engine.heads() == [Head(7, *name_of(7), 5, 0, 19)]
    assert broker.engine.doomed(0) == []


def test_rows_that_changed_are_not_replaced(world: World) -> None:
    """A row too many or too few, or one that the range cuts, or a log that is not there or ends too early."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0, row(2)))
    broker.commit(2, append(7, 2, row(2)))
    for start, end, bases in (
        (0, 4, [0]),
        (0, 4, [0, 1, 2]),
        (0, 4, []),
        (1, 4, [2]),
        (0, 3, [0]),
        (1, 2, []),
        (0, 5, [0, 2]),
    ):
        with pytest.raises(Changed):
            broker.engine.replace(broker.identity, Replacement(7, start, end, bases, [], []))
    with pytest.raises(Changed):
        broker.engine.replace(broker.identity, Replacement(8, 0, 1, [], [], []))
    assert [found.base for found in broker.engine.rows(7, 0, 4)] == [0, 2]
    broker.engine.replace(broker.identity, Replacement(7, 0, 2, [0], [], []))
    assert [found.base for found in broker.engine.rows(7, 0, 4)] == [2]


def test_the_newest_snapshot_counts(world: World) -> None:
    """One for each log and kind; an older one does not replace it."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0), append(8, 0), append(9, 0))

    def take(log: int, base: int, kind: str, value: bytes) -> None:
        snapshots = [Snapshot(log, base, kind, value)]
        broker.engine.replace(broker.identity, Replacement(log, 0, 1, [0], [row()], [], snapshots))

    take(7, 1, "producers", b"old")
    take(7, 3, "producers", b"new")
    take(7, 2, "producers", b"late")
    take(7, 4, "groups", b"other")
    take(8, 1, "producers", b"eight")
    assert broker.engine.snapshots([8, 7, 9], "producers") == [
        Snapshot(7, 3, "producers", b"new"),
        Snapshot(8, 1, "producers", b"eight"),
    ]
    assert broker.engine.snapshots([9], "producers") == broker.engine.snapshots([], "producers") == []


def test_a_dropped_log_is_gone(world: World) -> None:
    """With its rows and snapshots, and so for its objects. Its id may be used again."""
    broker = joined(world, 1)
    (held,) = broker.engine.claim(1)
    broker.commit(1, append(7, 0, row(object_id=held)), append(8, 0), objects=[held])
    snapshot = Snapshot(7, 1, "producers", b"")
    broker.engine.replace(broker.identity, Replacement(7, 0, 1, [0], [row(object_id=held)], [], [snapshot]))
    broker.engine.drop(broker.identity, [7, 99])
    assert [head.log for head in broker.engine.heads()] == [8]
    assert broker.engine.rows(7, 0, 1) == []
    assert broker.engine.snapshots([7], "producers") == []
    assert broker.engine.doomed(0) == [held]
    assert broker.commit(2, append(7, 0)) == (0,)


# Objects


def test_claims_have_ids_of_their_own(world: World) -> None:
    """No two brokers put the same object; 0 stands for inline."""
    ids = [*world.engine().claim(3), *world.engine().claim(2), *world.engine().claim(0)]
    assert len(set(ids)) == 5
    assert min(ids) > 0


def test_old_claims_are_doomed_and_a_commit_of_one_fails(world: World) -> None:
    """A broker that was paused must not commit what garbage collection deletes."""
    broker = joined(world, 1)
    old, older = broker.engine.claim(2)
    world.age(MINUTE_MS)
    new = broker.engine.claim(1)
    assert broker.engine.doomed(MINUTE_MS) == [old, older]
    for objects, used in (([old], old), ([*new, old], new[0]), ([], old), ([12345], 0), ([], new[0])):
        with pytest.raises(ClaimLost):
            broker.commit(1, append(7, 0, row(object_id=used)), objects=objects)
    with pytest.raises(ClaimLost):
        broker.commit(1, append(7, 0, row(object_id=new[0])), objects=[old])
    assert broker.engine.heads() == []
    broker.commit(1, append(7, 0, row(object_id=new[0])), objects=new)
    world.age(MINUTE_MS)
    assert broker.engine.doomed(0) == [old, older]


def test_a_live_object_is_no_claim(world: World) -> None:
    """It is listed once; later rows may refer to it."""
    broker = joined(world, 1)
    objects = broker.engine.claim(1)
    broker.commit(1, append(7, 0, row(object_id=objects[0])), objects=objects)
    with pytest.raises(ClaimLost):
        broker.commit(2, append(7, 1, row(object_id=objects[0])), objects=objects)
    broker.commit(2, append(7, 1, row(object_id=objects[0])))


def test_an_object_without_rows_is_doomed(world: World) -> None:
    """The last of its rows went: by a start, a replacement or a drop."""
    broker = joined(world, 1)
    one, two, three, unused = objects = broker.engine.claim(4)
    broker.commit(
        1,
        append(1, 0, row(object_id=one)),
        append(2, 0, row(object_id=one)),
        append(3, 0, row(object_id=two)),
        append(4, 0, row(object_id=three)),
        objects=objects,
    )
    assert broker.engine.doomed(0) == [unused]
    broker.engine.raise_start(broker.identity, [(1, 1)])
    assert broker.engine.doomed(0) == [unused]
    broker.engine.raise_start(broker.identity, [(2, 1)])
    broker.engine.replace(broker.identity, Replacement(3, 0, 1, [0], [row()], []))
    broker.engine.drop(broker.identity, [4])
    assert broker.engine.doomed(0, limit=2) == [one, two]
    assert broker.engine.doomed(0) == objects


def test_marked_objects_are_forgotten_once_they_are_deleted(world: World) -> None:
    """An object that is not marked stays."""
    engine = world.engine()
    old, new = *engine.claim(1), *engine.claim(1)
    world.age(MINUTE_MS)
    engine.doomed(MINUTE_MS, limit=1)
    engine.forget([old, new, 12345])
    assert engine.doomed(0) == [new]


def test_a_replacement_needs_its_claims(world: World) -> None:
    """Compaction was slower than garbage collection: the old rows stay."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0))
    claims = broker.engine.claim(1)
    broker.engine.doomed(0)
    with pytest.raises(ClaimLost):
        broker.engine.replace(broker.identity, Replacement(7, 0, 1, [0], [row(object_id=claims[0])], claims))
    assert broker.engine.rows(7, 0, 1, inline=True) == [row()]


def test_known_objects_are_claimed_live_or_marked(world: World) -> None:
    broker = joined(world, 1)
    claimed, live, marked, forgotten = objects = broker.engine.claim(4)
    broker.commit(1, append(7, 0, row(object_id=live)), objects=[live])
    assert broker.engine.known([*objects, 12345]) == set(objects)
    world.age(MINUTE_MS)
    assert broker.engine.doomed(MINUTE_MS) == [claimed, marked, forgotten]
    broker.engine.forget([forgotten])
    assert broker.engine.known(objects) == {claimed, live, marked}
    assert broker.engine.known([]) == set()
