"""What pages ask for again and again, kept for some seconds for each connection."""

from typing import Final

import trio

from fencepost.client.admin import ClusterDescription, TopicDescription
from fencepost.console.connections import Connection

TOPICS_SECONDS: Final = 10.0
"""Metadata of many topics costs a broker and its reader milliseconds for each thousand partitions."""


async def topics_of(connection: Connection) -> dict[str, TopicDescription]:
    """All topics that the user may see, by name, at most TOPICS_SECONDS old. Raises KafkaError."""
    kept = connection.cache.get("topics")
    now = trio.current_time()
    if kept is None or kept[0] < now - TOPICS_SECONDS:
        found = await connection.admin.describe_topics()
        kept = connection.cache["topics"] = now, dict(sorted(found.items()))
    topics: dict[str, TopicDescription] = kept[1]
    return topics


async def cluster_of(connection: Connection) -> ClusterDescription:
    """The cluster and its brokers, as they are now. Raises KafkaError."""
    return await connection.admin.describe_cluster()
