"""A group of other people's clients on stage: processes that consume, transform and produce in transactions."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Message, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.interop.confluent_steps import (
    READ_COMMITTED,
    WAIT_SECONDS,
    create_topic,
    read_to_end,
    transactional_producer,
    until_decided,
    values,
)
from tests.interop.java.jars import Unavailable as JavaUnavailable
from tests.interop.members.given import Given
from tests.interop.members.jvm import java_member
from tests.interop.members.node import HERE, Unavailable, node
from tests.interop.members.process import MemberProcess, wait_until

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


def command_of(client: str) -> list[str]:
    """How a member of this kind is started; skips where it cannot be."""
    try:
        if client == "kafkajs":
            return [node(), str(HERE / "with_kafkajs.js")]
        if client == "java":
            return java_member()
    except (Unavailable, JavaUnavailable) as missing:
        pytest.skip(str(missing))
    return [sys.executable, "-m", f"tests.interop.members.{PYTHON_MODULES[client]}"]


def filtered_by(admin: AdminClient, topic: str, who: str) -> None:
    """Set `read.committed.filter`, which Kafka does not have."""
    entry = ConfigEntry("read.committed.filter", who, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(WAIT_SECONDS)


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

    def abort(self, count: int, size_bytes: int) -> None:
        """Write so many records into each partition, in a transaction that is aborted."""
        producer = transactional_producer(self._bootstrap, f"{self.group}-aborts", **{"batch.size": 20_000})
        producer.begin_transaction()
        for number in range(count):
            for partition in range(PARTITIONS):
                producer.produce(self.source, b"aborted %d" % number + bytes(size_bytes), partition=partition)
            producer.poll(0)
        assert producer.flush(WAIT_SECONDS) == 0
        producer.abort_transaction(WAIT_SECONDS)

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

    def until_done(self, admin: AdminClient, aborted: int = 0) -> None:
        """Wait until the group has committed behind everything that was fed, and so many other offsets before it."""

        def done() -> bool:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])[self.group]
            found = asked.result(WAIT_SECONDS).topic_partitions
            return [one.offset for one in sorted(found)] == [len(fed) + aborted for fed in self.fed]

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
