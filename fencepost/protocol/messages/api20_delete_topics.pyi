"""Written by tests/architecture/message_stubs.py from the declarations in api20_delete_topics.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DeleteTopicState(Value):
    name: str | None
    topic_id: bytes
    def __init__(self, *, name: str | None = ..., topic_id: bytes = ...) -> None: ...

class DeleteTopicsRequest(RequestValue[DeleteTopicsResponse]):
    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    def __init__(
        self, *, topics: list[DeleteTopicState] = ..., topic_names: list[str] = ..., timeout_ms: int = ...
    ) -> None: ...

class DeletableTopicResult(Value):
    name: str | None
    topic_id: bytes
    error_code: int
    error_message: str | None
    def __init__(
        self, *, name: str | None = ..., topic_id: bytes = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class DeleteTopicsResponse(ResponseValue):
    throttle_time_ms: int
    responses: list[DeletableTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[DeletableTopicResult] = ...) -> None: ...
