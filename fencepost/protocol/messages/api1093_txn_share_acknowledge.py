"""TxnShareAcknowledge (1093): acknowledgements that count when the transaction commits. Of no Kafka.

v0 may still change. Its fields are those of KIP-1289's draft, without the member's epoch: only a member that holds the
records can acknowledge them.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
    field,
)


class AcknowledgementBatch(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []
    """One for all offsets, or one for each: 0 a gap, 1 accept, 3 reject."""


class TxnShareAcknowledgePartition(Value):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class TxnShareAcknowledgeTopic(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[TxnShareAcknowledgePartition] = []


class UpdatedBatch(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class UpdatedPartition(Value):
    partition_index: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    batches: list[UpdatedBatch] = []


class UpdatedTopic(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[UpdatedPartition] = []


class TxnShareAcknowledgeRequest(RequestValue["TxnShareAcknowledgeResponse"], api=ApiKey.TXN_SHARE_ACKNOWLEDGE):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    member_id: String = ""
    topics: list[TxnShareAcknowledgeTopic] = []
    updates: list[UpdatedTopic] = field(tag=1000)
    """In place of `topics`, from the leader of the partitions to the broker that keeps their states."""


class TxnShareAcknowledgePartitionResponse(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class TxnShareAcknowledgeTopicResponse(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[TxnShareAcknowledgePartitionResponse] = []


class TxnShareAcknowledgeResponse(ResponseValue, api=ApiKey.TXN_SHARE_ACKNOWLEDGE):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[TxnShareAcknowledgeTopicResponse] = []
