"""Written by tests/architecture/message_stubs.py from the declarations in api49_alter_client_quotas.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class EntityData(Value):
    entity_type: str
    entity_name: str | None
    def __init__(self, *, entity_type: str = ..., entity_name: str | None = ...) -> None: ...

class OpData(Value):
    key: str
    value: float
    remove: bool
    def __init__(self, *, key: str = ..., value: float = ..., remove: bool = ...) -> None: ...

class EntryData(Value):
    entity: list[EntityData]
    ops: list[OpData]
    def __init__(self, *, entity: list[EntityData] = ..., ops: list[OpData] = ...) -> None: ...

class AlterClientQuotasRequest(RequestValue[AlterClientQuotasResponse]):
    entries: list[EntryData]
    validate_only: bool
    def __init__(self, *, entries: list[EntryData] = ..., validate_only: bool = ...) -> None: ...

class EntryDataResponse(Value):
    error_code: int
    error_message: str | None
    entity: list[EntityData]
    def __init__(
        self, *, error_code: int = ..., error_message: str | None = ..., entity: list[EntityData] = ...
    ) -> None: ...

class AlterClientQuotasResponse(ResponseValue):
    throttle_time_ms: int
    entries: list[EntryDataResponse]
    def __init__(self, *, throttle_time_ms: int = ..., entries: list[EntryDataResponse] = ...) -> None: ...
