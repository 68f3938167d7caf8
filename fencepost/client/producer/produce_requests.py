"""Produce: the request that holds some batches, and what its answer says of each."""

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
"""From this version on topics are told by id only (KIP-516)."""


def produce_request(
    version: int,
    batches: Iterable[tuple[TopicPartition, bytearray]],
    topics: Mapping[str, TopicInfo],
    transactional_id: str | None,
    timeout_ms: int,
) -> ProduceRequest | None:
    """The request, or None where it has to name a topic by its id and that is not known."""
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


def told_of(request: ProduceRequest, answer: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
    """What an answer says of each partition.

    Ids mean what they meant when the request was made: its topic may have been forgotten since, or made anew.
    """
    names = {entry.topic_id: entry.name for entry in request.topic_data}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.index): partition
        for topic in answer.responses
        for partition in topic.partition_responses
    }
