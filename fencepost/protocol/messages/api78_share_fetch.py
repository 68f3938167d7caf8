"""ShareFetch (78): acquire records for a member of a share group, and acknowledge others on the way (KIP-932).

v2 brings the acquire mode (KIP-1206) and the renewal of locks (KIP-1222).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
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


class FetchPartition(Value):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class FetchTopic(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[FetchPartition] = []


class ForgottenTopic(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []


class ShareFetchRequest(RequestValue["ShareFetchResponse"], api=ApiKey.SHARE_FETCH):
    group_id: String | None = None
    member_id: String | None = ""
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Int8 = since(2)
    is_renew_ack: Bool = since(2)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []
    delays: Bool = field(tag=1000)
    """Ours: whether the response is to say that the broker knows `delay_ms`."""


class LeaderIdAndEpoch(Value):
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class AcquiredRecords(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class PartitionData(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: String | None = None
    current_leader: LeaderIdAndEpoch = field()
    records: Records = field(default=None)
    acquired_records: list[AcquiredRecords] = []
    keeps_times: Bool = field(tag=1000)
    """Ours, if the request asked for `delays`: no record comes before the time in its header."""


class ShareFetchableTopicResponse(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class NodeEndpoint(Value):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ShareFetchResponse(ResponseValue, api=ApiKey.SHARE_FETCH):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []
    delays: Bool = field(tag=1000)
