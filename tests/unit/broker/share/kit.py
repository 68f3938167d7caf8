"""A broker that leads partitions of one topic, and members of a share group that fetch from it."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.place import Alone
from fencepost.broker.purgatory import Purgatory
from fencepost.broker.share.fetch import ShareFetch
from fencepost.broker.share.partitions import SharePartitions
from fencepost.broker.share.sessions import MemberKey, ShareSession, TopicIdPartition
from fencepost.broker.share.values import AckBatch, AckType, Refused
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.coordinator.share.values import Outcome, ShareKey, StateBatch, StateUpdate, StoredState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api78_share_fetch import ShareFetchRequest
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import VirtualClock
from tests.kit.late_log_store import LateLogStore
from tests.unit.log.kit import TP, batch, late_log, send, settle

MEMBER = MemberKey("g", "one")
PART = TopicIdPartition(bytes(16), TP.partition)
WAIT_S = 20


class States:
    """The share coordinator of a group that begins at offset 0."""

    def __init__(self) -> None:
        self.written: list[StateUpdate] = []
        self.refuses = ErrorCode.NONE
        self.batches: tuple[StateBatch, ...] = ()

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        return StoredState(state_epoch=1, start_offset=0, batches=self.batches)

    async def write(self, updates: list[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        self.written += [update for _, update in updates]
        return [Outcome(self.refuses)] * len(updates)


class Leader:
    """In the first partition is a batch. A member has a session with all of them; others may join."""

    def __init__(self, count: int = 1, **settings: Any) -> None:
        """`settings` are those of the group that are not the default."""
        self.log: PartitionLog | None = late_log(LateLogStore(MemoryStore()))
        self.others = {number: late_log(LateLogStore(MemoryStore())) for number in range(1, count)}
        self.produce(PART.partition)
        group_settings = replace(ShareGroupConfig().of_group({}), **settings)
        self.node: Any = SimpleNamespace(
            config=load_config(),
            place=Alone(load_config()),
            clock=VirtualClock(),
            metrics=MagicMock(),
            purgatory=Purgatory(),
            response_bytes=SimpleNamespace(left=lambda least: 1 << 20),
            partition=lambda tp: self.others.get(tp.partition, self.log),
            absence=lambda tp: ErrorCode.NOT_LEADER_OR_FOLLOWER,
            share_settings=lambda group_id: group_settings,
            metadata=SimpleNamespace(image=SimpleNamespace(features={}), topic_name=lambda topic_id: TP.topic),
        )
        self.states = States()
        self.shares = SharePartitions(self.node, self.states)  # type: ignore[arg-type]
        self.topic_fetches = Counter[str]()
        self.one = Member(self, MEMBER.member_id, range(count))
        self.session, self.fetch = self.one.session, self.one.fetch

    def join(self, member_id: str, partitions: Sequence[int] = (0,)) -> "Member":
        self.shares.sessions.of_group[MEMBER.group_id] += 1
        return Member(self, member_id, partitions)

    def produce(self, partition: int, batches: int = 1) -> None:
        """Have batches of a record each be readable at once."""
        log = self.others.get(partition, self.log)
        assert log is not None
        for _ in range(batches):
            send(log, batch())
        settle(log)


class Member:
    """One that has a session with some partitions."""

    def __init__(self, leader: Leader, member_id: str, partitions: Sequence[int]) -> None:
        self.key = MemberKey(MEMBER.group_id, member_id)
        parts = [PART._replace(partition=number) for number in partitions]
        self.session = ShareSession(parts, SimpleNamespace(closed={}), leader.topic_fetches)
        self._leader = leader

    async def fetch(self, max_records: int = 10, min_bytes: int = 1) -> ShareFetch:
        request = ShareFetchRequest(
            max_wait_ms=WAIT_S * 1000, min_bytes=min_bytes, max_bytes=1 << 20, max_records=max_records, batch_size=10
        )
        parts = (*self.session.ready, *self.session.to_check)
        names = {part: TopicPartition(TP.topic, part.partition) for part in parts}
        fetch = ShareFetch(self._leader.node, self._leader.shares, request, self.key, self.session, names)
        await fetch.run(None)
        return fetch

    def acknowledge(self, part: TopicIdPartition, first: int, last: int, kind: AckType) -> None:
        """Say what becomes of records, if it still holds them."""
        shares = self._leader.shares
        led = shares.find(self.key.group_id, part)
        if led is not None and led.active:
            batches = [AckBatch(first, last, [kind])]
            with suppress(Refused):
                shares.store(led, led.core.acknowledge(self.key.member_id, batches, shares.now_ms))
            shares.changed(led)

    def leave(self) -> None:
        """Its session ends."""
        self._leader.shares.sessions.of_group[self.key.group_id] -= 1
        self._leader.shares.leave(self.key, self.session.close())
