"""WriteTxnMarkers (27): control batches that end transactions on partitions.

v2 has the marker's transaction version (KIP-1228). Tag 1000 of a marker is fencepost's
(docs/decisions/0016-tagged-fields.md); Kafka skips it.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Int8, Int16, Int32, Int64, Request, Response, Since, String, Struct

WritableTxnMarkerTopic = Struct(
    "WritableTxnMarkerTopic",
    "name" / String,
    "partition_indexes" / Array(Int32),
)

WritableTxnMarker = Struct(
    "WritableTxnMarker",
    "producer_id" / Int64,
    "producer_epoch" / Int16,
    "transaction_result" / Bool,
    "topics" / Array(WritableTxnMarkerTopic),
    "coordinator_epoch" / Int32,
    "transaction_version" / Since(2, Int8),
    "only_hanging" / Since(1, Bool, tag=1000),
)

WriteTxnMarkersRequest = Request(
    ApiKey.WRITE_TXN_MARKERS,
    "markers" / Array(WritableTxnMarker),
)

WritableTxnMarkerPartitionResult = Struct(
    "WritableTxnMarkerPartitionResult",
    "partition_index" / Int32,
    "error_code" / Int16,
)

WritableTxnMarkerTopicResult = Struct(
    "WritableTxnMarkerTopicResult",
    "name" / String,
    "partitions" / Array(WritableTxnMarkerPartitionResult),
)

WritableTxnMarkerResult = Struct(
    "WritableTxnMarkerResult",
    "producer_id" / Int64,
    "topics" / Array(WritableTxnMarkerTopicResult),
)

WriteTxnMarkersResponse = Response(
    ApiKey.WRITE_TXN_MARKERS,
    "markers" / Array(WritableTxnMarkerResult),
)
