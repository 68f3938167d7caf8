"""Producers and members of a run of share groups; each is a process with a journal (share_check.py)."""

import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.kit.history import Journal
from tests.kit.share_members import ACCEPT, REJECT, RELEASE, RENEW, Ack, ShareMember, topic_id_of
from tests.kit.wire import ConnectionEnded, Wire, records_in

GROUP, TOPIC = "workers", "jobs"
IGNORE = 0
"""Say nothing of a record: its lock ends."""
PATIENCE = 4
"""A record that was delivered so often is accepted at once: few are to reach the limit."""
QUEUED_S = 5.0
"""So long before `poll` answers librdkafka may have asked for a record."""
CALL_SECONDS = 20.0
RECORDS_PER_SECOND = 120


@dataclass(frozen=True, slots=True)
class Work:
    """One process of a run."""

    host: str
    port: int
    label: str
    seed: str
    partitions: int
    lock_s: float
    journal: Path

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def produce(work: Work) -> None:
    """An idempotent producer of librdkafka; it ends with its process."""
    journal, chance = Journal(work.journal), random.Random(work.seed + work.label)
    producer = Producer(
        {
            "bootstrap.servers": work.address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 200,
            "compression.type": chance.choice(("none", "zstd", "lz4")),
        }
    )

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            journal.write("ack", message.value().decode(), message.partition(), message.offset())

    number = 0
    while True:
        for _ in range(chance.randrange(1, 12)):
            number += 1
            value = f"{work.label}-{number}".encode()
            producer.produce(TOPIC, value, partition=chance.randrange(work.partitions), on_delivery=delivered)
        producer.poll(0)
        time.sleep(chance.uniform(0, 12 / RECORDS_PER_SECOND))


def _choose(chance: random.Random, count: int) -> int:
    if count >= PATIENCE:
        return ACCEPT
    [kind] = chance.choices((ACCEPT, RELEASE, REJECT, IGNORE, RENEW), (76, 10, 6, 4, 4))
    return kind


def consume(work: Work) -> None:
    """A ShareConsumer of librdkafka with explicit acknowledgements."""
    journal, chance = Journal(work.journal), random.Random(work.seed + work.label)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": work.address,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe([TOPIC])
    kinds = {ACCEPT: AcknowledgeType.ACCEPT, RELEASE: AcknowledgeType.RELEASE, REJECT: AcknowledgeType.REJECT}
    while True:
        messages = [one for one in consumer.poll(0.3) if one.error() is None]
        now = time.monotonic()
        chosen: list[tuple[int, int, int]] = []
        for one in messages:
            count = one.delivery_count()
            journal.write("got", one.partition(), one.offset(), one.value().decode(), count, now - QUEUED_S, now)
            kind = _choose(chance, count)
            chosen.append((one.partition(), one.offset(), kind if kind in kinds else RELEASE))
        if not chosen:
            continue
        time.sleep(work.lock_s * chance.choice((0, 0, 0, 0, 0, 0, 0.1, 0.5, 1.3)))
        for partition, offset, kind in chosen:
            journal.write("ask", partition, offset, kind, time.monotonic())
        try:
            for message, (_, _, kind) in zip(messages, chosen, strict=True):
                consumer.acknowledge(message, kinds[kind])
            results = {one.partition: error for one, error in consumer.commit_sync(timeout=CALL_SECONDS).items()}
        except KafkaException:
            continue
        for partition, offset, kind in chosen:
            if partition in results and results[partition] is None:
                journal.write("answered", partition, offset, kind, 0, time.monotonic())


def share(work: Work) -> None:
    """A member over the wire; it ends its sessions and connections, and goes on with others."""
    journal, chance = Journal(work.journal), random.Random(work.seed + work.label)
    number = 0
    while True:
        number += 1
        member = _WireMember(work, f"{work.label}-{number}"[:36], journal, chance)
        try:
            member.live()
        except (OSError, ConnectionEnded):
            journal.write("end", time.monotonic())
            time.sleep(chance.uniform(0.02, 0.3))


class _WireMember:
    """One connection, and the sessions on it."""

    def __init__(self, work: Work, name: str, journal: Journal, chance: random.Random) -> None:
        self._work, self._name, self._journal, self._chance = work, name, journal, chance

    def live(self) -> None:
        """Fetch and acknowledge until the connection ends. Raises OSError, ConnectionEnded."""
        work = self._work
        with Wire(socket.create_connection((work.host, work.port), CALL_SECONDS)) as wire:
            self._wire = wire
            self._epoch = self._beat(0)
            topic_id = topic_id_of(wire, TOPIC)
            self._member = ShareMember(wire, GROUP, self._name, topic_id, range(work.partitions))
            beaten_at = time.monotonic()
            acks: list[Ack] = []
            while True:
                if time.monotonic() > beaten_at + 0.3:
                    self._epoch, beaten_at = self._beat(self._epoch), time.monotonic()
                acks = self._round(acks)
                turn = self._chance.random()
                if turn < 0.02:
                    self._journal.write("end", time.monotonic())
                    return
                if turn < 0.04:
                    self._journal.write("end", time.monotonic())
                    self._say(acks, final=True)
                    self._member.epoch, acks = 0, []
                if turn > 0.99:
                    self._journal.write("end", time.monotonic())
                    self._beat(-1)
                    self._epoch = self._beat(0)

    def _beat(self, epoch: int) -> int:
        """One heartbeat; the epoch of the next one."""
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._name,
            member_epoch=epoch,
            subscribed_topic_names=None if epoch else [TOPIC],
        )
        answer = self._wire.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)
        return 0 if answer.error_code else answer.member_epoch

    def _round(self, acks: list[Ack]) -> list[Ack]:
        """Fetch, with acknowledgements or without; the acknowledgements for the next round."""
        member, chance = self._member, self._chance
        with_fetch = acks if member.epoch > 0 and chance.random() < 0.5 else []
        if acks and not with_fetch:
            self._say(acks)
        self._note(with_fetch)
        asked_at = time.monotonic()
        answer = member.fetch(
            *with_fetch,
            max_records=chance.choice((1, 5, 40)),
            wait_ms=chance.choice((0, 50, 300)),
            mode=chance.choice((0, 1)),
        )
        received_at = time.monotonic()
        if answer.error_code:
            self._journal.write("end", time.monotonic())
            member.epoch = 0
            time.sleep(0.02)
            return []
        parts = [part for topic in answer.responses for part in topic.partitions]
        if with_fetch:
            codes = {part.partition_index: part.acknowledge_error_code for part in parts}
            self._note_answers(with_fetch, codes)
        chosen = []
        for part in parts:
            if part.error_code:
                time.sleep(0.05)
                continue
            values = {record.offset: (record.value or b"").decode() for record in records_in(part)}
            for one in part.acquired_records:
                for offset in range(one.first_offset, one.last_offset + 1):
                    self._journal.write(
                        "got", part.partition_index, offset, values[offset], one.delivery_count, asked_at, received_at
                    )
                    kind = _choose(chance, one.delivery_count)
                    delay_ms = chance.choice((0, 0, 300, 2_000)) if kind == RELEASE else 0
                    if kind != IGNORE:
                        chosen.append(Ack(part.partition_index, offset, offset, kind, delay_ms))
        return self._renew(chosen)

    def _renew(self, chosen: list[Ack]) -> list[Ack]:
        """Wait a while; renew some locks, and accept those records then."""
        chance, lock_s = self._chance, self._work.lock_s
        if not chosen:
            return []
        time.sleep(lock_s * chance.choice((0, 0, 0, 0, 0, 0, 0, 0.02, 0.1, 0.6, 1.3)))
        renewals = [ack for ack in chosen if ack.kind == RENEW]
        if renewals:
            self._member.fetch(*renewals, renew=True)
        return [ack._replace(kind=ACCEPT) if ack.kind == RENEW else ack for ack in chosen]

    def _say(self, acks: Sequence[Ack], final: bool = False) -> None:
        self._note(acks)
        try:
            codes = self._member.acknowledge(*acks, final=final)
        except AssertionError:  # no such session (any more): the answer names no partition
            self._member.epoch = 0
            self._journal.write("end", time.monotonic())
            return
        self._note_answers(acks, dict(zip(sorted({ack.partition for ack in acks}), codes, strict=True)))

    def _note(self, acks: Sequence[Ack]) -> None:
        for ack in acks:
            if ack.delay_ms:
                self._journal.write("hold", ack.partition, ack.first, time.monotonic() + ack.delay_ms / 1000)
            self._journal.write("ask", ack.partition, ack.first, ack.kind, time.monotonic())

    def _note_answers(self, acks: Sequence[Ack], codes: dict[int, int]) -> None:
        for ack in acks:
            self._journal.write("answered", ack.partition, ack.first, ack.kind, codes[ack.partition], time.monotonic())
