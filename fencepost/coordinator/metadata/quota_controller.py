"""Decides on changes of client quotas (KIP-546, KIP-612). Pure; the broker's `security/quotas.py` applies them."""

import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.image import MetadataImage, QuotaEntity
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import ClientQuotaRecord, MetadataRecord
from fencepost.protocol.metadata_record_types import QuotaEntity as EntityPart

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_INTEGER_MAX = {"producer_byte_rate": 2**63 - 1, "consumer_byte_rate": 2**63 - 1, "connection_creation_rate": 2**31 - 1}
"""The largest value of each quota that is a whole number."""
_TYPE_NAMES = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}
_CLIENT_KEYS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
_ADDRESS_KEYS = frozenset({"connection_creation_rate"})
_FRACTION = 1e-6


@dataclass(frozen=True, slots=True)
class QuotaEdits:
    """Changes of one entity's quotas, in the order of the request. A value of None removes the quota."""

    entity: QuotaEntity
    values: tuple[tuple[str, float | None], ...]


Quotas = Decision[MetadataRecord, dict[QuotaEntity, Outcome], None]


def quota_entity(parts: Mapping[str, str | None]) -> QuotaEntity:
    """The entity with these parts, by type; a name of None is the default of its type."""
    return tuple(sorted(parts.items(), key=itemgetter(0)))


def alter_quotas(image: MetadataImage, changes: Sequence[QuotaEdits], validate_only: bool = False) -> Quotas:
    """The rules of Kafka's ClientQuotaControlManager: each entity gets all its changes or none."""
    outcomes: dict[QuotaEntity, Outcome] = {}
    records: list[MetadataRecord] = []
    for change in changes:
        entity = change.entity
        keys = Counter(key for key, _ in change.values)
        if entity in outcomes or any(count > 1 for count in keys.values()):
            outcomes[entity] = _invalid(f"Ignoring duplicate entity {_text(entity)}")
            continue
        problem = _entity_problem(entity) or _value_problem(entity, change)
        outcomes[entity] = DONE if problem is None else _invalid(problem)
        if problem is None:
            records += _records(image, change)
    return Decision(outcomes, () if validate_only else tuple(records))


def _records(image: MetadataImage, change: QuotaEdits) -> list[MetadataRecord]:
    """The records of a valid change, without those that would change nothing."""
    before = image.quotas.get(change.entity, {})
    parts = tuple(EntityPart(kind, name) for kind, name in change.entity)
    changed = [(key, value) for key, value in change.values if before.get(key) != value]
    return [ClientQuotaRecord(parts, key, value or 0.0, value is None) for key, value in changed]


def _entity_problem(entity: QuotaEntity) -> str | None:
    kinds = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    if not kinds:
        return "Invalid empty client quota entity"
    if IP not in kinds:
        return None
    if len(kinds) > 1:
        return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
    address = entity[0][1]
    if address is not None and not _is_address(address):
        return f"{address} is not a valid IP address; host names are not resolved"
    return None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _value_problem(entity: QuotaEntity, change: QuotaEdits) -> str | None:
    allowed = _ADDRESS_KEYS if entity[0][0] == IP else _CLIENT_KEYS
    for key, value in change.values:
        if value is None:
            continue
        if key not in allowed:
            return f"Invalid configuration key {key}"
        if not value > 0:  # also NaN
            return f"Quota {key} must be greater than 0"
        largest = _INTEGER_MAX.get(key)
        if largest is None:
            continue
        if value > largest:
            return f"Proposed value for {key} is too large for {_TYPE_NAMES[largest]}."
        if value % 1 > _FRACTION:
            return f"{key} cannot be a fractional value."
    return None


def _invalid(why: str) -> Outcome:
    return Outcome(ErrorCode.INVALID_REQUEST, why)


def _text(entity: QuotaEntity) -> str:
    parts = ", ".join(f"{kind}={name if name is not None else 'null'}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"
