"""WriteTxnMarkers (27): control batches that end transactions on partitions.

v2 has the marker's transaction version (KIP-1228). Tag 1000 of a marker is fencepost's
(docs/decisions/0016-tagged-fields.md); Kafka skips it.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int8, Int16, Int32, Int64, RequestValue, ResponseValue, String, Value, since


class WritableTxnMarkerTopic(Value):
    name: String = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Value):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = since(2)
    only_hanging: Bool = since(1, tag=1000)


class WriteTxnMarkersRequest(RequestValue["WriteTxnMarkersResponse"], api=ApiKey.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Value):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Value):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(ResponseValue, api=ApiKey.WRITE_TXN_MARKERS):
    markers: list[WritableTxnMarkerResult] = []
