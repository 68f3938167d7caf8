"""Share partitions as text, GROUP:TOPIC_ID:PARTITION: the keys by which their coordinator is found (KIP-932)."""

import base64
import re

from fencepost.coordinator.share.values import ShareKey

_UUID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT32 = range(-(2**31), 2**31)


def key_text(key: ShareKey) -> str:
    """`SharePartitionKey.asCoordinatorKey`: its hash chooses the partition of `__share_group_state`."""
    topic_id = base64.urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def parse_key(text: str) -> ShareKey:
    """`SharePartitionKey.getInstance`: read from the right, because a group's name may have colons.

    Raises ValueError.
    """
    if not text:
        raise ValueError("Share partition key cannot be empty")
    parts = text.rstrip(":").split(":")  # as Java's split, which drops empty parts at the end
    if len(parts) < 3:
        raise ValueError(f"Invalid key format: expected - groupId:topicId:partition, found - {text}")
    group_id, topic_id, partition = ":".join(parts[:-2]), parts[-2], parts[-1]
    if not group_id.strip():
        raise ValueError("GroupId must not be empty")
    if _NUMBER.fullmatch(partition) is None or int(partition) not in _INT32:
        raise ValueError(f"Invalid partition: {partition}")
    return ShareKey(group_id, _topic_id(topic_id), int(partition))


def _topic_id(text: str) -> bytes:
    """As Kafka's `Uuid.fromString`; raises ValueError."""
    if _UUID.fullmatch(text) is None:
        raise ValueError(f"Invalid topic ID: {text}")
    return base64.urlsafe_b64decode(text[:22] + "==")
