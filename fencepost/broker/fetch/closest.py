"""Fetches of consumers in a cluster whose brokers have racks: each reads from the broker that is closest (KIP-392).

A leader names the broker of the consumer's rack instead of returning records. A broker that does not lead the partition
serves it from the shared stores. As in Kafka it does so for every consumer since v11, whatever its rack.
"""

from collections.abc import Sequence

from fencepost.broker.brokers import Leader, leader
from fencepost.broker.cluster.serving.followed_log import FollowedRows
from fencepost.broker.fetch.reads import Fetch, Read, epoch_error, is_by_follower
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchRequest, FetchTopic, PartitionData
from fencepost.protocol.topics import IsolationLevel, TopicPartition

RACK_SINCE = 11


def may_follow(node: Broker, request: FetchRequest, context: RequestContext) -> bool:
    """Whether a fetch is one of a consumer that may read from other brokers than leaders."""
    if node.place.followed is None or context.api_version < RACK_SINCE:
        return False
    return not is_by_follower(request)


class ClosestFetch(Fetch):
    """A fetch that leads to the closest broker, or is served by it."""

    def __init__(self, node: Broker, request: FetchRequest, context: RequestContext) -> None:
        super().__init__(node, request, context)
        assert node.place.followed is not None
        self.followed = node.place.followed
        self._rack, self._listener = request.rack_id, context.session.listener_name
        self._preferred: dict[TopicPartition, int] = {}
        self._source = self

    def unread(self, topics: Sequence[FetchTopic]) -> set[TopicPartition]:
        """The partitions of other brokers whose logs are not open, or seem to end too early: `prepare` them first."""
        node, found = self._node, set[TopicPartition]()
        for topic in topics:
            name = self._name(topic)
            for ask in topic.partitions if name is not None else ():
                tp = TopicPartition(name or "", ask.partition)
                epoch = ask.current_leader_epoch
                if self.followed.needs_look(tp, ask.fetch_offset, epoch) and node.partition(tp) is None:
                    found.add(tp)
        names = {tp.topic for tp in found}
        denied = denied_topics(node, self._context, AclOperation.READ, names, log_denial=False)
        return {tp for tp in found if tp.topic not in denied}

    def note_changes(self) -> None:
        """As for leaders; but a log that was opened anew takes the place of the old one."""
        for _, _, reads in self.topics:
            for read in reads:
                now = None if read.log is None else self.partition(read.tp)
                if now is not None and now is not read.log:
                    read.log, read.error, read.diverging = now, NO_ERROR, None
                    self._check(read, now)
        super().note_changes()

    def partition(self, tp: TopicPartition) -> PartitionLog | None:
        log = self._node.partition(tp)
        return self.followed.get(tp) if log is None else log

    def _absence(self, read: Read) -> ErrorCode:
        epoch = self.followed.epoch(read.tp)
        wrong = NO_ERROR if epoch is None else epoch_error(read.ask.current_leader_epoch, epoch)
        return wrong or super()._absence(read)

    def _check(self, read: Read, log: PartitionLog) -> None:
        """Choose the broker to read from. A follower may lack what the leader has: OFFSET_NOT_AVAILABLE."""
        ask, offset = read.ask, read.ask.fetch_offset
        self._preferred.pop(read.tp, None)
        if isinstance(log.segments, FollowedRows):
            if offset <= log.high_watermark:
                super()._check(read, log)
            else:
                read.error = epoch_error(ask.current_leader_epoch, log.leader_epoch) or ErrorCode.OFFSET_NOT_AVAILABLE
            return
        super()._check(read, log)
        if not read.error and read.diverging is None and log.log_start_offset <= offset <= log.high_watermark:
            closest = self._node.place.closest(log.topic_id, ask.partition, self._rack, self._listener)
            if closest is not None:
                self._preferred[read.tp] = closest

    def _read_partition(self, read: Read, left: int, at_least_one: bool) -> tuple[PartitionData, int]:
        log, closest = read.log, self._preferred.get(read.tp)
        if closest is None or log is None or read.error:
            return super()._read_partition(read, left, at_least_one)
        self._settled = True  # as in Kafka the consumer need not wait for records
        answer = PartitionData(
            partition_index=read.ask.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self.isolation == IsolationLevel.READ_COMMITTED else None,
            preferred_read_replica=closest,
            records=b"",
        )
        return answer, 0

    def _leader(self, read: Read) -> Leader | None:
        return leader(self._node, self._context, read.tp)
