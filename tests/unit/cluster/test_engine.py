"""What every database of a cluster does: one rule of `Engine` in each test."""

import pytest

from fencepost.broker.cluster.engine import (
    SLOTS,
    Conflict,
    Fenced,
    Head,
    LogIdTaken,
    NewLog,
    Replacement,
    Slot,
    StillAlive,
    log_id,
    slot_of,
)
from tests.kit.engine_worlds import LEASE_MS, SimWorld, World, append, joined, name_of, row

MINUTE_MS = 60_000


def owned_by(world: World, broker: int) -> list[int]:
    return [slot.slot for slot in world.engine().slots() if slot.broker == broker]


# Brokers and slots


def test_the_first_wanted_cluster_id_stays(world: World) -> None:
    """A cluster has one id, whichever broker came first."""
    assert [world.engine().cluster_id(wanted) for wanted in ("one", "two")] == ["one", "one"]


def test_a_living_broker_id_cannot_join_again(world: World) -> None:
    """Two processes with one id would fence one another; the second learns of the first."""
    first = joined(world, 1)
    world.age(4000)
    with pytest.raises(StillAlive) as refused:
        world.engine().join(1, '["elsewhere:9092"]', LEASE_MS)
    assert refused.value.address == '["broker-1:9092"]'
    assert 4000 <= refused.value.idle_ms < LEASE_MS
    first.engine.renew(first.identity)


def test_a_broker_joins_again_after_its_lease_ended(world: World) -> None:
    """A new process has a new incarnation and no slots; the old one is fenced; the sequence numbers go on."""
    old = joined(world, 1)
    old.engine.take_over(old.identity, [3, 4], LEASE_MS)
    old.commit(1, append(7, 0))
    world.age(LEASE_MS)
    new = joined(world, 1)
    assert new.identity.incarnation == old.identity.incarnation + 1
    assert (new.session.commit_seq, new.session.bases) == (1, (0,))
    assert owned_by(world, 1) == []
    with pytest.raises(Fenced):
        old.engine.renew(old.identity)
    assert new.commit(2, append(7, 1)) == (1,)


def test_every_transaction_of_a_broker_renews_its_lease(world: World) -> None:
    """A broker that works needs no renewals."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0))
    for renewal in (
        lambda: broker.engine.renew(broker.identity),
        lambda: broker.commit(2, append(7, 1)),
        lambda: broker.engine.take_over(broker.identity, [1], LEASE_MS),
        lambda: broker.engine.raise_start(broker.identity, [(7, 1)]),
        lambda: broker.engine.replace(broker.identity, Replacement(7, 1, 2, [1], [row(base=1)], [])),
        lambda: broker.engine.drop(broker.identity, [7]),
    ):
        world.age(MINUTE_MS)
        assert world.engine().members()[0].idle_ms >= MINUTE_MS
        renewal()
        assert world.engine().members()[0].idle_ms < MINUTE_MS


def test_slots_without_an_owner_are_taken_with_a_higher_epoch(world: World) -> None:
    """At first no broker has a slot. A slot taken twice is not taken again."""
    assert world.engine().slots() == [Slot(number, None, 0) for number in range(SLOTS)]
    broker = joined(world, 1)
    assert broker.engine.take_over(broker.identity, [9, 5, 9], LEASE_MS) == [Slot(5, 1, 1), Slot(9, 1, 1)]
    assert broker.engine.take_over(broker.identity, [9, 10], LEASE_MS) == [Slot(10, 1, 1)]
    assert owned_by(world, 1) == [5, 9, 10]


def test_a_living_broker_keeps_its_slots(world: World) -> None:
    """Nobody takes the slots of a broker that renewed its lease in time."""
    owner, other = joined(world, 1), joined(world, 2)
    owner.engine.take_over(owner.identity, [5], LEASE_MS)
    world.age(LEASE_MS - 1000)
    assert other.engine.take_over(other.identity, [5], LEASE_MS) == []
    owner.commit(1, append(5, 0))


def test_a_silent_broker_loses_all_its_slots_and_is_fenced(world: World) -> None:
    """The slots that were not wanted belong to no broker: their owner is fenced."""
    owner, other = joined(world, 1), joined(world, 2)
    owner.engine.take_over(owner.identity, [5, 6], LEASE_MS)
    world.age(LEASE_MS)
    assert other.engine.take_over(other.identity, [5], LEASE_MS) == [Slot(5, 2, 2)]
    assert world.engine().slots()[5:7] == [Slot(5, 2, 2), Slot(6, None, 1)]
    for attempt in (lambda: owner.commit(1, append(5, 0)), lambda: owner.engine.renew(owner.identity)):
        with pytest.raises(Fenced):
            attempt()
    with pytest.raises(Fenced):
        owner.engine.open_session(owner.identity)
    assert world.engine().heads() == []


def test_a_silent_broker_that_owns_none_of_the_slots_is_left_alone(world: World) -> None:
    """A takeover fences those brokers only whose slots it wants."""
    idle, other = joined(world, 1), joined(world, 2)
    idle.engine.take_over(idle.identity, [5], LEASE_MS)
    world.age(LEASE_MS)
    assert other.engine.take_over(other.identity, [6], LEASE_MS) == [Slot(6, 2, 1)]
    idle.engine.renew(idle.identity)


def test_a_broker_takes_nothing_from_itself(world: World) -> None:
    """Its takeover renews its own lease, however late."""
    broker = joined(world, 1)
    broker.engine.take_over(broker.identity, [5], LEASE_MS)
    world.age(LEASE_MS)
    assert broker.engine.take_over(broker.identity, [5, 6], LEASE_MS) == [Slot(6, 1, 1)]
    broker.engine.renew(broker.identity)


def test_a_broker_that_leaves_gives_its_slots_up_and_is_fenced(world: World) -> None:
    """Others take them at once, and the same id may join at once."""
    broker, other = joined(world, 1), joined(world, 2)
    broker.engine.take_over(broker.identity, [5], LEASE_MS)
    broker.engine.release(broker.identity)
    assert [(member.broker, member.left) for member in other.engine.members()] == [(1, True), (2, False)]
    with pytest.raises(Fenced):
        broker.commit(1, append(5, 0))
    with pytest.raises(Fenced):
        broker.engine.open_session(broker.identity)
    assert other.engine.take_over(other.identity, [5], LEASE_MS) == [Slot(5, 2, 2)]
    joined(world, 1)


def test_a_fenced_broker_takes_nothing_over_and_releases_nothing(world: World) -> None:
    """Its successor's slots stay as they are."""
    old = joined(world, 1)
    world.age(LEASE_MS)
    new = joined(world, 1)
    new.engine.take_over(new.identity, [5], LEASE_MS)
    with pytest.raises(Fenced):
        old.engine.take_over(old.identity, [6], LEASE_MS)
    with pytest.raises(Fenced):
        old.engine.release(old.identity)
    assert owned_by(world, 1) == [5]


# The fence


def test_a_commit_needs_the_next_sequence_number(world: World) -> None:
    """Neither a repeated commit nor one from the future changes anything."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0))
    for seq in (0, 1, 3):
        with pytest.raises(Fenced):
            broker.commit(seq, append(7, 1))
    assert [head.next for head in broker.engine.heads()] == [1]
    assert broker.commit(2, append(7, 1)) == (1,)


def test_a_new_session_fences_the_old_connection(world: World) -> None:
    """What was sent over it cannot happen any more."""
    old = joined(world, 1)
    session = world.engine().open_session(old.identity)
    assert session.identity == old.identity._replace(session=old.identity.session + 1)
    for attempt in (
        lambda: old.commit(1, append(7, 0)),
        lambda: old.engine.renew(old.identity),
        lambda: old.engine.take_over(old.identity, [1], LEASE_MS),
        lambda: old.engine.release(old.identity),
        lambda: old.engine.raise_start(old.identity, []),
        lambda: old.engine.replace(old.identity, Replacement(7, 0, 1, [], [], [])),
        lambda: old.engine.drop(old.identity, [7]),
    ):
        with pytest.raises(Fenced):
            attempt()
    assert world.engine().heads() == []


def test_a_new_session_answers_the_last_commit(world: World) -> None:
    """A broker that lost the answer gets it; bases are in the order of the appends, not of the logs."""
    broker = joined(world, 1)
    assert (broker.session.commit_seq, broker.session.bases) == (0, ())
    broker.commit(1, append(7, 0, row(3)))
    assert broker.commit(2, append(9, 0), append(7, 3), append(8, 0)) == (0, 3, 0)
    session = world.engine().open_session(broker.identity)
    assert (session.commit_seq, session.bases) == (2, (0, 3, 0))


def test_an_unknown_broker_is_fenced(world: World) -> None:
    """A database that was lost and made anew accepts nothing from its old brokers."""
    unknown = joined(SimWorld(), 1)
    with pytest.raises(Fenced):
        world.engine().renew(unknown.identity)
    with pytest.raises(Fenced):
        world.engine().open_session(unknown.identity)


def test_an_empty_commit_counts(world: World) -> None:
    """It has a sequence number and an empty answer."""
    broker = joined(world, 1)
    assert broker.commit(1) == ()
    assert broker.commit(2, append(7, 0)) == (0,)


# Order


def test_a_commit_appends_to_all_its_logs(world: World) -> None:
    """Rows get offsets without a gap, and come back as they were given."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0, row(2, 11, 12)), append(8, 0, row(5)))
    broker.commit(2, append(7, 2, row(4)))
    assert broker.engine.heads() == [Head(7, *name_of(7), 6, 0, 10), Head(8, *name_of(8), 5, 0, 5)]
    assert broker.engine.rows(7, 0, 6, inline=True) == [row(2, 11, 12), row(4, base=2)]


def test_a_guest_is_placed_where_the_log_ends(world: World) -> None:
    """It expects nothing of the log."""
    owner, guest = joined(world, 1), joined(world, 2)
    owner.commit(1, append(7, 0, row(3, 11)))
    assert guest.commit(1, append(7, None, row(1, 11)), append(9, 0)) == (3, 0)


def test_an_append_moves_behind_rows_of_other_producers(world: World) -> None:
    """The owner's batch and the marker of another producer change places without harm."""
    owner, guest = joined(world, 1), joined(world, 2)
    owner.commit(1, append(7, 0, row(3, 11)))
    guest.commit(1, append(7, None, row(1, 12)))
    assert owner.commit(2, append(7, 3, row(2, 11))) == (4,)
    assert [(kept.base, kept.end) for kept in owner.engine.rows(7, 0, 100)] == [(0, 3), (3, 4), (4, 6)]


def test_an_append_does_not_move_behind_a_row_of_its_own_producer(world: World) -> None:
    """A batch after its transaction's abort must be checked anew. The commit fails, and names these logs only."""
    owner, guest = joined(world, 1), joined(world, 2)
    owner.commit(1, append(7, 0, row(3, 11)), append(8, 0), append(9, 0))
    guest.commit(1, append(7, None, row(1, 11)), append(8, None, row(1, 11)), append(9, None, row(1, 12)))
    guest.commit(2, append(7, None, row(1, 13)))
    late = [append(7, 3, row(2, 10, 11)), append(8, 1, row(1, 12)), append(9, 1, row(1, 12, 14))]
    with pytest.raises(Conflict) as refused:
        owner.commit(2, *late)
    assert refused.value.logs == {7, 9}
    assert [head.next for head in owner.engine.heads()] == [5, 2, 2]
    assert owner.commit(2, append(7, 5, row(2, 10, 11)), late[1]) == (5, 2)


def test_a_fixed_append_does_not_move(world: World) -> None:
    """Any row before it is a conflict."""
    owner, guest = joined(world, 1), joined(world, 2)
    owner.commit(1, append(7, 0))
    guest.commit(1, append(7, None, row(1, 12)))
    with pytest.raises(Conflict):
        owner.commit(2, append(7, 1, row(1, 11), fixed=True))
    assert owner.commit(2, append(7, 2, row(1, 11), fixed=True)) == (2,)


def test_an_append_does_not_move_behind_rows_that_were_deleted(world: World) -> None:
    """The log starts behind the expectation: no row is left that could tell of a common producer."""
    owner, other = joined(world, 1), joined(world, 2)
    owner.commit(1, append(7, 0))
    other.commit(1, append(7, None), append(8, 0))
    other.engine.raise_start(other.identity, [(7, 2)])
    with pytest.raises(Conflict):
        owner.commit(2, append(7, 1))
    assert owner.commit(2, append(7, 2)) == (2,)


def test_an_append_to_a_log_that_is_not_there_is_a_conflict(world: World) -> None:
    """The log was dropped, or the append lacks the name; the same for guests, and for logs that end too early."""
    broker = joined(world, 1)
    for attempt in (append(7, 3), append(7, None), append(7, 3)._replace(new_log=name_of(7))):
        with pytest.raises(Conflict) as refused:
            broker.commit(1, attempt)
        assert refused.value.logs == {7}
    assert broker.engine.heads() == []


def test_two_brokers_may_make_the_same_log(world: World) -> None:
    """The second finds it there; a guest makes one as well."""
    first, second = joined(world, 1), joined(world, 2)
    assert first.commit(1, append(7, None, row(1, 11))._replace(new_log=name_of(7))) == (0,)
    assert second.commit(1, append(7, 0, row(1, 12))) == (1,)


def test_another_log_with_the_same_id_is_refused(world: World) -> None:
    """Two topics must never share a log, however unlikely two equal hashes are."""
    broker = joined(world, 1)
    broker.commit(1, append(7, 0))
    for other in (NewLog("payments-0", name_of(7).topic_id), NewLog("orders-7", b"another topic id")):
        with pytest.raises(LogIdTaken):
            broker.commit(2, append(7, 1)._replace(new_log=other))


def test_a_log_id_is_the_same_in_every_process() -> None:
    """It is a hash of topic id and partition, and decides the slot."""
    assert log_id(bytes(16), 3) == log_id(bytes(16), 3) != log_id(bytes(16), 4)
    assert 0 <= log_id(bytes(16), 3) < 2**63
    assert slot_of(513) == 1
