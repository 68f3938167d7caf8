"""TxnOffsetCommit (28): offsets that become visible when the transaction commits.

v3 brings member, generation and instance (KIP-447). From v5 the broker adds the group's partition to the transaction
(KIP-890). v6 names topics by id (KIP-1319).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
    since,
    until,
)


class TxnOffsetCommitRequestPartition(Value):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Value):
    name: String = until(5)
    topic_id: Uuid = since(6)
    partitions: list[TxnOffsetCommitRequestPartition] = []


class TxnOffsetCommitRequest(RequestValue["TxnOffsetCommitResponse"], api=ApiKey.TXN_OFFSET_COMMIT):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Int32 = since(3, default=-1)
    member_id: String = since(3)
    group_instance_id: String | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponsePartition(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Value):
    name: String = until(5)
    topic_id: Uuid = since(6)
    partitions: list[TxnOffsetCommitResponsePartition] = []


class TxnOffsetCommitResponse(ResponseValue, api=ApiKey.TXN_OFFSET_COMMIT):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []
