"""Written by tests/architecture/message_stubs.py from the declarations in api50_describe_user_scram_credentials.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class UserName(Value):
    name: str
    def __init__(self, *, name: str = ...) -> None: ...

class DescribeUserScramCredentialsRequest(RequestValue[DescribeUserScramCredentialsResponse]):
    users: list[UserName] | None
    def __init__(self, *, users: list[UserName] | None = ...) -> None: ...

class CredentialInfo(Value):
    mechanism: int
    iterations: int
    def __init__(self, *, mechanism: int = ..., iterations: int = ...) -> None: ...

class DescribeUserScramCredentialsResult(Value):
    user: str
    error_code: int
    error_message: str | None
    credential_infos: list[CredentialInfo]
    def __init__(
        self,
        *,
        user: str = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        credential_infos: list[CredentialInfo] = ...,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: list[DescribeUserScramCredentialsResult] = ...,
    ) -> None: ...
