"""AlterUserScramCredentials (51): set and delete SCRAM credentials of users (KIP-554)."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasMetadata
from fencepost.coordinator.metadata.user_controller import CredentialDeletion, CredentialUpsertion
from fencepost.protocol.messages.api51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    node: HasMetadata, request: AlterUserScramCredentialsRequest, _context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of each user, or return why not."""
    deletions = [CredentialDeletion(one.name, one.mechanism) for one in request.deletions]
    upsertions = [
        CredentialUpsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]
    outcomes = await node.metadata.alter_credentials(deletions, upsertions)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=name, error_code=outcome.code, error_message=outcome.message)
            for name, outcome in outcomes.items()
        ]
    )
