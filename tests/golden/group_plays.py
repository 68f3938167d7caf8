"""The plays: each a function that does something to groups on a stage. The answers are compared with Kafka's own."""

import time
from collections.abc import Callable
from typing import Any

from tests.golden.group_scenarios import DELETE, LIST, TXN_COMMIT, Member, Stage, message, subscription

AWAY_S = 8
"""A rebalance timeout, and the time in which it has surely passed with what follows."""


def topic_of(stage: Stage) -> tuple[str, bytes]:
    """A topic of two partitions; its name and its id."""
    name = f"t-{stage.run}"
    wire = stage.member("admin").wire
    wire.create_topic(name, partitions=2)
    asked = message(3, "MetadataRequestTopic", name=name)
    topic_id = bytes(16)
    while not any(topic_id):  # Kafka's brokers hear of a new topic a moment after it was made
        topic_id = wire.call(3, 12, message(3, "MetadataRequest", topics=[asked])).topics[0].topic_id
        time.sleep(0.05)
    stage.name(topic_id.hex(), "TOPIC-ID")
    return name, topic_id


def refusals(stage: Stage) -> None:
    """What nobody may do, in the oldest and the newest versions (G1)."""
    for version in (0, 3, 4, 9):
        told = f"v{version}"
        stage.member("x").join(f"{told}: a session too short", "?", version, session_ms=1)
        stage.member("").join(f"{told}: no name of a group", "?", version)
        stranger = stage.member("x")
        stranger.id = "nobody"
        stranger.join(f"{told}: an id of its own", "?", version)
        stranger.join(f"{told}: an id of its own and a session too short", "?", version, session_ms=1)
        stage.member("y", protocols=()).join(f"{told}: no protocol", "?", version)
        odd = stage.member("y")
        odd.kind = ""
        odd.join(f"{told}: no protocol type", "?", version)
    for name in ("x", ""):
        stranger = stage.member(name)
        stranger.id, stranger.generation = "nobody", 1
        for version in (0, 4):
            stranger.beat(f"heartbeat v{version} to {name!r}", version)
        for version in (0, 3, 5):
            stranger.sync(f"sync v{version} to {name!r}", version=version)
            stranger.leave(f"leave v{version} to {name!r}", ("nobody", None), version=version)
        for version in (0, 5, 6):
            stranger.describe(f"describe v{version} of {name!r}", version)
        stranger.delete(f"delete {name!r}")
        stranger.delete_offsets(f"delete offsets of {name!r}")
        stranger.delete_offsets(f"delete offsets in no topic of {name!r}", ("none", 0))


def coordinators(stage: Stage) -> None:
    """FindCoordinator of groups, transactional ids, share groups and of what is none (G1, G9)."""
    wire = stage.member("").wire
    for version in range(7):
        for kind in (0, 1, 2, 9) if version else (0,):
            step = f"v{version}, key type {kind}"
            if version < 4:
                answer = wire.call(10, version, message(10, "FindCoordinatorRequest", key_type=kind, key="k"))
                stage.keep(step, [answer.error_code, answer.node_id >= 0])
                continue
            keys = ["k", "l", ""]
            asked = message(10, "FindCoordinatorRequest", key_type=kind, coordinator_keys=keys)
            found = sorted(
                (one.key, one.error_code, one.node_id >= 0) for one in wire.call(10, version, asked).coordinators
            )
            stage.keep(step, found)


def one_member(stage: Stage) -> None:
    """A life of one member, its commits, and who else may not commit (G1, G6, G7, G11)."""
    topic, topic_id = topic_of(stage)
    one = stage.member("one", protocols=(("range", subscription(topic)),))
    stage.name(subscription(topic).hex(), "SUBSCRIPTION")
    one.settle("A")
    one.describe("described")
    for generation, member_id, instance in (
        (one.generation, one.id, None),
        (one.generation + 1, one.id, None),
        (one.generation, "nobody", None),
        (-1, "", None),
        (-1, one.id, None),
        (one.generation, one.id, "place"),
        (one.generation, "", None),
    ):
        more: dict[str, Any] = {"generation": generation, "member_id": member_id, "group_instance_id": instance}
        one.commit(f"commit by {len(stage.kept)}", topic, 5, 6, 7, **more)
    one.commit("a note too long", topic, 5, note="n" * 5000)
    one.commit("no such topic", "none", 5)
    one.commit("by id", topic_id, 7, version=10)
    one.commit("by an id of nothing", b"z" * 16, 7, version=10)
    one.commit("by the zero id", bytes(16), 7, version=10)
    for version in (1, 2, 5, 7, 8, 9):
        one.fetch(f"fetch v{version}", topic, 0, 1, 9, version=version)
        if version >= 2:
            one.fetch(f"fetch all v{version}", None, version=version)
    one.fetch("fetch by id", topic_id, 0, 1, version=10)
    one.fetch("fetch by an id of nothing", b"z" * 16, 0, version=10)
    one.fetch("fetch all by id", None, version=10)
    nobody = stage.member("nobody")
    nobody.fetch("fetch of no group", topic, 0)
    nobody.fetch("fetch all of no group", None)
    stage.member("").fetch("fetch of a group without a name", topic, 0)
    nobody.commit("a generation of no group v8", topic, 1, version=8, generation=3, member_id="m")
    nobody.commit("a generation of no group v9", topic, 1, generation=3, member_id="m")
    one.delete_offsets("offsets of a topic it reads", (topic, 0), ("none", 0))
    one.delete_offsets("offsets of no such partition", (topic, 55))
    one.delete("a group with a member")
    groups = [one.group, nobody.group]
    answer = one.wire.call(DELETE, 1, message(DELETE, "DeleteGroupsRequest", groups_names=groups))
    stage.keep("two at once", sorted((result.group_id, result.error_code) for result in answer.results))
    one.leave("it leaves", (one.id, None), ("nobody", None))
    one.describe("without it")
    one.commit("by nobody into the emptied group", topic, 1, generation=-1, member_id="")
    one.commit("by a member of the past", topic, 1)
    one.delete_offsets("offsets of an empty group", (topic, 0), (topic, 1))
    one.fetch("what is left", None)
    one.delete("an empty group")
    one.describe("deleted")


def two_members(stage: Stage) -> None:
    """Rebalances of two, lost answers, changes in the middle, a third one (G1)."""
    a = stage.member("two").settle("A")
    b = stage.member("two", protocols=(("rr", b"x"), ("range", b"n")))
    b.joined("B is promised an id", "B", b.send_join())
    b.send_join()
    a.beat("A hears of it")
    _rejoin(a, b, "two")
    b.wire.send(14, 5, b.sync_request())
    stage.parked()
    a.beat("while the leader is waited for")
    a.sync("A hands out", (a.id, b"a"), (b.id, b"b"), ("nobody", b"z"))
    stage.keep("B is given its part", b.wire.receive(14, 5)[1])
    b.joined("a follower joins again, unchanged", "B", b.send_join())
    b.sync("and syncs again")
    a.send_join()
    b.beat("the leader joins again: B hears of it")
    b.sync("sync while all rejoin")
    b.commit("commit while all rejoin", "none", 1)
    b.joined("B again", "B", b.send_join())
    a.joined("A again", "A")
    a.joined("A's answer was lost", "A", a.send_join())
    b.joined("B's answer was lost", "B", b.send_join())
    b.wire.send(14, 5, b.sync_request())
    stage.parked()
    other = stage.member("two", protocols=(("range", b"new"),))
    other.id = b.id
    other.send_join()
    stage.keep("B changes its mind while it waits", b.wire.receive(14, 5)[1])
    a.joined("A follows", "A", a.send_join())
    other.joined("B, changed", "B")
    c = stage.member("two")
    c.joined("C is promised an id", "C", c.send_join())
    c.send_join()
    a.beat("A hears of C")
    a.leave("A and B leave at once", (a.id, None), (b.id, None))
    c.joined("C is alone", "C")
    c.sync("C syncs", (c.id, b"c"))
    c.describe("C alone")


def _rejoin(first: Member, second: Member, what: str) -> None:
    """The first one joins again, and both are answered."""
    first.send_join()
    first.joined(f"{what}: the first", "A")
    second.joined(f"{what}: the second", "B")


def who_never_syncs(stage: Stage) -> None:
    """A member that has joined and never asks for its part is dropped, and its promise is no membership (G1, G2)."""
    c = stage.member("late").settle("C")
    d = stage.member("late", protocols=(("range", b"d"),))
    d.joined("D is promised an id", "D", d.send_join())
    d.beat("a promised id cannot beat", generation=c.generation)
    d.send_join(rebalance_ms=AWAY_S * 1000)
    c.joined("C again", "C", c.send_join(rebalance_ms=AWAY_S * 1000))
    d.joined("D", "D")
    c.sync("C hands out", (c.id, b"c"), (d.id, b"d"))
    time.sleep(AWAY_S + 1)
    c.beat("C hears of it")
    d.beat("D is dropped")


def static_members(stage: Stage) -> None:
    """Places that change hands, with and without a rebalance (G2: KIP-345, KIP-814)."""
    x = stage.member("static", instance="i").settle("X")
    y = stage.member("static", instance="j")
    y.send_join()
    x.send_join()
    y.joined("Y", "Y")
    x.joined("X again", "X")
    y.wire.send(14, 5, y.sync_request())
    stage.parked()
    x.sync("X hands out", (x.id, b"x"), (y.id, b"y"))
    stage.keep("Y is given its part", y.wire.receive(14, 5)[1])
    old = x
    for version, name in ((9, "X2"), (7, "X3")):
        x = stage.member("static", instance="i")
        x.join(f"the leader comes back, v{version}", name, version)
        x.sync(f"{name} syncs")
    old.beat("the old one beats")
    old.sync("the old one syncs")
    old.commit("the old one commits", "none", 1)
    old.joined("the old one joins", "X", old.send_join())
    old.leave("the old one leaves", (old.id, "i"), ("", "nobody"), ("nobody", None))
    y = stage.member("static", instance="j", protocols=(("range", b"other"),))
    y.join("a follower comes back with another subscription", "Y2")
    x.beat("nobody is disturbed")
    x.describe("described")
    p = stage.member("static", instance="k")
    p.send_join()
    p2 = stage.member("static", instance="k")
    p2.send_join()
    p.joined("fenced while it waits", "P")
    x.leave("the second leaves while it waits", ("", "k"))
    p2.joined("it is told", "P2")


def other_protocols(stage: Stage) -> None:
    """Groups that are not of consumers, and groups of the oldest clients (G1, G7, G11)."""
    topic, _ = topic_of(stage)
    worker = stage.member("connect", protocols=(("v1", b"w"),))
    worker.kind = "connect"
    worker.join("a worker", "W")
    worker.sync("another protocol", protocol="v2")
    worker.commit("before the sync", topic, 1)
    worker.describe("before the sync")
    worker.sync("the sync", (worker.id, b"w"), protocol="v1")
    stage.member("connect").join("a consumer among workers", "?")
    stage.member("connect", protocols=(("v3", b""),)).join("no common protocol", "?")
    worker.delete_offsets("while it works", (topic, 0))
    for states, kinds in (((), ()), (("stable",), ()), (("Empty",), ()), ((), ("Classic",)), ((), ("none",))):
        asked = message(LIST, "ListGroupsRequest", states_filter=list(states), types_filter=list(kinds))
        answer = worker.wire.call(LIST, 5, asked)
        answer.groups = [one for one in answer.groups if one.group_id == worker.group]
        stage.keep(f"listed by {states} and {kinds}", answer)
    for version in (0, 1, 2, 3):
        old = stage.member(f"old-{version}")
        old.join(f"v{version} joins", f"O{version}", version)
        old.sync(f"v{version} syncs", (old.id, b"o"), version=min(version, 3))
        old.leave(f"v{version} leaves", (old.id, None), version=min(version, 2))


def transactions(stage: Stage) -> None:
    """Positions within a transaction, and who may write them (T4, T5, T6)."""
    topic, _ = topic_of(stage)
    busy = stage.member("busy").settle("A")
    tool = stage.member("txn")
    name = f"id-{stage.run}"
    producer = _identity(tool, name)
    fields = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}
    tool.ask("AddOffsetsToTxn", 25, 3, message(25, "AddOffsetsToTxnRequest", group_id=tool.group, **fields))

    def write(step: str, version: int, **more: Any) -> None:
        Partition = message(TXN_COMMIT, "TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=3)
        Partition.committed_metadata = ""
        topics = [message(TXN_COMMIT, "TxnOffsetCommitRequestTopic", name=topic, partitions=[Partition])]
        request = {"group_id": tool.group, "topics": topics, **fields, **more}
        tool.ask(step, TXN_COMMIT, version, message(TXN_COMMIT, "TxnOffsetCommitRequest", **request))

    for version in (0, 2, 3, 4):
        write(f"v{version}", version)
    write("a generation nobody has", 3, generation_id_or_member_epoch=5, member_id="nobody")
    write("no name of a group", 3, group_id="")
    tool.ask("for the busy group", 25, 3, message(25, "AddOffsetsToTxnRequest", group_id=busy.group, **fields))
    write("into a group with members, by nobody", 3, group_id=busy.group)
    write("by a stranger", 3, group_id=busy.group, generation_id_or_member_epoch=1, member_id="nobody")
    write("of another generation", 3, group_id=busy.group, generation_id_or_member_epoch=9, member_id=busy.id)
    tool.describe("a simple group")
    tool.fetch("stable ones", topic, 0, 1, stable=True)
    tool.fetch("all stable ones", None, stable=True)
    tool.fetch("any", topic, 0)
    while tool.wire.end_txn(name, producer, commit=True).error_code == 51:
        time.sleep(0.05)
    _settled(tool, topic)
    tool.fetch("after the commit", topic, 0, stable=True)
    tool.delete("its group")


def _identity(tool: Member, name: str) -> tuple[int, int]:
    """A producer id and epoch: Kafka makes its topic for them when they are first asked for."""
    while True:
        tool.wire.call(10, 4, message(10, "FindCoordinatorRequest", key_type=1, coordinator_keys=[name]))
        request = message(22, "InitProducerIdRequest", transactional_id=name, transaction_timeout_ms=60_000)
        answer = tool.wire.call(22, 4, request)
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
        time.sleep(0.2)


def _settled(tool: Member, topic: str) -> None:
    """Return when no position is pending any more: Kafka answers EndTxn before the markers are written."""
    before = list(tool.stage.kept)
    while tool.fetch("", topic, 0, stable=True).groups[0].topics[0].partitions[0].error_code == 88:
        time.sleep(0.05)
    tool.stage.kept[:] = before


PLAYS: dict[str, Callable[[Stage], None]] = {
    play.__name__: play
    for play in (
        refusals,
        coordinators,
        one_member,
        two_members,
        who_never_syncs,
        static_members,
        other_protocols,
        transactions,
    )
}
