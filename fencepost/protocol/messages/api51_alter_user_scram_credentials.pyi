"""Written by tests/architecture/message_stubs.py from the declarations in api51_alter_user_scram_credentials.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ScramCredentialDeletion(Value):
    name: str
    mechanism: int
    def __init__(self, *, name: str = ..., mechanism: int = ...) -> None: ...

class ScramCredentialUpsertion(Value):
    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes
    def __init__(
        self,
        *,
        name: str = ...,
        mechanism: int = ...,
        iterations: int = ...,
        salt: bytes = ...,
        salted_password: bytes = ...,
    ) -> None: ...

class AlterUserScramCredentialsRequest(RequestValue[AlterUserScramCredentialsResponse]):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
    def __init__(
        self, *, deletions: list[ScramCredentialDeletion] = ..., upsertions: list[ScramCredentialUpsertion] = ...
    ) -> None: ...

class AlterUserScramCredentialsResult(Value):
    user: str
    error_code: int
    error_message: str | None
    def __init__(self, *, user: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class AlterUserScramCredentialsResponse(ResponseValue):
    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResult]
    def __init__(
        self, *, throttle_time_ms: int = ..., results: list[AlterUserScramCredentialsResult] = ...
    ) -> None: ...
