"""Written by tests/architecture/message_stubs.py from the declarations in api48_describe_client_quotas.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ComponentData(Value):
    entity_type: str
    match_type: int
    match: str | None
    def __init__(self, *, entity_type: str = ..., match_type: int = ..., match: str | None = ...) -> None: ...

class DescribeClientQuotasRequest(RequestValue[DescribeClientQuotasResponse]):
    components: list[ComponentData]
    strict: bool
    def __init__(self, *, components: list[ComponentData] = ..., strict: bool = ...) -> None: ...

class EntityData(Value):
    entity_type: str
    entity_name: str | None
    def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...

class ValueData(Value):
    key: str
    value: float
    def __init__(self, *, key: str = ..., value: float = ...) -> None: ...

class EntryData(Value):
    entity: list[EntityData]
    values: list[ValueData]
    def __init__(self, *, entity: list[EntityData] = ..., values: list[ValueData] = ...) -> None: ...

class DescribeClientQuotasResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[EntryData] | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: list[EntryData] | None = ...,
    ) -> None: ...
