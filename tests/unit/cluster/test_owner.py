"""The objects belong to one database: which databases may use them, and what happens to the others."""

from pathlib import Path

import pytest

from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.gc import Collector, sweep
from fencepost.broker.cluster.objects.object_store import Objects, open_objects
from fencepost.broker.cluster.objects.owner import NOTE, BucketOwner, DatabaseIdentity, NotOwner
from fencepost.broker.cluster.objects.row_objects import RowObjects
from tests.kit.engine_worlds import SimWorld

ORIGINAL = DatabaseIdentity("7", 16384, 1, "PostgreSQL at db:5432/fencepost")
RESTORED = ORIGINAL._replace(database=16999, place="PostgreSQL at db:5432/restored")
ELSEWHERE = ORIGINAL._replace(system="8")
PROMOTED = ORIGINAL._replace(timeline=2, place="PostgreSQL at standby:5432/fencepost")
CLUSTER = "cluster"


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(f"file://{tmp_path}", CLUSTER)


def owner_of(objects: Objects, identity: DatabaseIdentity) -> BucketOwner:
    return BucketOwner(objects, lambda: identity)


def test_the_first_database_owns_the_objects(objects: Objects) -> None:
    original = owner_of(objects, ORIGINAL)
    original.check()
    original.check()
    assert original.held() == ORIGINAL
    assert list(objects.ids()) == []


@pytest.mark.parametrize("copy", [RESTORED, ELSEWHERE, RESTORED._replace(timeline=9)])
def test_a_copy_is_refused_until_it_takes_over_and_then_the_original(objects: Objects, copy: DatabaseIdentity) -> None:
    owner_of(objects, ORIGINAL).check()
    with pytest.raises(NotOwner, match=r"belong to another database \(PostgreSQL at db:5432/fencepost\)") as caught:
        owner_of(objects, copy).check()
    assert "run `fencepost store take-over`" in str(caught.value)
    assert owner_of(objects, copy).held() == ORIGINAL
    owner_of(objects, copy).take_over()
    owner_of(objects, copy).check()
    with pytest.raises(NotOwner, match="belong to another database"):
        owner_of(objects, ORIGINAL).check()


def test_a_promoted_standby_takes_over_and_the_old_primary_is_refused(objects: Objects) -> None:
    owner_of(objects, ORIGINAL).check()
    owner_of(objects, PROMOTED).check()
    assert owner_of(objects, ORIGINAL).held() == PROMOTED
    with pytest.raises(NotOwner, match=r"has timeline 1, .* belong to timeline 2 .* this server is the old primary"):
        owner_of(objects, ORIGINAL).check()


@pytest.mark.parametrize("note", [b"", b"{}", b"[1]", b'{"format": 1, "system": "7"}', b"\xff"])
def test_a_note_that_cannot_be_read_is_refused(objects: Objects, note: bytes) -> None:
    objects.write_note(NOTE, note, replace=True)
    with pytest.raises(NotOwner, match=r"cannot be read .* run `fencepost store take-over`"):
        owner_of(objects, ORIGINAL).check()
    owner_of(objects, ORIGINAL).take_over()
    owner_of(objects, ORIGINAL).check()


def test_a_note_of_a_newer_fencepost_is_left_alone(objects: Objects) -> None:
    objects.write_note(NOTE, b'{"format": 2}', replace=True)
    with pytest.raises(NotOwner, match="has format 2: install a newer fencepost"):
        owner_of(objects, ORIGINAL).check()


def test_garbage_collection_deletes_nothing_of_another_database(objects: Objects) -> None:
    """A broker that was paused while the objects were taken over looks before it deletes."""
    engine = SimWorld().engine()
    owner = owner_of(objects, ORIGINAL)
    rows = RowObjects(objects, ClaimPool(engine), owner)
    owner.check()
    unused, unknown = rows.put([b"unused"]), 1 << 40
    objects.put(unknown, [b"of the other database"])
    collector = Collector(rows, idle_ms=0)
    collector.step(engine)
    owner_of(objects, RESTORED).take_over()
    with pytest.raises(NotOwner):
        collector.step(engine)
    with pytest.raises(NotOwner):
        list(sweep(engine, rows))
    assert set(objects.ids()) == {unused, unknown}
    owner_of(objects, ORIGINAL).take_over()
    collector.step(engine)
    assert list(sweep(engine, rows)) == [1]
    assert set(objects.ids()) == set()
