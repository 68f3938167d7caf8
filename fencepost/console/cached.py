"""What pages ask for again and again, kept for some seconds for each connection."""

from typing import Final, NamedTuple

import trio

from fencepost.client.admin import TopicDescription
from fencepost.console.connections import Connection

TOPICS_SECONDS: Final = 10.0
"""Metadata of many topics costs a broker and its reader milliseconds for each thousand partitions."""


class TopicLine(NamedTuple):
    """A topic in a list, with the numbers of its partitions."""

    name: str
    internal: bool
    partitions: int
    replicas: int
    """Of its first partition."""
    leaderless: int
    under_replicated: int


def _line(topic: TopicDescription) -> TopicLine:
    parts = topic.partitions
    return TopicLine(
        topic.name,
        topic.internal or topic.name.startswith("__"),
        len(parts),
        len(parts[0].replicas) if parts else 0,
        sum(part.leader < 0 for part in parts),
        sum(len(part.isr) < len(part.replicas) for part in parts),
    )


async def topics_of(connection: Connection) -> list[TopicLine]:
    """All topics that the user may see, in order, at most TOPICS_SECONDS old. Raises KafkaError."""
    kept = connection.cache.get("topics")
    now = trio.current_time()
    if kept is None or kept[0] < now - TOPICS_SECONDS:
        found = await connection.admin.describe_topics()
        kept = connection.cache["topics"] = now, sorted(map(_line, found.values()))
    topics: list[TopicLine] = kept[1]
    return topics
