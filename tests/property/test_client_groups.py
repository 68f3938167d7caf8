"""Members of our client, machine against machine with our coordinator: freezes, lost answers, arrivals (G1, G2, G4).

The oracle: no partition is owned by two at once, all that is wanted is owned in the end, and a cooperative member reads
on with what it keeps.
"""

import random
from collections.abc import Callable

import pytest
import trio
import trio.testing

from fencepost.client.core.consumer_member import DesiredSubscription
from tests.property.client_group_world import ClassicPlayer, ConsumerPlayer, Player, Stage

Make = Callable[[Stage, str], Player]


def classic(*offered: str) -> Make:
    def make(stage: Stage, name: str) -> Player:
        topics = stage.random.choice([("t",), ("t", "u"), ("t", "u"), ("u",)])
        return ClassicPlayer(stage, name, topics, offered)

    return make


def any_classic(stage: Stage, name: str) -> Player:
    """On the way from range to cooperative-sticky some offer both, the others have dropped range already."""
    offered = stage.random.choice([("cooperative-sticky", "range"), ("cooperative-sticky",)])
    return ClassicPlayer(stage, name, ("t", "u"), offered)


def static(stage: Stage, name: str) -> Player:
    return ClassicPlayer(stage, name, ("t", "u"), ("cooperative-sticky",), instance_id=name)


def consumer(stage: Stage, name: str) -> Player:
    desired = stage.random.choice(
        [
            DesiredSubscription(("t",)),
            DesiredSubscription(("t", "u")),
            DesiredSubscription((), "t|u"),
            DesiredSubscription(("t", "u"), None, "range"),
        ]
    )
    return ConsumerPlayer(stage, name, desired)


def static_consumer(stage: Stage, name: str) -> Player:
    return ConsumerPlayer(stage, name, DesiredSubscription(("t", "u")), instance_id=name)


def either(stage: Stage, name: str) -> Player:
    """G5: members of both protocols in one group.

    One that joins while a cooperative member is still giving up what the last round took from it has to wait for that
    (seed 112). Kafka goes by what was last dealt, and hands it out at once.
    """
    if stage.random.random() < 0.5:
        return ConsumerPlayer(stage, name, DesiredSubscription(("t", "u")))
    return ClassicPlayer(stage, name, ("t", "u"), ("cooperative-sticky",))


KINDS: dict[str, Make] = {
    "range": classic("range"),
    "roundrobin": classic("roundrobin"),
    "sticky": classic("sticky"),
    "cooperative-sticky": classic("cooperative-sticky"),
    "range or cooperative-sticky": classic("range", "cooperative-sticky"),
    "upgrade": any_classic,
    "static": static,
    "consumer": consumer,
    "static consumer": static_consumer,
    "classic and consumer": either,
}
CHANGING = {"range", "roundrobin", "sticky", "cooperative-sticky", "range or cooperative-sticky"}
SEEDS = [0, 1, 2, 112, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))]


@pytest.fixture(autouse=True)
def schedule(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Trio shuffles its tasks by chance: here by the seed."""
    monkeypatch.setattr("trio._core._run._r", random.Random(request.node.callspec.params.get("seed", 0)))


async def settled(stage: Stage) -> None:
    """Without further faults everything has its owner before long."""
    stage.faults = False
    for _ in range(400):
        await trio.sleep(1)
        if stage.owned() == stage.wanted() and not any(player.asleep for player in stage.players):
            break
    assert stage.owned() == stage.wanted(), [(player.name, sorted(player.owned)) for player in stage.players]
    stage.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_partition_has_two_owners_and_all_have_one_in_the_end(
    seed: int, kind: str, autojump_clock: trio.testing.MockClock
) -> None:
    """G1, G2, G4, G5: members come, go, freeze beyond their session, lose answers and change their minds."""
    stage = Stage(seed)
    await stage.service.start()
    async with trio.open_nursery() as nursery:
        await nursery.start(stage.service.run)
        for number in range(14):
            act = stage.random.random()
            if len(stage.players) < 2 or (act < 0.5 and len(stage.players) < 5):
                player = KINDS[kind](stage, f"m{number}")
                stage.players.append(player)
                nursery.start_soon(player.run)
            elif act < 0.65:
                player = stage.random.choice(stage.players)
                if isinstance(player, ClassicPlayer | ConsumerPlayer):
                    await player.leave()
            elif act < 0.75:
                stage.random.choice(stage.players).scope.cancel()  # as a crash: nobody is told
            elif act < 0.9 and kind in CHANGING:
                player = stage.random.choice(stage.players)
                assert isinstance(player, ClassicPlayer)
                player.subscribe(stage.random.choice([("t",), ("t", "u")]))
            await trio.sleep(stage.random.choice([0.05, 0.5, 3.0, 20.0]))
        await trio.sleep(100)
        assert [player.failed for player in stage.players if player.failed] == []
        await settled(stage)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["cooperative-sticky", "consumer"])
async def test_who_may_read_on_reads_on_g4(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    """KIP-429, KIP-848: an arrival takes its share and nothing else stops; a departure stops nobody."""
    stage = Stage(1, faults=False)
    await stage.service.start()

    def make(name: str) -> Player:
        if kind == "consumer":
            return ConsumerPlayer(stage, name, DesiredSubscription(("t", "u")))
        return ClassicPlayer(stage, name, ("t", "u"), ("cooperative-sticky",))

    async with trio.open_nursery() as nursery:
        await nursery.start(stage.service.run)
        for name, share in (("a", 6), ("b", 3), ("c", 2)):
            player = make(name)
            stage.players.append(player)
            before = len(stage.moves)
            nursery.start_soon(player.run)
            await settled(stage)
            await trio.sleep(10)
            assert [len(one.owned) for one in stage.players] == [share] * len(stage.players)
            given_up = [p for _, what, partitions in stage.moves[before:] if what != "took" for p in partitions]
            assert set(given_up) == (player.owned if name != "a" else set()), "only what the newcomer gets has stopped"
        left = stage.players[0]
        before = len(stage.moves)
        assert isinstance(left, ClassicPlayer | ConsumerPlayer)
        await left.leave()
        await settled(stage)
        assert [what for _, what, _ in stage.moves[before:]] == ["took"] * len(stage.moves[before:])
        nursery.cancel_scope.cancel()
