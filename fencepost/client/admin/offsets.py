"""Offsets of partitions, and the deletion of old records."""

from collections.abc import Iterable, Mapping
from typing import Final

from fencepost.client.admin.requests import AdminRequests, failure, listed
from fencepost.client.admin.types import OffsetInfo
from fencepost.client.core.numbers import whole_number
from fencepost.client.errors import KafkaError
from fencepost.client.group.requests import by_topic
from fencepost.client.keywords import Isolation, OffsetPlace
from fencepost.client.options import isolation_level
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from fencepost.protocol.topics import TopicPartition
from fencepost.protocol.varints import LONG_MIN

_PLACES: Final[Mapping[str, tuple[int, int]]] = {
    "earliest": (-2, 1),
    "latest": (-1, 1),
    "max_timestamp": (-3, 7),
    "earliest_local": (-4, 8),
    "latest_tiered": (-5, 9),
}
"""Name -> the timestamp that stands for it, and the first version of ListOffsets that knows it."""


class OffsetAdmin:
    """The part of the admin client for offsets and records."""

    def __init__(self, rpc: AdminRequests) -> None:
        self._rpc = rpc

    async def list_offsets(
        self,
        partitions: TopicPartition | Iterable[TopicPartition] | Mapping[TopicPartition, OffsetPlace | int],
        *,
        at: OffsetPlace | int = "latest",
        isolation: Isolation = "read_committed",
    ) -> dict[TopicPartition, OffsetInfo]:
        """Offsets of partitions at a place or time (ms since 1970): `at`, or the value of each partition in a mapping.

        Places are "earliest", "latest", "max_timestamp" (Kafka 3.0), "earliest_local" (3.4), "latest_tiered" (3.9). A
        time means the first record with that timestamp or a later one. "latest" is the last stable offset for
        read_committed, the high watermark for read_uncommitted (row I6). Raises ItemsFailedError by partition
        (UNKNOWN_TOPIC_OR_PARTITION, ...).
        """
        places: Mapping[TopicPartition, OffsetPlace | int] = (
            partitions if isinstance(partitions, Mapping) else dict.fromkeys(listed(partitions, TopicPartition), at)
        )
        asked = {TopicPartition(*partition): _timestamp(partition, place) for partition, place in places.items()}
        least = max((version for _, version in asked.values()), default=1)

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, OffsetInfo | KafkaError]:
            topics = by_topic(
                (p.topic, ListOffsetsPartition(partition_index=p.partition, timestamp=asked[p][0])) for p in some
            )
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level(isolation),
                topics=[ListOffsetsTopic(name=name, partitions=entries) for name, entries in topics.items()],
                timeout_ms=self._rpc.timeout_ms,
            )
            response = await self._rpc.ask(node, request, at_least=least)
            return {
                TopicPartition(topic.name, one.partition_index): failure(
                    one, f"listing offsets of {topic.name}-{one.partition_index}", ApiKey.LIST_OFFSETS, node
                )
                or OffsetInfo(one.offset, one.timestamp, one.leader_epoch)
                for topic in response.topics
                for one in topic.partitions
            }

        return await self._rpc.each(asked, self._rpc.leader, ask, "listing offsets")

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition; returns the new log start offsets.

        Offset -1 stands for the high watermark. Raises ItemsFailedError by partition (OFFSET_OUT_OF_RANGE,
        POLICY_VIOLATION if the topic is only compacted, ...).
        """
        asked = {
            (where := TopicPartition(*partition)): whole_number(f"the offset to delete before in {where}", offset, -1)
            for partition, offset in before.items()
        }

        async def ask(node: int | None, some: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
            topics = by_topic(
                (p.topic, DeleteRecordsPartition(partition_index=p.partition, offset=asked[p])) for p in some
            )
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=name, partitions=entries) for name, entries in topics.items()],
                timeout_ms=self._rpc.timeout_ms,
            )
            response = await self._rpc.ask(node, request)
            found: dict[TopicPartition, int | KafkaError] = {}
            for topic in response.topics:
                for one in topic.partitions:
                    what = f"deleting records of {topic.name}-{one.partition_index}"
                    error = failure(one, what, ApiKey.DELETE_RECORDS, node)
                    low: int = one.low_watermark
                    found[TopicPartition(topic.name, one.partition_index)] = low if error is None else error
            return found

        return await self._rpc.each(asked, self._rpc.leader, ask, "deleting records")


def _timestamp(partition: TopicPartition, place: str | int) -> tuple[int, int]:
    if isinstance(place, int):
        return whole_number(f"the timestamp for {partition}", place, LONG_MIN), 1
    if place not in _PLACES:
        raise KafkaError(f"{partition}: {place!r} is neither a timestamp nor one of {sorted(_PLACES)}")
    return _PLACES[place]
