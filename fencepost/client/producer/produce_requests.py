"""The Produce request for some batches, and its response for each partition."""

from collections.abc import Iterable, Mapping

from fencepost.client.core.partitions import TopicInfo
from fencepost.protocol.messages.api00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fencepost.protocol.topics import TopicPartition

ACKS_ALL = -1
BY_TOPIC_ID = 13
"""From this version on the request names topics by id only (KIP-516)."""


def produce_request(
    version: int,
    batches: Iterable[tuple[TopicPartition, bytearray]],
    topics: Mapping[str, TopicInfo],
    transactional_id: str | None,
    timeout_ms: int,
) -> ProduceRequest | None:
    """The request, or None if it needs the id of a topic and that is unknown."""
    entries: dict[str, TopicProduceData] = {}
    for (name, partition), data in batches:
        entry = entries.get(name)
        if entry is None:
            info = topics.get(name)
            if version >= BY_TOPIC_ID and (info is None or not any(info.topic_id)):
                return None
            topic_id = info.topic_id if info is not None else bytes(16)
            entry = entries[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        entry.partition_data.append(PartitionProduceData(index=partition, records=data))
    return ProduceRequest(
        transactional_id=transactional_id, acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=list(entries.values())
    )


def by_partition(request: ProduceRequest, response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    """The response of each partition.

    Topic ids are those of the request: the client may have forgotten the topic since, or it was created again.
    """
    names = {entry.topic_id: entry.name for entry in request.topic_data}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }
