"""Dead letters for a partition that another broker leads (KIP-1191): it is asked by Produce, as by any producer.

Kafka's ShareGroupDLQStateManager asks with the same requests: Produce to the leader, CreateTopics to the controller.
"""

from collections.abc import Awaitable, Callable

from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Place
from fencepost.coordinator.metadata.commands import NewTopic, Outcome
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.topics import TopicPartition

PRODUCE_VERSION, CREATE_TOPICS_VERSION = 11, 5
ACKS_ALL = -1
TIMEOUT_MS = 30_000


class RemoteDeadLetters:
    """The other brokers, to which dead letters are sent. Each request may be executed twice."""

    def __init__(self, place: Place, catch_up: Callable[[], Awaitable[None]]) -> None:
        """`catch_up` reads the newest metadata."""
        self._place = place
        self._catch_up = catch_up

    async def append(self, broker: int, tp: TopicPartition, batch: bytearray) -> Outcome:
        """Return when one batch is durable in the log of its leader, or why it is not.

        NOT_LEADER_OR_FOLLOWER if that broker does not answer: another one may lead the partition soon.
        """
        data = TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(index=tp.partition, records=batch)])
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[data])
        try:
            answer = await self._place.links.ask(broker, request, PRODUCE_VERSION)
            await self._place.note_position()
        except PeerUnavailable as error:
            return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
        [topic] = answer.responses
        [one] = topic.partition_responses
        return Outcome(ErrorCode(one.error_code), one.error_message or f"the answer of broker {broker}")

    async def create(self, topic: NewTopic) -> Outcome:
        """Have the controller create a topic; this broker knows it afterwards."""
        controller = self._place.controller_id
        if controller in (None, self._place.node_id):
            return Outcome(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        try:
            answer = await self._place.links.ask(controller, request, CREATE_TOPICS_VERSION)
        except PeerUnavailable as error:
            return Outcome(ErrorCode.NOT_CONTROLLER, str(error))
        await self._catch_up()
        [one] = answer.topics
        return Outcome(ErrorCode(one.error_code), one.error_message)
