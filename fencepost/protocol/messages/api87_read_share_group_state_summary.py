"""ReadShareGroupStateSummary (87): a group coordinator reads the start offsets of share partitions (KIP-932).

v1 brings the number of records delivered (KIP-1226). Tag 1000 is fencepost's (docs/decisions/0016-tagged-fields.md).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
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


class PartitionData(Value):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class ReadShareGroupStateSummaryRequest(
    RequestValue["ReadShareGroupStateSummaryResponse"], api=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = []
    replaced: Bool = field(tag=1000)


class PartitionResult(Value):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(1, default=-1)


class ReadStateSummaryResult(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionResult] = []


class ReadShareGroupStateSummaryResponse(ResponseValue, api=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY):
    results: list[ReadStateSummaryResult] = []
