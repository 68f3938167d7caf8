"""Written by tests/architecture/message_stubs.py from the declarations in api66_list_transactions.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ListTransactionsRequest(RequestValue[ListTransactionsResponse]):
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    def __init__(
        self,
        *,
        state_filters: list[str] = ...,
        producer_id_filters: list[int] = ...,
        duration_filter: int = ...,
        transactional_id_pattern: str | None = ...,
    ) -> None: ...

class TransactionState(Value):
    transactional_id: str
    producer_id: int
    transaction_state: str
    def __init__(
        self, *, transactional_id: str = ..., producer_id: int = ..., transaction_state: str = ...
    ) -> None: ...

class ListTransactionsResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[TransactionState]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: list[str] = ...,
        transaction_states: list[TransactionState] = ...,
    ) -> None: ...
