"""The plays with groups of the consumer protocol; what Kafka answers to each step is in consumer_answers.json."""

from collections.abc import Callable

from tests.golden.consumer_stage import Stage


def refusals(stage: Stage) -> None:
    """What nobody may ask, and what is asked of groups that are not there (G4)."""
    stage.topic("t", 3)
    stage.beat("no such group", "g", "a", 5)
    stage.beat("leaves no such group", "g", "a", -1)
    stage.join("no id in v1", "g", "")
    stage.join("no rebalance timeout", "g", "a", rebalance_timeout_ms=-1)
    stage.join("joins with partitions", "g", "a", owned={"t": [0]})
    stage.join("joins without a subscription", "g", "a", topics=None)
    stage.beat("epoch -3", "g", "a", -3)
    stage.beat("away without an instance id", "g", "a", -2)
    stage.join("no group", "", "a")
    stage.join("a blank instance id", "g", "a", instance_id=" ")
    stage.join("an assignor nobody has", "g", "a", server_assignor="zoo")
    stage.join("no expression", "g", "a", topics=None, regex="a(")
    stage.join("a lookahead", "g", "a", topics=None, regex="(?=x)")
    stage.describe("g")
    stage.join("v0 gives an id", "g", "", version=0)


def epochs(stage: Stage) -> None:
    """Heartbeats full and short, with epochs that are right, old and from the future (G4)."""
    stage.topic("t", 3)
    stage.join("joins", "g", "a")
    stage.beat("lives", "g", "a", 2)
    stage.beat("says everything", "g", "a", 2, rebalance_timeout_ms=60_000, topics=("t",), owned={"t": [0, 1, 2]})
    stage.beat("an epoch to come", "g", "a", 3)
    stage.beat("an old epoch", "g", "a", 1)
    stage.beat("the epoch before, with what it has", "g", "a", 0, owned={"t": [0]})
    stage.beat("a stranger", "g", "zz", 2)
    stage.join("joins again", "g", "a")
    stage.describe("g")
    stage.describe("g", 0)
    stage.operators("g", types_filter=["Consumer"], states_filter=["stable"])
    stage.operators("g", types_filter=["classic"])
    stage.delete("g")


def two_members(stage: Stage) -> None:
    """A partition goes from one to the other only once it was given back; commits follow it (G4, G6)."""
    stage.topic("t", 3)
    stage.join("a joins", "g", "a")
    stage.pause()
    stage.join("b joins", "g", "b")
    stage.describe("g")
    stage.beat("a must give back", "g", "a", 2)
    stage.beat("a has not yet", "g", "a", 2, owned={"t": [0, 1, 2]})
    stage.commit("a commits", "g", "a", 2, 0)
    stage.commit("a commits ahead of its epoch", "g", "a", 3, 0)
    stage.commit("a stranger commits", "g", "zz", 2, 0)
    stage.commit("a commits by an old version", "g", "a", 2, 0, version=8)
    stage.commit("nobody commits", "g", "", -1, 0)
    stage.fetch("an operator fetches", "g", None, -1)
    stage.fetch("a fetches", "g", "a", 2)
    stage.fetch("a fetches ahead of its epoch", "g", "a", 7)
    stage.fetch("a stranger fetches", "g", "zz", 1)
    stage.beat("a gave back", "g", "a", 2, owned={"t": [0, 1]})
    stage.beat("b lives", "g", "b", 3)
    stage.beat("b has nothing yet", "g", "b", 3, owned={})
    stage.describe("g")
    stage.commit("a commits by its old epoch what it kept", "g", "a", 2, 0)
    stage.commit("a commits by its old epoch what it lost", "g", "a", 2, 2)
    stage.commit("a commits by its old epoch both", "g", "a", 2, 0, 2)
    stage.commit("b commits by an epoch from before it came", "g", "b", 2, 2)
    stage.pause()
    stage.beat("b leaves", "g", "b", -1)
    stage.describe("g")
    stage.beat("a gets all", "g", "a", 3)
    stage.beat("a leaves", "g", "a", -1)
    stage.describe("g")
    stage.operators("g")
    stage.fetch("an operator fetches", "g", None, -1)
    stage.fetch("a fetches", "g", "a", 4)
    stage.commit("nobody commits", "g", "", -1, 1)
    stage.delete("g")
    stage.describe("g")


def static_members(stage: Stage) -> None:
    """A static place outlives its holder, and is not taken from one that is there (G4; KIP-345)."""
    stage.topic("t", 4)
    stage.join("joins", "g", "a", instance_id="i", rack_id="r")
    stage.join("another one", "g", "b", instance_id="i")
    stage.join("the same one", "g", "a", instance_id="i")
    stage.beat("not the holder", "g", "b", 2, instance_id="i")
    stage.beat("an instance nobody knows", "g", "b", 2, instance_id="k")
    stage.beat("away, not the holder", "g", "b", -2, instance_id="i")
    stage.beat("away, nobody knows it", "g", "b", -2, instance_id="k")
    stage.beat("away", "g", "a", -2, instance_id="i")
    stage.describe("g")
    stage.beat("lives while away", "g", "a", 2, instance_id="i")
    stage.commit("commits while away", "g", "a", 2, 0)
    stage.pause()
    stage.join("x joins", "g", "x")
    stage.describe("g")
    stage.join("back under a new id", "g", "c", instance_id="i")
    stage.describe("g")
    stage.beat("its former self", "g", "a", 2, instance_id="i")
    stage.beat("its former self, without the place", "g", "a", 2)
    stage.beat("x lives", "g", "x", 3, owned={})
    stage.describe("g")
    stage.beat("leaves for good", "g", "c", -1, instance_id="i")
    stage.describe("g")
    stage.pause()
    stage.beat("x lives", "g", "x", 3)
    stage.describe("g")


def subscriptions(stage: Stage) -> None:
    """Topics that are not there, come later, are given up; the assignor that most ask for (G4)."""
    stage.topic("t", 3)
    stage.topic("u", 2)
    stage.join("a by range", "g", "a", server_assignor="range", topics=("t", "u", "nope"))
    stage.describe("g")
    stage.pause()
    stage.beat("a gives up u", "g", "a", 2, topics=("t",))
    stage.beat("a stopped reading it", "g", "a", 2, owned={"t": [0, 1, 2]})
    stage.describe("g")
    stage.pause()
    stage.join("b wants both", "g", "b", topics=("t", "u"))
    stage.describe("g")
    stage.beat("a must give back", "g", "a", 3, owned={"t": [0, 1, 2]})
    stage.beat("a gave back", "g", "a", 3, owned={"t": [0, 1]})
    stage.beat("b lives", "g", "b", 4)
    stage.describe("g")
    stage.pause()
    stage.beat("a wants nothing", "g", "a", 4, topics=())
    stage.describe("g")
    stage.beat("a stopped", "g", "a", 4, owned={})
    stage.describe("g")
    stage.beat("a has a rack", "g", "a", 5, rack_id="z")
    stage.beat("a asks for uniform", "g", "a", 5, server_assignor="uniform")
    stage.describe("g")
    stage.join("q wants what is not there", "n", "q", topics=("late",))
    stage.topic("late", 2)
    stage.pause()
    stage.beat("it came", "n", "q", 2)
    stage.describe("n")


def expressions(stage: Stage) -> None:
    """Subscriptions by regular expression are resolved after the heartbeat that brings them (G4)."""
    stage.topic("t", 2)
    stage.join("by expression", "g", "a", topics=None, regex="t+-RUN")
    stage.pause()
    stage.beat("it is resolved", "g", "a", 1)
    stage.describe("g")
    stage.pause()
    stage.join("the same expression", "g", "b", topics=None, regex="t+-RUN")
    stage.beat("a gives back", "g", "a", 2, owned={"t": [0, 1]})
    stage.beat("a gave back", "g", "a", 2, owned={"t": [0]})
    stage.beat("b lives", "g", "b", 3)
    stage.describe("g")
    stage.pause()
    stage.beat("b unsubscribes", "g", "b", 3, regex="")
    stage.beat("b stopped", "g", "b", 3, owned={})
    stage.describe("g")
    stage.beat("v0 says nothing of expressions", "g", "a", 3, version=0)
    stage.beat("a leaves", "g", "a", -1)
    stage.describe("g")


def upgrade(stage: Stage) -> None:
    """A classic group becomes a consumer group under its members, and goes back (G5)."""
    stage.topic("t", 4)
    member = stage.classic_join("a newcomer", "g", "").member_id
    stage.classic_join("joins", "g", member)
    stage.classic_sync("leads", "g", member, 1, 0, 1, 2, 3)
    stage.operators("g")
    stage.describe("g")
    stage.beat("no consumer group yet", "g", "x", 3)
    stage.join("x joins", "g", "x")
    stage.describe("g")
    stage.operators("g")
    stage.classic_beat("told to rejoin", "g", member, 1)
    stage.classic_sync("told to rejoin first", "g", member, 1)
    stage.commit("commits by its generation", "g", member, 1, 0, version=7)
    stage.commit("commits ahead of it", "g", member, 5, 0)
    stage.fetch("fetches", "g", member, 1)
    stage.fetch("fetches ahead of it", "g", member, 3)
    stage.classic_join("rejoins with all it has", "g", member, owned={"t": [0, 1, 2, 3]})
    stage.describe("g")
    stage.classic_sync("hears what it keeps", "g", member, 1)
    stage.classic_beat("told to rejoin", "g", member, 1)
    stage.classic_join("rejoins with what it keeps", "g", member, owned={"t": [0, 1]})
    stage.classic_sync("is there", "g", member, 2)
    stage.classic_beat("lives", "g", member, 2)
    stage.classic_sync("an old generation", "g", member, 1)
    stage.classic_beat("an old generation", "g", member, 1)
    stage.classic_beat("a stranger", "g", "zz", 1)
    stage.beat("x gets its share", "g", "x", 2)
    stage.describe("g")
    stage.classic_beat("x is no classic member", "g", "x", 2)
    stage.classic_join("another assignor", "g", "", protocols=("zoo",))
    stage.classic_join("another protocol type", "g", "", protocol_type="connect")
    stage.beat("x leaves", "g", "x", -1)
    stage.operators("g")
    stage.describe("g")
    stage.classic_beat("the generation of the last epoch", "g", member, 2)
    stage.classic_beat("told to rejoin", "g", member, 3)
    stage.classic_join("leads again", "g", member, owned={"t": [0, 1]})
    stage.classic_sync("leads", "g", member, 4, 0, 1, 2, 3)
    stage.classic_leave("leaves", "g", member)
    stage.operators("g")


def three_of_two_kinds(stage: Stage) -> None:
    """Classic members come to a consumer group and go, alone and by an operator's word (G5)."""
    stage.topic("t", 4)
    stage.join("x joins", "g", "x")
    stage.pause()
    first = stage.classic_join("a newcomer", "g", "").member_id
    stage.classic_join("joins", "g", first)
    stage.describe("g", sizes=True)
    stage.classic_sync("nothing yet", "g", first, 3)
    stage.pause()
    second = stage.classic_join("another", "g", "").member_id
    stage.classic_join("joins", "g", second)
    stage.classic_leave("one leaves, and a stranger", "g", second, "zz")
    stage.describe("g", sizes=True)
    stage.classic_leave("the other leaves", "g", first)
    stage.describe("g", sizes=True)


def empty_groups(stage: Stage) -> None:
    """A group without members takes the protocol of whoever joins next; its positions stay (G5, G6)."""
    stage.topic("t", 2)
    stage.commit("an operator commits", "g", "", -1, 0)
    stage.operators("g")
    stage.join("x joins", "g", "x")
    stage.operators("g")
    stage.fetch("fetches", "g", None, -1)
    stage.beat("x leaves", "g", "x", -1)
    stage.operators("g")
    stage.classic_join("a classic newcomer", "g", "")
    stage.operators("g")
    stage.fetch("fetches", "g", None, -1)
    stage.classic_join("a stranger", "none", "zz")


def static_downgrade(stage: Stage) -> None:
    """A classic process takes over the only static place, and gives it back (G5; KIP-345)."""
    stage.topic("t", 4)
    stage.join("joins", "g", "a", instance_id="i")
    stage.pause()
    member = stage.classic_join("takes the place", "g", "", group_instance_id="i").member_id
    stage.operators("g")
    stage.describe("g")
    stage.classic_sync("has it all", "g", member, 2, group_instance_id="i")
    stage.classic_beat("lives", "g", member, 2, "i")
    stage.join("takes it back", "g", "b", instance_id="i")
    stage.describe("g")
    stage.classic_beat("is fenced", "g", member, 2, "i")


PLAYS: dict[str, Callable[[Stage], None]] = {
    play.__name__: play
    for play in (
        refusals,
        epochs,
        two_members,
        static_members,
        subscriptions,
        expressions,
        upgrade,
        three_of_two_kinds,
        empty_groups,
        static_downgrade,
    )
}
