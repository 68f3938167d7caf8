"""DescribeUserScramCredentials (50): the SCRAM mechanisms and iterations of users; never a key (KIP-554)."""

from collections import Counter

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    node: Broker, request: DescribeUserScramCredentialsRequest, _context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users, or all if none is named."""
    known: dict[str, list[CredentialInfo]] = {}
    for user, credential in sorted(node.metadata.image.scram.items(), key=lambda item: item[0]):
        info = CredentialInfo(mechanism=user.mechanism, iterations=credential.iterations)
        known.setdefault(user.name, []).append(info)
    asked = Counter(user.name for user in request.users) if request.users else dict.fromkeys(known, 1)
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_result(name, known.get(name), count) for name, count in asked.items()]
    )


def _result(name: str, found: list[CredentialInfo] | None, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if found is None:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=found)
