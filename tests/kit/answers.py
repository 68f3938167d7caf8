"""Answers that all fake brokers give: which versions they know, who leads what, and what their logs hold."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.messages.api03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.api18_api_versions import ApiVersion, ApiVersionsResponse

Leader = tuple[int, int]
"""A node, and its epoch as leader."""
OffsetTold = tuple[ErrorCode, int, int]
"""An error, or an offset and the epoch of its leader."""
NO_ID = bytes(16)


def versions_told(ranges: Mapping[int, tuple[int, int]], **more: Any) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    return ApiVersionsResponse(api_keys=keys, **more)


def partitions_told(leaders: Mapping[int, Leader], replicas: Iterable[int]) -> list[MetadataResponsePartition]:
    """A topic's partitions in Metadata, all on the same replicas."""
    nodes = list(replicas)
    return [
        MetadataResponsePartition(
            partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=nodes, isr_nodes=nodes
        )
        for number, (leader, epoch) in leaders.items()
    ]


def metadata_told(
    nodes: Mapping[int, int],
    names: Iterable[str],
    topics: Mapping[str, list[MetadataResponsePartition]],
    topic_id: bytes = NO_ID,
    controller: int = 1,
) -> MetadataResponse:
    """The answer to Metadata of a cluster with these `nodes` (their ports) and `topics`, asked for `names`."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node, port in nodes.items()],
        controller_id=controller,
        topics=[
            MetadataResponseTopic(name=name, topic_id=topic_id, partitions=topics[name])
            if name in topics
            else MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
        ],
    )


def offsets_told(request: Any, offset_at: Callable[[str, int, int], OffsetTold]) -> ListOffsetsResponse:
    """The answer to ListOffsets, of what `offset_at` says to a topic, a partition and a time."""

    def part(topic: Any, entry: Any) -> ListOffsetsPartitionResponse:
        code, offset, epoch = offset_at(topic.name, entry.partition_index, entry.timestamp)
        return ListOffsetsPartitionResponse(
            partition_index=entry.partition_index, error_code=code, offset=offset, timestamp=entry.timestamp,
            leader_epoch=epoch,
        )  # fmt: skip

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=[part(topic, entry) for entry in topic.partitions])
            for topic in request.topics
        ]
    )
