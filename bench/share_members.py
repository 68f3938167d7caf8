"""Members of share groups (KIP-932) over bare sockets, one for each: they do what Java's consumer does.

In batches, each fetch accepts what the last one brought; one by one, a member fetches a single record
(`share.acquire.mode=record_limit`, `max.poll.records=1`) and accepts it by a request of its own (`commitSync`).
Requests are encoded once, so that the load takes little of the machine.
"""

import struct
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.raw import RawConnection, decoded, framed
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api78_share_fetch as api78
from fencepost.protocol.messages import api79_share_acknowledge as api79
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest, TopicPartitions
from fencepost.protocol.registry import API_BY_KEY

Offsets = tuple[int, int]
"""The first and the last."""

VERSION = {
    ApiKey.FIND_COORDINATOR: 4,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.SHARE_GROUP_HEARTBEAT: 1,
    ApiKey.SHARE_FETCH: 2,
    ApiKey.SHARE_ACKNOWLEDGE: 2,
}
NOT_YET = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
JOINING, LEAVING = 0, -1
"""Epochs of a member that say so."""
BEGINNING, ENDING = 0, -1
"""Epochs of a session that say so."""
ACCEPT = 1
RECORD_LIMIT = 1
POLL_RECORDS = 500
"""`max.poll.records` by default."""
WAIT_MS, MAX_BYTES = 500, 50 << 20

_EPOCH, _RANGE = struct.Struct(">i"), struct.Struct(">qq")
_EPOCH_MARK, _RANGE_MARK = 0x5EA5_0E0C, (0x5EA5_0001_0000_0001, 0x5EA5_0002_0000_0002)


class Poll(NamedTuple):
    """How a member asks."""

    records_max: int
    batch_size: int
    mode: int = 0
    accepts_apart: bool = False
    """By a ShareAcknowledge, and not on the way with the next fetch."""


ONE_BY_ONE = Poll(1, 1, RECORD_LIMIT, accepts_apart=True)
IN_BATCHES = Poll(POLL_RECORDS, POLL_RECORDS)


class Prepared:
    """A request encoded once; the epoch of the session and a range of offsets are written into its bytes."""

    def __init__(self, api_key: ApiKey, request: Any) -> None:
        self._frame = bytearray(framed(API_BY_KEY[api_key], VERSION[api_key], request))
        self._epoch_at = self._frame.find(_EPOCH.pack(_EPOCH_MARK))
        self._range_at = self._frame.find(_RANGE.pack(*_RANGE_MARK))

    def with_epoch(self, epoch: int, accepted: Offsets = (0, 0)) -> bytes:
        _EPOCH.pack_into(self._frame, self._epoch_at, epoch)
        if self._range_at >= 0:
            _RANGE.pack_into(self._frame, self._range_at, *accepted)
        return bytes(self._frame)


class ShareMember(RawConnection):
    """One member and its connection; one request at a time is under way."""

    def __init__(self, address: str, group_id: str, poll: Poll) -> None:
        super().__init__(address)
        self._group_id, self._poll = group_id, poll
        self._member_id = str(uuid.uuid4())
        self._parts: list[TopicPartitions] = []
        self._member_epoch = JOINING
        self._epoch = BEGINNING
        self._accepting = 0
        self.held: list[Offsets] = []
        """What the last fetch brought, of one partition, neighbours as one; the next poll accepts it."""
        self.acquired = 0

    def ask(self, api_key: ApiKey, request: Any) -> Any:
        """One request and its decoded answer."""
        self._send(api_key, request)
        return decoded(API_BY_KEY[api_key], VERSION[api_key], self.receive())

    def join(self, topic: str) -> bool:
        """Beat once; whether the topic's partitions are assigned to it. Ask again until they are."""
        answer = self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, self._beat(self._member_epoch, [topic]))
        if answer.error_code in NOT_YET:
            self.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[self._group_id]))
        elif answer.error_code:
            raise RuntimeError(f"a heartbeat was answered with error {answer.error_code}")
        else:
            self._member_epoch = answer.member_epoch
        if not answer.error_code and answer.assignment and answer.assignment.topic_partitions:
            self._parts = list(answer.assignment.topic_partitions)
            self._fetch = Prepared(ApiKey.SHARE_FETCH, self._fetching(_EPOCH_MARK))
            self._fetch_accepting = Prepared(ApiKey.SHARE_FETCH, self._fetching(_EPOCH_MARK, [_RANGE_MARK]))
            self._accept = Prepared(ApiKey.SHARE_ACKNOWLEDGE, self._acknowledging(_EPOCH_MARK, [_RANGE_MARK]))
        return bool(self._parts)

    def leave(self) -> None:
        """End the session, which releases what is held, and leave the group."""
        self.ask(ApiKey.SHARE_ACKNOWLEDGE, self._acknowledging(ENDING, []))
        self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, self._beat(LEAVING, None))
        self.close()

    def poll(self) -> None:
        """Send what comes next: an acknowledgement of what is held, a fetch, or both in one."""
        if self._epoch == BEGINNING:
            self._send(ApiKey.SHARE_FETCH, self._fetching(BEGINNING))
        elif not self.held:
            self.send(self._fetch.with_epoch(self._epoch))
        else:
            prepared = self._accept if self._poll.accepts_apart else self._fetch_accepting
            if len(self.held) == 1:
                self.send(prepared.with_epoch(self._epoch, self.held[0]))
            elif self._poll.accepts_apart:
                self._send(ApiKey.SHARE_ACKNOWLEDGE, self._acknowledging(self._epoch, self.held))
            else:
                self._send(ApiKey.SHARE_FETCH, self._fetching(self._epoch, self.held))
        self._accepting = sum(last - first + 1 for first, last in self.held)
        self._epoch += 1

    def take(self) -> int:
        """Receive the answer; how many records are accepted by it. Raises RuntimeError if something was refused."""
        accepted, self._accepting = self._accepting, 0
        api_key = ApiKey.SHARE_ACKNOWLEDGE if accepted and self._poll.accepts_apart else ApiKey.SHARE_FETCH
        answer = decoded(API_BY_KEY[api_key], VERSION[api_key], self.receive())
        self.held = []
        codes = {answer.error_code}
        for topic in answer.responses:
            for part in topic.partitions:
                codes.add(part.error_code)
                if api_key == ApiKey.SHARE_FETCH:
                    codes.add(part.acknowledge_error_code)
                    self._note(part.acquired_records)
        if codes != {0}:
            raise RuntimeError(f"{api_key.name} was answered with errors {codes - {0}}")
        return accepted

    def _note(self, acquired: Sequence[Any]) -> None:
        for one in acquired:
            first, last = one.first_offset, one.last_offset
            self.acquired += last - first + 1
            if self.held and self.held[-1][1] == first - 1:
                first = self.held.pop()[0]
            self.held.append((first, last))

    def _send(self, api_key: ApiKey, request: Any) -> None:
        self.send(framed(API_BY_KEY[api_key], VERSION[api_key], request))

    def _beat(self, epoch: int, topics: list[str] | None) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self._member_id, member_epoch=epoch, subscribed_topic_names=topics
        )

    def _fetching(self, epoch: int, accepted: Sequence[Offsets] = ()) -> api78.ShareFetchRequest:
        """All partitions in the first request of a session, later on those of which something is accepted."""
        return api78.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=self._poll.records_max,
            batch_size=self._poll.batch_size,
            share_acquire_mode=self._poll.mode,
            topics=(
                self._asked(api78.FetchTopic, api78.FetchPartition, api78.AcknowledgementBatch, accepted)
                if accepted or epoch == BEGINNING
                else []
            ),
        )

    def _acknowledging(self, epoch: int, accepted: Sequence[Offsets]) -> api79.ShareAcknowledgeRequest:
        return api79.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=epoch,
            topics=(
                self._asked(api79.AcknowledgeTopic, api79.AcknowledgePartition, api79.AcknowledgementBatch, accepted)
                if accepted
                else []
            ),
        )

    def _asked(self, topic: Any, partition: Any, batch: Any, accepted: Sequence[Offsets]) -> list[Any]:
        """All partitions, with the same acknowledgements each; both requests have the same form."""
        batches = [batch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]) for first, last in accepted]
        return [
            topic(
                topic_id=one.topic_id,
                partitions=[
                    partition(partition_index=number, acknowledgement_batches=batches) for number in one.partitions
                ],
            )
            for one in self._parts
        ]
