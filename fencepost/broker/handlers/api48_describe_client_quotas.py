"""DescribeClientQuotas (48): the quotas of the entities that match a filter (KIP-546)."""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.image import QuotaEntity
from fencepost.coordinator.metadata.quota_controller import CLIENT_ID, IP, USER
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def handle(node: Broker, request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
    """Return each entity that has all parts of the filter; with `strict` only those without further parts."""
    code, message = _problem(request.components)
    if code is not ErrorCode.NONE:
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
    entries = [
        EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[ValueData(key=key, value=value) for key, value in values.items()],
        )
        for entity, values in node.metadata.image.quotas.items()
        if _matches(entity, request)
    ]
    return DescribeClientQuotasResponse(entries=entries)


def _problem(components: list[ComponentData]) -> Outcome:
    """What is wrong with a filter (Kafka's ClientQuotasImage.describe)."""
    kinds: list[str] = []
    for part in components:
        kind = part.entity_type
        if not kind:
            return _invalid("Invalid empty entity type.")
        if kind in kinds:
            return _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            return Outcome(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if part.match_type == EXACT and part.match is None:
            return _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if part.match_type in (DEFAULT, SPECIFIED) and part.match is not None:
            name = "MATCH_TYPE_DEFAULT" if part.match_type == DEFAULT else "MATCH_TYPE_SPECIFIED"
            return _invalid(f"Request specified {name}, but also specified a match string.")
        if part.match_type not in (EXACT, DEFAULT, SPECIFIED):
            return _invalid(f"Unknown match type {part.match_type}")
        kinds.append(kind)
    if IP in kinds and len(kinds) > 1:
        return _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component."
        )
    return Outcome()


def _invalid(why: str) -> Outcome:
    return Outcome(ErrorCode.INVALID_REQUEST, why)


def _matches(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    parts = dict(entity)
    if request.strict and len(parts) != len(request.components):
        return False
    return all(
        part.entity_type in parts and (part.match_type == SPECIFIED or parts[part.entity_type] == part.match)
        for part in request.components
    )
