"""A broker of a test's making with one share partition, which a queue works on."""

from typing import Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api76_share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from fencepost.protocol.messages.api78_share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from fencepost.protocol.messages.api79_share_acknowledge import LeaderIdAndEpoch as LeaderOf79
from fencepost.protocol.messages.api79_share_acknowledge import PartitionData as AcknowledgedPartition
from fencepost.protocol.messages.api79_share_acknowledge import ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from tests.kit.scripted_broker import ScriptedBroker

LOCK_S = 10.0
NONE = ErrorCode.NONE


class ShareBroker(ScriptedBroker):
    """One partition of `count` records, each of which it gives once."""

    def __init__(self, count: int = 1, *, delays: bool = False) -> None:
        super().__init__()
        self.count = count
        self.delays = delays
        """Whether it holds released records back, as fencepost's."""
        self.given = 0
        self.refused: list[Any] = []
        """Responses for the next fetches that carry acknowledgements."""

    def on_ShareGroupHeartbeat(self, request: Any, version: int) -> Any:
        topics = [TopicPartitions(topic_id=self.topic_id, partitions=[0])]
        assignment = Assignment(topic_partitions=topics)
        return ShareGroupHeartbeatResponse(member_epoch=1, heartbeat_interval_ms=1000, assignment=assignment)

    async def on_ShareFetch(self, request: Any, version: int) -> Any:
        """Up to `max_records`; it waits if there are none."""
        carries = any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions)
        if carries and self.refused:
            return self.refused.pop(0)
        first, last = self.given, min(self.given + request.max_records, self.count) - 1
        if last < first:
            await trio.sleep(request.max_wait_ms / 1000)
            return self.fetched(**self.acknowledged_in(request))
        self.given = last + 1
        records = build_batch([Record(offset, 0, None, b"%d" % offset) for offset in range(self.count)])
        acquired = [AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)]
        return self.fetched(records=bytes(records), acquired_records=acquired)

    def on_ShareAcknowledge(self, request: Any, version: int) -> Any:
        return self.acknowledged(NONE)

    def acknowledged_in(self, request: Any) -> dict[str, Any]:
        return {"error_code": 0} if request.topics else {}

    def fetched(self, **part: Any) -> ShareFetchResponse:
        """A response with one partition; without `part`, with none."""
        data = PartitionData(partition_index=0, current_leader=LeaderIdAndEpoch(), **part)
        topic = ShareFetchableTopicResponse(topic_id=self.topic_id, partitions=[data])
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=int(LOCK_S * 1000), responses=[topic] if part else [], delays=self.delays
        )

    def acknowledged(self, code: ErrorCode) -> ShareAcknowledgeResponse:
        part = AcknowledgedPartition(partition_index=0, error_code=code, current_leader=LeaderOf79())
        topic = ShareAcknowledgeTopicResponse(topic_id=self.topic_id, partitions=[part])
        return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=int(LOCK_S * 1000), responses=[topic])

    def epochs(self) -> list[tuple[str, int]]:
        """The requests of the session, with their epochs."""
        shown = {"ShareFetch": "fetch", "ShareAcknowledge": "acknowledge"}
        return [(shown[name], one.share_session_epoch) for name, _, one in self.requests if name in shown]

    def acknowledgements(self) -> list[tuple[int, int, list[int]]]:
        """All that came, in order."""
        return [
            (batch.first_offset, batch.last_offset, list(batch.acknowledge_types))
            for name, _, request in self.requests
            if name in ("ShareFetch", "ShareAcknowledge")
            for topic in request.topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
        ]
