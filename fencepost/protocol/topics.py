"""What every layer shares: a partition's name, the names of the internal topics, and a reader's isolation level."""

from enum import IntEnum
from typing import NamedTuple

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
METADATA_TOPIC = "__cluster_metadata"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class IsolationLevel(IntEnum):
    """What a reader may see (KIP-98): everything, or only what is decided and committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
