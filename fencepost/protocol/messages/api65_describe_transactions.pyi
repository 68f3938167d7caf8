"""Written by tests/architecture/message_stubs.py from the declarations in api65_describe_transactions.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DescribeTransactionsRequest(RequestValue[DescribeTransactionsResponse]):
    transactional_ids: list[str]
    explain: bool
    def __init__(self, *, transactional_ids: list[str] = ..., explain: bool = ...) -> None: ...

class TopicData(Value):
    topic: str
    partitions: list[int]
    def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...

class HistoryEvent(Value):
    time_ms: int
    last_time_ms: int
    times: int
    reason: str
    error_code: int
    client_id: str
    client_host: str
    text: str
    def __init__(
        self,
        *,
        time_ms: int = ...,
        last_time_ms: int = ...,
        times: int = ...,
        reason: str = ...,
        error_code: int = ...,
        client_id: str = ...,
        client_host: str = ...,
        text: str = ...,
    ) -> None: ...

class TransactionHistory(Value):
    owner_client_id: str
    owner_host: str
    writer_client_id: str
    writer_host: str
    lines: list[HistoryEvent]
    def __init__(
        self,
        *,
        owner_client_id: str = ...,
        owner_host: str = ...,
        writer_client_id: str = ...,
        writer_host: str = ...,
        lines: list[HistoryEvent] = ...,
    ) -> None: ...

class TransactionState(Value):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: list[TopicData]
    history: TransactionHistory | None
    def __init__(
        self,
        *,
        error_code: int = ...,
        transactional_id: str = ...,
        transaction_state: str = ...,
        transaction_timeout_ms: int = ...,
        transaction_start_time_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        topics: list[TopicData] = ...,
        history: TransactionHistory | None = ...,
    ) -> None: ...

class DescribeTransactionsResponse(ResponseValue):
    throttle_time_ms: int
    transaction_states: list[TransactionState]
    def __init__(self, *, throttle_time_ms: int = ..., transaction_states: list[TransactionState] = ...) -> None: ...
