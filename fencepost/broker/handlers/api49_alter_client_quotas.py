"""AlterClientQuotas (49): set and remove quotas; each entity gets all its changes or none (KIP-546)."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import log_change
from fencepost.broker.security.log_names import quoted
from fencepost.coordinator.metadata.quota_controller import QuotaEdits, quota_entity
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryDataResponse,
)


async def handle(node: Broker, request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    """Apply the valid changes in one append; the response waits until that is durable, and each change in force."""
    changes = [
        QuotaEdits(
            quota_entity({part.entity_type: part.entity_name for part in entry.entity}),
            tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    ]
    outcomes = await node.metadata.alter_quotas(changes, request.validate_only)
    if not request.validate_only:
        for change in changes:
            if outcomes[change.entity].code is ErrorCode.NONE:
                log_change(context, "QUOTA_CHANGED", _text(change))
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResponse(
                error_code=outcome.code,
                error_message=outcome.message,
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, outcome in outcomes.items()
        ]
    )


def _text(change: QuotaEdits) -> str:
    """A change as the audit log shows it: the entity, then each quota with its new value."""
    entity = [f"{kind}={'default' if name is None else quoted(name)}" for kind, name in change.entity]
    quotas = [f"{key}={'removed' if value is None else f'{value:.15g}'}" for key, value in change.values]
    return " ".join(entity + quotas)
