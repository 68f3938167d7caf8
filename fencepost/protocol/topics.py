"""Types that every layer shares: a partition's name, the names of the internal topics, a reader's isolation level."""

from enum import IntEnum
from typing import NamedTuple

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
METADATA_TOPIC = "__cluster_metadata"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class IsolationLevel(IntEnum):
    """The records that a reader receives (KIP-98): all, or only those below the LSO that are not aborted."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
