"""AlterUserScramCredentials (51): set and remove SCRAM credentials of users (KIP-554)."""

from fencepost.protocol.schema import Array, Bytes, Field, Int8, Int16, Int32, Request, Response, String, Struct

VERSIONS = (0, 0)
FLEXIBLE = 0

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
    51,
    "AlterUserScramCredentialsRequest",
    VERSIONS,
    FLEXIBLE,
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
    51,
    "AlterUserScramCredentialsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "results" / Array(AlterUserScramCredentialsResult),
)
