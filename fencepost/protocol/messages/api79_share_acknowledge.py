"""ShareAcknowledge (79): acknowledge acquired records (KIP-932).

v2 brings the renewal of locks (KIP-1222).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
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
    since,
)


class AcknowledgementBatch(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []
    delay_ms: Int64 = field(tag=1000)
    """Ours: for how long records of type 2 (release) are held back."""


class AcknowledgePartition(Value):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class AcknowledgeTopic(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[AcknowledgePartition] = []


class ShareAcknowledgeRequest(RequestValue["ShareAcknowledgeResponse"], api=ApiKey.SHARE_ACKNOWLEDGE):
    group_id: String | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    is_renew_ack: Bool = since(2)
    topics: list[AcknowledgeTopic] = []


class LeaderIdAndEpoch(Value):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionData(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    current_leader: LeaderIdAndEpoch = field()


class ShareAcknowledgeTopicResponse(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class NodeEndpoint(Value):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareAcknowledgeResponse(ResponseValue, api=ApiKey.SHARE_ACKNOWLEDGE):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = since(2)
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
