"""AlterUserScramCredentials (51): set and delete SCRAM credentials of users (KIP-554)."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import log_change
from fencepost.broker.security.log_names import quoted
from fencepost.coordinator.metadata.user_controller import CredentialChange, CredentialDeletion, CredentialUpsertion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from fencepost.protocol.scram import MECHANISM_NUMBERS

_MECHANISMS = {number: name for name, number in MECHANISM_NUMBERS.items()}


async def handle(
    node: Broker, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    deletions = [CredentialDeletion(one.name, one.mechanism) for one in request.deletions]
    upsertions = [
        CredentialUpsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]
    outcomes = await node.metadata.alter_credentials(deletions, upsertions)
    for deletion in deletions:
        if outcomes[deletion.user].code is ErrorCode.NONE:
            log_change(context, "USER_DELETED", f"user={quoted(deletion.user)} mechanism={_name(deletion)}")
    for upsertion in upsertions:
        if outcomes[upsertion.user].code is ErrorCode.NONE:
            what = f"user={quoted(upsertion.user)} mechanism={_name(upsertion)} iterations={upsertion.iterations}"
            log_change(context, "USER_CHANGED", what)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes.items()
        ]
    )


def _name(change: CredentialChange) -> str:
    return _MECHANISMS[change.mechanism]
