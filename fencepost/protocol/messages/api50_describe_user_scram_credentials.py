"""DescribeUserScramCredentials (50): which SCRAM mechanisms users have credentials for (KIP-554)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value


class UserName(Value):
    name: String = ""


class DescribeUserScramCredentialsRequest(
    RequestValue["DescribeUserScramCredentialsResponse"], api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
):
    users: list[UserName] | None = []


class CredentialInfo(Value):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Value):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(ResponseValue, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = []
