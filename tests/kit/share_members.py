"""Members of share groups over the wire: ShareFetch and ShareAcknowledge with a session, without a client's help."""

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages import api78_share_fetch as fetching
from fencepost.protocol.messages import api79_share_acknowledge as acknowledging
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.api76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from fencepost.protocol.messages.api83_initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
)
from fencepost.protocol.messages.api83_initialize_share_group_state import PartitionData as InitialPartition
from tests.kit.wire import Wire

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Ack(NamedTuple):
    """One type for the offsets from first to last."""

    partition: int
    first: int
    last: int
    kind: int
    delay_ms: int = 0


def topic_id_of(wire: Wire, name: str) -> bytes:
    [topic] = wire.call(ApiKey.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
    found: bytes = topic.topic_id
    return found


def initialize(
    wire: Wire, group: str, topic_id: bytes, partitions: Sequence[int], start_offset: int = 0, *, epoch: int = 1
) -> None:
    """Begin share partitions, as a group coordinator does when the first member subscribes; again at a higher epoch."""
    data = InitializeStateData(
        topic_id=topic_id,
        partitions=[
            InitialPartition(partition=one, state_epoch=epoch, start_offset=start_offset) for one in partitions
        ],
    )
    request = InitializeShareGroupStateRequest(group_id=group, topics=[data])
    response = wire.call(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, request)
    assert [part.error_code for topic in response.results for part in topic.partitions] == [0] * len(partitions)


def beat(wire: Wire, group: str, member: str, epoch: int, *topics: str) -> ShareGroupHeartbeatResponse:
    """A heartbeat of a member; one that joins (epoch 0) subscribes to the topics."""
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=None if epoch else list(topics)
    )
    response: ShareGroupHeartbeatResponse = wire.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)
    assert not response.error_code, response
    return response


def begin_queue(wire: Wire, group: str, topic: str, member: str = "one") -> None:
    """A group with one member that begins at the first record of a topic, which it may not have read yet."""
    change = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=ConfigResourceType.GROUP, resource_name=group, configs=[change])
    answer = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert [one.error_code for one in answer.responses] == [0]
    beat(wire, group, member, 0, topic)


class ShareMember:
    """One member, with its session on one connection."""

    def __init__(self, wire: Wire, group: str, member: str, topic_id: bytes, partitions: Sequence[int] = (0,)) -> None:
        self.wire, self.group, self.member, self.topic_id = wire, group, member, topic_id
        self.partitions = list(partitions)
        self.epoch = 0
        self.answer: fetching.ShareFetchResponse | None = None

    def fetch(self, *acks: Ack, **options: int) -> fetching.ShareFetchResponse:
        """Fetch; `options` are those of `fetch_request`."""
        answer: fetching.ShareFetchResponse = self.wire.call(
            ApiKey.SHARE_FETCH,
            2,
            self.fetch_request(*acks, **options),  # type: ignore[arg-type]
        )
        if not answer.error_code:
            self.epoch += 1
        return answer

    def fetch_request(
        self,
        *acks: Ack,
        max_records: int = 100,
        wait_ms: int = 3_000,
        max_bytes: int = 1 << 20,
        mode: int = 1,
        renew: bool = False,
        final: bool = False,
    ) -> fetching.ShareFetchRequest:
        named = self.partitions if self.epoch == 0 else sorted({ack.partition for ack in acks})
        parts = [
            fetching.FetchPartition(
                partition_index=part,
                acknowledgement_batches=[
                    fetching.AcknowledgementBatch(
                        first_offset=a.first, last_offset=a.last, acknowledge_types=[a.kind], delay_ms=a.delay_ms
                    )
                    for a in acks
                    if a.partition == part
                ],
            )
            for part in named
        ]
        return fetching.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=-1 if final else self.epoch,
            max_wait_ms=0 if renew else wait_ms,
            min_bytes=0 if renew else 1,
            max_bytes=0 if renew else max_bytes,
            max_records=0 if renew else max_records,
            batch_size=1,
            share_acquire_mode=mode,
            is_renew_ack=renew,
            topics=[fetching.FetchTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
        )

    def acquire(self, *acks: Ack, **options: int) -> list[tuple[int, int]]:
        """Fetch, and the (offset, delivery count) of each acquired record; the answer has no errors."""
        return self.taken(self.fetch(*acks, **options))

    @staticmethod
    def taken(answer: fetching.ShareFetchResponse) -> list[tuple[int, int]]:
        """The (offset, delivery count) of each acquired record of an answer, which has no errors."""
        assert not answer.error_code
        found = []
        for topic in answer.responses:
            for part in topic.partitions:
                assert (part.error_code, part.acknowledge_error_code) == (0, 0), part
                found += [
                    (offset, one.delivery_count)
                    for one in part.acquired_records
                    for offset in range(one.first_offset, one.last_offset + 1)
                ]
        return found

    def acknowledge(self, *acks: Ack, renew: bool = False, final: bool = False) -> list[int]:
        """The error code for each partition, in their order."""
        request = self.acknowledge_request(*acks, renew=renew, final=final)
        answer = self.wire.call(ApiKey.SHARE_ACKNOWLEDGE, 2, request)
        assert not answer.error_code, answer
        self.epoch += 1
        found = [part for topic in answer.responses for part in topic.partitions]
        return [part.error_code for part in sorted(found, key=lambda one: one.partition_index)]

    def acknowledge_request(
        self, *acks: Ack, renew: bool = False, final: bool = False
    ) -> acknowledging.ShareAcknowledgeRequest:
        parts = [
            acknowledging.AcknowledgePartition(
                partition_index=part,
                acknowledgement_batches=[
                    acknowledging.AcknowledgementBatch(
                        first_offset=ack.first,
                        last_offset=ack.last,
                        acknowledge_types=[ack.kind],
                        delay_ms=ack.delay_ms,
                    )
                    for ack in acks
                    if ack.partition == part
                ],
            )
            for part in sorted({ack.partition for ack in acks})
        ]
        return acknowledging.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=-1 if final else self.epoch,
            is_renew_ack=renew,
            topics=[acknowledging.AcknowledgeTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
        )


def configure_group(wire: Wire, group: str, **configs: str) -> None:
    """Set configurations of a group, by Kafka's names with underscores for dots."""
    entries = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value) for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=ConfigResourceType.GROUP, resource_name=group, configs=entries)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    [answer] = wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert not answer.error_code, answer


def knows_group(wire: Wire, group: str, **configs: str) -> bool:
    """Whether a broker has read these configurations of a group: in a cluster it follows the controller."""
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.GROUP, resource_name=group, configuration_keys=None
    )
    [answer] = wire.call(ApiKey.DESCRIBE_CONFIGS, 1, DescribeConfigsRequest(resources=[resource])).results
    known = {one.name: one.value for one in answer.configs}
    return all(known.get(name.replace("_", ".")) == value for name, value in configs.items())
