"""AlterUserScramCredentials (51): set and remove SCRAM credentials of users (KIP-554)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bytes, Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class ScramCredentialDeletion(Value):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Value):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(
    RequestValue["AlterUserScramCredentialsResponse"], api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS
):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Value):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(ResponseValue, api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
