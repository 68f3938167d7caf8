"""DescribeUserScramCredentials (50): which SCRAM mechanisms users have credentials for (KIP-554)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int8, Int16, Int32, Request, Response, String, Struct

UserName = Struct(
    "UserName",
    "name" / String,
)

DescribeUserScramCredentialsRequest = Request(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    "users" / Field(Array(UserName), nullable=0),
)

CredentialInfo = Struct(
    "CredentialInfo",
    "mechanism" / Int8,
    "iterations" / Int32,
)

DescribeUserScramCredentialsResult = Struct(
    "DescribeUserScramCredentialsResult",
    "user" / String,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "credential_infos" / Array(CredentialInfo),
)

DescribeUserScramCredentialsResponse = Response(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "results" / Array(DescribeUserScramCredentialsResult),
)
