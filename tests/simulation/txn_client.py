"""A transactional producer as a state machine over raw requests, of the first or the second transaction protocol."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.record_batch import build_batch
from tests.kit.determinism import nap
from tests.kit.history import Place
from tests.kit.sim_clock import START_MS
from tests.kit.wire import add_request
from tests.simulation.lines import Line, Lost

STAMP_MS = START_MS - 7_200_000
"""The records' time: before any hour to which a world sets its clock."""
PATIENCE_SECONDS = 15.0
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
FATAL = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
ABORTABLE = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)


class Fenced(Exception):
    """The identity is not the id's any more: whoever gets this must not write again."""


class Abortable(Exception):
    """The transaction can only be aborted."""


class GaveUp(Exception):
    """No answer, or none that is more than a request to come again, within the patience of the client."""


class TxnClient:
    """One incarnation of a transactional id. Each request is repeated, over new connections, until it is answered."""

    def __init__(
        self,
        line: Line,
        transactional_id: str,
        version: int,
        timeout_ms: int,
        random: Random,
        tell: Callable[[str], None],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.unsure = False
        """Whether a copy of the request answered last may have been carried out, or may be still."""
        self._line = line
        self._timeout_ms = timeout_ms
        self._random = random
        self._tell = tell
        self._patience_seconds = patience_seconds
        self._sequences: dict[Place, int] = {}
        self._joined: set[Place | str] = set()

    @property
    def name(self) -> str:
        """Who this is, in traces."""
        return f"{self._line.client_id} ({self.producer_id}, {self.epoch})"

    @property
    def identity(self) -> dict[str, Any]:
        """Who this is, in requests."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def init(self) -> None:
        """Become the producer of the id. Raises Fenced and GaveUp."""
        request = InitProducerIdRequest(**self.identity, transaction_timeout_ms=self._timeout_ms)
        version = 5 if self.version == 2 else 4
        answer = await self._ask("init", version, request)
        self._become(answer.producer_id, answer.producer_epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()
        self._joined.clear()

    async def send(self, place: Place, values: Sequence[str]) -> None:
        """Write one batch. Raises Fenced, Abortable and GaveUp."""
        if self.version < 2 and place not in self._joined:
            await self._join(place)
        sequence = self._sequences.get(place, 0)
        batch = build_batch(
            [(STAMP_MS, None, value.encode(), ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = PartitionProduceData(index=place[1], records=batch)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=place[0], partition_data=[data])],
        )
        version = 12 if self.version == 2 else 9
        what = f"produce {place[0]}-{place[1]} {'+'.join(values)}"
        await self._ask(what, version, request, _produce_codes)
        self._sequences[place] = sequence + len(values)
        self._joined.add(place)

    async def _join(self, place: Place) -> None:
        request = add_request(self.transactional_id, (self.producer_id, self.epoch), *place)
        await self._ask(f"add {place[0]}-{place[1]}", 3, request, _added_codes)
        self._joined.add(place)

    async def send_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """Commit positions with the transaction. Raises Fenced, Abortable and GaveUp."""
        if self.version < 2 and group_id not in self._joined:
            request = AddOffsetsToTxnRequest(**self.identity, group_id=group_id)
            await self._ask("add offsets", 3, request)
            self._joined.add(group_id)
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)],
            )
            for (topic, partition), offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(**self.identity, group_id=group_id, member_id="", topics=topics)
        version = 5 if self.version == 2 else 3
        told = " ".join(f"{topic}-{partition}@{offset}" for (topic, partition), offset in offsets.items())
        await self._ask(f"offsets {told}", version, request, _offset_codes)

    async def end(self, *, commit: bool, patience_seconds: float | None = None) -> None:
        """Commit or abort, with the client's patience or this one. Raises Fenced, Abortable and GaveUp."""
        request = EndTxnRequest(**self.identity, committed=commit)
        version = 5 if self.version == 2 else 3
        what = "commit" if commit else "abort"
        answer = await self._ask(what, version, request, patience_seconds=patience_seconds)
        self._joined.clear()
        if self.version == 2:
            self._become(answer.producer_id, answer.producer_epoch)

    async def _ask(
        self,
        what: str,
        version: int,
        request: Any,
        codes_in: Callable[[Any], Sequence[int]] = lambda answer: [answer.error_code],
        patience_seconds: float | None = None,
    ) -> Any:
        patience_seconds = self._patience_seconds if patience_seconds is None else patience_seconds
        deadline = trio.current_time() + patience_seconds
        self.unsure = False
        code: ErrorCode | None
        while True:
            try:
                answer = await self._line.ask(version, request)
            except Lost as lost:
                self.unsure |= lost.sent
                code = None
            else:
                code = ErrorCode(next((code for code in codes_in(answer) if code), 0))
                if code not in RETRIABLE:
                    self._tell(f"{self.name}: {what} {code.name if code else 'ok'}")
                    _raise_for(code, what)
                    return answer
            if trio.current_time() > deadline:
                self._tell(f"{self.name}: {what} gives up")
                raise GaveUp("no answer" if code is None else code.name)
            await nap(self._random.uniform(0.01, 0.1))


def _raise_for(code: ErrorCode, what: str) -> None:
    if code in FATAL:
        raise Fenced(code.name)
    if code in ABORTABLE:
        raise Abortable(code.name)
    assert not code, f"nobody expects {code.name} for {what}"


def _produce_codes(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.responses for part in topic.partition_responses]


def _added_codes(answer: Any) -> list[int]:
    return [
        part.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]


def _offset_codes(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]
