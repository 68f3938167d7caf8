"""What the requests to the share coordinator have in common (KIP-932, APIs 83 to 87)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from fencepost.coordinator.share.values import ShareKey

FoundT = TypeVar("FoundT")


class NamedTopic(Protocol):
    """The partitions of one topic in a request."""

    @property
    def partitions(self) -> Sequence[object]: ...


def names_all(group_id: str, topics: Sequence[NamedTopic], *, no_partitions: bool = False) -> bool:
    """Whether a request names a group, topics, and partitions of each; these may lack with `no_partitions`.

    Otherwise the response is empty, without an error (ShareCoordinatorService).
    """
    return bool(group_id and topics) and (no_partitions or all(topic.partitions for topic in topics))


def by_topic(found: Mapping[ShareKey, FoundT]) -> Iterable[tuple[bytes, list[tuple[int, FoundT]]]]:
    """What was found, as pairs of partition and result, by topic id."""
    topics: dict[bytes, list[tuple[int, FoundT]]] = {}
    for key, result in found.items():
        topics.setdefault(key.topic_id, []).append((key.partition, result))
    return topics.items()
