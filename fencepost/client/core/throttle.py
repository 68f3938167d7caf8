"""From which version on a throttled client has to wait by itself, because the broker answers at once (KIP-219).

Before that the broker held the answer back for the time it tells: to wait once more would count it twice.
"""

_SINCE: dict[int, int] = {
    0: 6,  # Produce
    1: 8,  # Fetch
    2: 3,  # ListOffsets
    3: 6,  # Metadata
    8: 4,  # OffsetCommit
    9: 4,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 3,  # JoinGroup
    12: 2,  # Heartbeat
    13: 2,  # LeaveGroup
    14: 2,  # SyncGroup
    15: 2,  # DescribeGroups
    16: 2,  # ListGroups
    18: 2,  # ApiVersions
    19: 3,  # CreateTopics
    20: 2,  # DeleteTopics
    21: 1,  # DeleteRecords
    22: 1,  # InitProducerId
    24: 1,  # AddPartitionsToTxn
    25: 1,  # AddOffsetsToTxn
    26: 1,  # EndTxn
    28: 1,  # TxnOffsetCommit
    29: 1,  # DescribeAcls
    30: 1,  # CreateAcls
    31: 1,  # DeleteAcls
    32: 2,  # DescribeConfigs
    33: 1,  # AlterConfigs
    34: 1,  # AlterReplicaLogDirs
    35: 1,  # DescribeLogDirs
    37: 1,  # CreatePartitions
    42: 1,  # DeleteGroups
}
"""API key -> version; APIs that are younger than KIP-219 (Kafka 2.0) are not in it."""


def pause_ms(api_key: int, version: int, throttle_time_ms: int) -> int:
    """How long nothing may be sent on this connection after an answer that tells `throttle_time_ms`."""
    return max(0, throttle_time_ms) if version >= _SINCE.get(api_key, 0) else 0
