"""DescribeTransactions (65): the coordinator's state of transactional ids (KIP-664).

Tag 1000 of the request and of each state is fencepost's (docs/decisions/0016-tagged-fields.md); Kafka skips it.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, Int64, RequestValue, ResponseValue, String, Value, field


class DescribeTransactionsRequest(RequestValue["DescribeTransactionsResponse"], api=ApiKey.DESCRIBE_TRANSACTIONS):
    transactional_ids: list[String] = []
    explain: Bool = field(tag=1000)


class TopicData(Value):
    topic: String = ""
    partitions: list[Int32] = []


class HistoryEvent(Value):
    time_ms: Int64 = 0
    last_time_ms: Int64 = 0
    times: Int32 = 0
    reason: String = ""
    error_code: Int16 = 0
    client_id: String = ""
    client_host: String = ""
    text: String = ""


class TransactionHistory(Value):
    owner_client_id: String = ""
    owner_host: String = ""
    writer_client_id: String = ""
    writer_host: String = ""
    lines: list[HistoryEvent] = []


class TransactionState(Value):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []
    history: TransactionHistory | None = field(tag=1000)


class DescribeTransactionsResponse(ResponseValue, api=ApiKey.DESCRIBE_TRANSACTIONS):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
