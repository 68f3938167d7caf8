"""What a group's coordinator asks the leaders of partitions (Kafka's PartitionMetadataClient; states of records)."""

from typing import Any

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.peers.remote_ends import LATEST, high_watermarks, record_states
from fencepost.broker.place import Alone, LeaderAndEpoch
from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.messages.api90_describe_share_group_offsets import (
    DescribedGroup,
    DescribedPartition,
    DescribedTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RecordStates,
)
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition


class Three(Alone):
    """Broker 1, this one, leads partition 0 of each topic, and brokers 2 and 3 those of their numbers."""

    def __init__(self) -> None:
        super().__init__(load_config(assignments=["storage=memory", "listeners=PLAINTEXT://127.0.0.1:0"]))
        self.links = self
        self.asked: list[tuple[int, list[tuple[str, int, int]]]] = []
        self.silent: set[int] = set()
        self.error = ErrorCode.NONE

    def leader(self, topic_id: bytes, partition: int) -> LeaderAndEpoch:
        return LeaderAndEpoch(partition or self.node_id, 1)

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        if broker in self.silent:
            raise PeerUnavailable("it does not answer")
        api = API_BY_KEY[request.api_key]
        asked = api.request.decode(api.request.encode(request, version), version)
        if isinstance(asked, DescribeShareGroupOffsetsRequest):
            return self._described(broker, asked)
        parts = [(topic.name, one.partition_index, one.timestamp) for topic in asked.topics for one in topic.partitions]
        self.asked.append((broker, parts))
        answers = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index, error_code=self.error, offset=100 * one.partition_index
                    )
                    for one in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
        return ListOffsetsResponse(topics=answers)

    def _described(self, broker: int, asked: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
        assert (asked.explain, asked.of_leader) == (True, True)
        (group,) = asked.groups
        topics = [
            DescribedTopic(
                topic_name=topic.topic_name,
                partitions=[
                    DescribedPartition(
                        partition_index=number,
                        states=None if self.error else RecordStates(start_offset=broker, complete=True),
                    )
                    for number in topic.partitions
                ],
            )
            for topic in group.topics or []
        ]
        return DescribeShareGroupOffsetsResponse(groups=[DescribedGroup(group_id=group.group_id, topics=topics)])


def image(*names: str) -> MetadataImage:
    topics = [TopicImage(name, name.encode().ljust(16), (PartitionImage((1,), (1,)),) * 4) for name in names]
    return MetadataImage(topics_by_name={topic.name: topic for topic in topics})


ALL = [TopicPartition(name, number) for name in ("a", "b") for number in range(4)]


async def test_each_leader_is_asked_once_for_its_partitions() -> None:
    place = Three()
    found = await high_watermarks(place, image("a", "b"), ALL)
    assert found == {TopicPartition(name, number): 100 * number for name in ("a", "b") for number in (2, 3)}
    assert sorted(place.asked) == [(broker, [("a", broker, LATEST), ("b", broker, LATEST)]) for broker in (2, 3)]


async def test_a_leader_that_does_not_answer_or_leads_no_more_holds_up_none_of_the_others() -> None:
    place = Three()
    place.silent = {2}
    assert await high_watermarks(place, image("a"), ALL) == {TopicPartition("a", 3): 300}
    place.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await high_watermarks(place, image("a"), ALL) == {}


async def test_the_states_of_records_come_from_the_leaders() -> None:
    """Decision 16: they are in the leader's memory, and a share group's coordinator is often another broker."""
    place = Three()
    found = await record_states(place, image("a", "b"), "workers", ALL)
    expected = {TopicPartition(name, number): number for name in ("a", "b") for number in (2, 3)}
    assert {partition: states.start_offset for partition, states in found.items()} == expected
    place.silent = {2}
    assert list(await record_states(place, image("a"), "workers", ALL)) == [TopicPartition("a", 3)]
    place.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await record_states(place, image("a"), "workers", ALL) == {}
