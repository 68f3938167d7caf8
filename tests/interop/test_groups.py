"""Groups of other people's clients: members arrive, leave and die, and every record is worked on once (G1-G4, T4-T6).

The members are processes that consume, transform and produce in transactions with their positions; a reader that has
nothing to do with them counts.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.interop.confluent_steps import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    WAIT_SECONDS,
    admin_client,
    create_topic,
    read_to_end,
    until_decided,
    values,
)
from tests.interop.java.jars import Unavailable as JavaUnavailable
from tests.interop.members.given import Given
from tests.interop.members.jvm import java_member
from tests.interop.members.node import HERE, Unavailable, node
from tests.interop.members.process import MemberProcess, wait_until

pytestmark = pytest.mark.interop
PARTITIONS = 4
SESSION_MS = 6000 if "FENCEPOST_INTEROP_BOOTSTRAP" in os.environ else 2000
"""Kafka allows no shorter one by default."""
UNFENCED_SESSION_MS = {"aiokafka": 12_000, "kafkajs": 12_000}
"""Their transactions name no generation (KIP-447), so one of these that is missed while it only was slow does what its
heir does, too: a session is longer than a busy machine stops a process, and (kafkajs beats between transactions only)
than a transaction is open.
"""
PYTHON_MODULES = {
    "confluent": "with_confluent",
    "aiokafka": "with_aiokafka",
    "kafka-python": "with_kafka_python",
    "fencepost": "with_fencepost",
}
KINDS = ["confluent eager", "confluent cooperative", "confluent consumer", "aiokafka", "kafka-python", "kafkajs"]


def command_of(client: str) -> list[str]:
    """How a member of this kind is started; skips where it can not be."""
    try:
        if client == "kafkajs":
            return [node(), str(HERE / "with_kafkajs.js")]
        if client == "java":
            return java_member()
    except (Unavailable, JavaUnavailable) as missing:
        pytest.skip(str(missing))
    return [sys.executable, "-m", f"tests.interop.members.{PYTHON_MODULES[client]}"]


class Play:
    """A group on stage: its members, and what they are fed."""

    def __init__(self, bootstrap: str, name: str, kind: str) -> None:
        self._client, _, self._variant = kind.partition(" ")
        self.command = command_of(self._client)
        self.group = name
        self.members: dict[str, MemberProcess] = {}
        self.fed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.source = create_topic(bootstrap, f"{name}-in", PARTITIONS)
        self.target = create_topic(bootstrap, f"{name}-out", PARTITIONS)
        self._bootstrap = bootstrap
        self._feeder = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})

    def feed(self, count: int) -> None:
        """Write so many new records into each partition."""
        for partition, fed in enumerate(self.fed):
            for _ in range(count):
                fed.append(b"%d/%d" % (partition, len(fed)))
                self._feeder.produce(self.source, fed[-1], partition=partition)
        assert self._feeder.flush(WAIT_SECONDS) == 0

    def enter(
        self, who: str, variant: str | None = None, pause_s: float = 0.02, client: str | None = None
    ) -> MemberProcess:
        """Start a member; of the same name, it takes over the transactional id."""
        playing = self._client if client is None else client
        given = Given(
            bootstrap=self._bootstrap,
            group=self.group,
            source=self.source,
            target=self.target,
            transactional_id=f"{self.group}-{who}",
            session_ms=UNFENCED_SESSION_MS.get(playing, SESSION_MS),
            heartbeat_ms=200,
            pause_s=pause_s,
            variant=self._variant if variant is None else variant,
        )
        member = self.members[who] = MemberProcess(self.command if client is None else command_of(client), given)
        return member

    def exit(self, who: str) -> None:
        """Have a member leave in order."""
        self.members.pop(who).leave()

    def until_shared(self) -> None:
        """Wait until the members of the moment hold all partitions among them, each its fair share."""
        playing = list(self.members.values())
        share = PARTITIONS // len(playing)

        def shared() -> bool:
            held = [partition for member in playing for partition in member.held]
            return sorted(held) == list(range(PARTITIONS)) and all(len(member.held) == share for member in playing)

        wait_until(shared, f"{len(playing)} members to share the partitions", playing)

    def until_done(self, admin: AdminClient) -> None:
        """Wait until the group has committed behind everything that was fed."""

        def done() -> bool:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])[self.group]
            found = asked.result(WAIT_SECONDS).topic_partitions
            return [one.offset for one in sorted(found)] == [len(fed) for fed in self.fed]

        wait_until(done, "the group to come to the end", list(self.members.values()))

    def seen(self) -> list[Message]:
        """What a reader of its own finds in the end; it must be all that was fed, once, in order."""
        until_decided(self._bootstrap, self.target, range(PARTITIONS))
        seen = read_to_end(self._bootstrap, self.target, range(PARTITIONS), READ_COMMITTED)
        for partition, fed in enumerate(self.fed):
            assert values(one for one in seen if one.partition() == partition) == fed, f"partition {partition}"
        return seen


@contextmanager
def play_of(bootstrap: str, name: str, kind: str) -> Iterator[Play]:
    """A play whose members are gone afterwards, whatever came."""
    play = Play(bootstrap, name, kind)
    try:
        yield play
    finally:
        for member in play.members.values():
            member.kill()


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_once_while_members_come_go_and_die(bootstrap: str, name: str, kind: str) -> None:
    """Join, arrival, kill -9 in an open transaction, its successor, a departure; each goes on where all stood."""
    with play_of(bootstrap, name, kind) as play:
        play.feed(20)
        play.enter("a")
        play.until_shared()
        second = play.enter("b", pause_s=10.0)  # there is time to hit it in the middle
        play.until_shared()
        opened = second.heard("open")
        play.feed(40)
        second.next("open", opened)
        play.members.pop("b").kill()
        play.until_shared()
        successor = play.enter("b")
        play.until_shared()
        committed = successor.heard("committed")
        play.feed(20)
        successor.next("committed", committed)
        play.exit("a")
        play.until_shared()
        play.feed(20)
        play.until_done(admin_client(bootstrap))
        play.exit("b")
        seen = play.seen()
        everything = read_to_end(bootstrap, play.target, range(PARTITIONS), READ_UNCOMMITTED)
        assert len(everything) > len(seen), "the one that was killed had a transaction open"


@pytest.mark.parametrize("classic", ["eager", "cooperative"])
def test_a_group_changes_its_protocol_member_by_member_and_back_g5(bootstrap: str, name: str, classic: str) -> None:
    """Row G5: the first of the consumer protocol takes the others along, the last that leaves gives the group back."""

    def kind() -> str:
        return str(admin_client(bootstrap).describe_consumer_groups([name])[name].result(WAIT_SECONDS).type.name)

    with play_of(bootstrap, name, f"confluent {classic}") as play:
        play.enter("a")
        play.until_shared()
        assert kind() == "CLASSIC"
        play.feed(20)
        for leaves, comes, variant, expected in (
            (None, "b", "consumer", "CONSUMER"),
            ("a", "c", "consumer", "CONSUMER"),
            ("b", "d", classic, "CONSUMER"),
            ("c", "e", classic, "CLASSIC"),
        ):
            if leaves is not None:
                play.exit(leaves)
            play.enter(comes, variant)
            play.until_shared()
            assert kind() == expected, f"{comes} has come"
            play.feed(10)
        play.until_done(admin_client(bootstrap))
        play.exit("d")
        play.exit("e")
        play.seen()
