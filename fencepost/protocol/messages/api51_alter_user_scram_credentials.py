"""AlterUserScramCredentials (51): set and remove SCRAM credentials of users (KIP-554)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bytes, Field, Int8, Int16, Int32, Request, Response, String, Struct

ScramCredentialDeletion = Struct(
    "ScramCredentialDeletion",
    "name" / String,
    "mechanism" / Int8,
)

ScramCredentialUpsertion = Struct(
    "ScramCredentialUpsertion",
    "name" / String,
    "mechanism" / Int8,
    "iterations" / Int32,
    "salt" / Bytes,
    "salted_password" / Bytes,
)

AlterUserScramCredentialsRequest = Request(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    "deletions" / Array(ScramCredentialDeletion),
    "upsertions" / Array(ScramCredentialUpsertion),
)

AlterUserScramCredentialsResult = Struct(
    "AlterUserScramCredentialsResult",
    "user" / String,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

AlterUserScramCredentialsResponse = Response(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    "throttle_time_ms" / Int32,
    "results" / Array(AlterUserScramCredentialsResult),
)
