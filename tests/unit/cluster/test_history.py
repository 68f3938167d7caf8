"""A database that goes back in time: what a broker knows is compared with it, at every new connection."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from fencepost.broker.cluster.engine import Engine, Fenced, Identity, Replacement, Slot, StillAlive, StoreUnavailable
from fencepost.broker.cluster.history import History, HistoryLost
from tests.kit.engine_worlds import LEASE_MS, Broker, World, append, joined, row

ResultT = TypeVar("ResultT")


def watching(world: World) -> Engine:
    """The connection of a broker."""
    engine = world.engine()
    engine.watch(History())
    return engine


def joins(world: World, broker: int) -> Broker:
    """A broker whose connection is watched."""
    engine = watching(world)
    return Broker(engine, engine.join(broker, "here", LEASE_MS))


def connected_again(call: Callable[[], ResultT]) -> ResultT:
    """The answer after the connection broke."""
    try:
        return call()
    except HistoryLost:
        raise
    except StoreUnavailable:
        return call()


def test_rows_of_another_broker_that_are_lost_are_noticed_by_who_read_them(world: World) -> None:
    """None of the reader's own commits is lost. Before, only the broker that lost its own commit noticed."""
    owner, reader = joins(world, 1), joins(world, 2)
    owner.commit(1, append(7, 0))
    world.save()
    owner.commit(2, append(7, 1))
    reader.engine.heads_of([7])
    world.go_back()
    with pytest.raises(HistoryLost):
        connected_again(lambda: reader.engine.renew(reader.identity))
    with pytest.raises(HistoryLost):
        reader.engine.heads_of([7])


def test_a_loss_is_noticed_after_other_brokers_have_committed_more(world: World) -> None:
    """The log has the same end then, with other rows."""
    owner, reader = joins(world, 1), joins(world, 2)
    owner.commit(1, append(7, 0))
    world.save()
    owner.commit(2, append(7, 1))
    reader.engine.heads_of([7])
    world.go_back()
    other = joins(world, 3)
    for number in range(20):
        other.commit(number + 1, append(7, number + 1))
    with pytest.raises(HistoryLost):
        connected_again(lambda: reader.engine.heads_of([7]))


@pytest.mark.parametrize("knows", [False, True])
def test_who_has_not_read_what_is_lost_goes_on(world: World, knows: bool) -> None:
    owner, reader = joins(world, 1), joins(world, 2)
    owner.commit(1, append(7, 0))
    reader.engine.heads_of([7])
    world.save()
    if knows:
        reader.engine.renew(reader.identity)
    owner.commit(2, append(7, 1))
    world.go_back()
    if knows:
        with pytest.raises(HistoryLost):
            connected_again(lambda: reader.engine.heads_of([7]))
    else:
        connected_again(lambda: reader.engine.heads_of([7]))
        reader.engine.renew(reader.identity)


def test_a_start_that_lost_nothing_is_no_loss(world: World) -> None:
    """As after a crash of the server, or a failover to a synchronous standby: brokers keep what they have."""
    owner, reader = joins(world, 1), joins(world, 2)
    owner.commit(1, append(7, 0))
    reader.engine.heads_of([7])
    for _ in range(2):
        world.start_again()
        assert [head.next for head in connected_again(lambda: reader.engine.heads_of([7]))] == [1]
    reader.engine.renew(reader.identity)


def test_a_database_that_goes_back_over_a_start_is_noticed(world: World) -> None:
    """The life in which the broker read is gone; another one may have its number."""
    owner, reader = joins(world, 1), joins(world, 2)
    owner.commit(1, append(7, 0))
    world.save()
    world.start_again()
    connected_again(lambda: reader.engine.heads_of([7]))
    world.go_back()
    other = joins(world, 3)
    for number in range(20):
        other.commit(number + 1, append(7, number + 1))
    with pytest.raises(HistoryLost):
        connected_again(lambda: reader.engine.heads_of([7]))


CHANGES: dict[str, Callable[[Engine, Identity], object]] = {
    "renew": lambda engine, me: engine.renew(me),
    "take_over": lambda engine, me: engine.take_over(me, [3], LEASE_MS),
    "give_up": lambda engine, me: engine.give_up(me, [2]),
    "ready": lambda engine, me: engine.ready(me),
    "release": lambda engine, me: engine.release(me),
    "raise_start": lambda engine, me: engine.raise_start(me, [(7, 1)]),
    "replace": lambda engine, me: engine.replace(me, Replacement(7, 0, 1, [0], [row()], [])),
    "drop": lambda engine, me: engine.drop(me, [7]),
    "open_session": lambda engine, me: engine.open_session(me),
    "join": lambda engine, me: engine.join(3, "there", LEASE_MS),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_that_is_lost_is_noticed(world: World, change: str) -> None:
    """Also those that append nothing: a merge, a trim, a slot that changed hands."""
    owner, reader = joins(world, 1), joins(world, 2)
    owner.commit(1, append(7, 0))
    owner.engine.take_over(owner.identity, [2], LEASE_MS)
    world.save()
    CHANGES[change](owner.engine, owner.identity)
    reader.engine.slots()
    world.go_back()
    with pytest.raises(HistoryLost):
        connected_again(reader.engine.slots)


def test_a_reset_fences_all_brokers_once(world: World) -> None:
    """Whoever knows something of what was lost: no one can say. All may join again at once."""
    brokers = [joins(world, number) for number in (1, 2)]
    brokers[0].engine.take_over(brokers[0].identity, [1, 2], LEASE_MS)
    world.start_again()
    finder = watching(world)
    finder.reset(1)
    for broker in brokers:
        with pytest.raises(Fenced):
            connected_again(lambda broker=broker: broker.engine.renew(broker.identity))  # type: ignore[misc]
    assert [slot.broker for slot in world.engine().slots() if slot.broker is not None] == []
    again = joins(world, 1)
    watching(world).reset(1)  # by the second broker that notices
    again.engine.renew(again.identity)


def test_a_reset_is_no_loss_for_who_joins_after_it(world: World) -> None:
    """The connection that made it learned of the life before; the next one finds that of the reset, too."""
    joins(world, 2)
    world.start_again()
    history = History()
    engine, other = world.engine(), world.engine()
    engine.watch(history)
    engine.reset(1)
    engine.renew(engine.join(1, "here", LEASE_MS).identity)
    other.watch(history)
    assert [member.broker for member in other.members()] == [1, 2]


def test_leader_epochs_rise_over_a_loss(world: World) -> None:
    """Clients that saw an epoch which is lost ignore leaders with a lower one. And OffsetForLeaderEpoch must not take
    lost records for new ones of the same epoch (KIP-320).
    """
    owner = joins(world, 1)
    world.save()
    lost = [slot.epoch for _ in range(5) for slot in _taken_again(owner)]
    world.go_back()
    next_owner = joins(world, 2)
    (slot,) = next_owner.engine.take_over(next_owner.identity, [5], LEASE_MS)
    assert slot.epoch > max(lost)


def _taken_again(owner: Broker) -> list[Slot]:
    taken = owner.engine.take_over(owner.identity, [5], LEASE_MS)
    owner.engine.give_up(owner.identity, [5])
    return taken


# A clock that steps back

STEP_MS = 40_000 + LEASE_MS


def test_a_lease_lasts_no_longer_than_a_lease_when_the_clock_steps_back(world: World) -> None:
    """The dead broker renewed it in what is the future now."""
    dead, alive = joined(world, 1), joined(world, 2)
    dead.engine.take_over(dead.identity, [4], LEASE_MS)
    world.age(-STEP_MS)
    alive.engine.renew(alive.identity)
    assert alive.engine.take_over(alive.identity, [4], LEASE_MS) == []
    world.age(LEASE_MS)
    assert [slot.slot for slot in alive.engine.take_over(alive.identity, [4], LEASE_MS)] == [4]


def test_a_broker_joins_again_within_a_lease_when_the_clock_steps_back(world: World) -> None:
    """No other broker is there."""
    joined(world, 1)
    world.age(-STEP_MS)
    with pytest.raises(StillAlive):
        world.engine().join(1, "here", LEASE_MS)
    world.age(LEASE_MS)
    joined(world, 1)


def test_all_leases_begin_anew_when_the_server_starts(world: World) -> None:
    """Its clock may be another one: brokers that are alive are not taken over because it is ahead."""
    owner, other = joins(world, 1), joins(world, 2)
    owner.engine.take_over(owner.identity, [4], LEASE_MS)
    world.age(STEP_MS)
    world.start_again()
    assert connected_again(lambda: other.engine.take_over(other.identity, [4], LEASE_MS)) == []


def test_a_claim_grows_old_when_the_clock_steps_back(world: World) -> None:
    engine = world.engine()
    (claim,) = engine.claim(1)
    world.age(-STEP_MS)
    assert engine.doomed(LEASE_MS) == []
    world.age(LEASE_MS)
    assert engine.doomed(LEASE_MS) == [claim]
