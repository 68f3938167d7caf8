"""Decides on the creation and deletion of ACLs. Pure; the authorizer enforces them."""

from collections.abc import Sequence

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.image import Acl, MetadataImage
from fencepost.coordinator.metadata.ports import IdSource
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType, named
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)

Acls = Decision[MetadataRecord, list[Outcome], None]
RESOURCE_TYPES = range(2, 8)
"""Topic, group, cluster, transactional id, delegation token, user: all but UNKNOWN (0) and ANY (1)."""
CLUSTER_NAME = "kafka-cluster"
PATTERN_TYPES = range(3, 5)
"""LITERAL and PREFIXED (KIP-290)."""
OPERATIONS = range(2, 16)
PERMISSIONS = range(2, 4)
"""DENY and ALLOW."""
ACL_CHANGES_MAX = 10_000
"""How many ACLs one request may add or remove: Kafka's MAX_RECORDS_PER_USER_OP."""


class AclController:
    """The rules of Kafka's AclControlManager."""

    def __init__(self, new_id: IdSource) -> None:
        self._new_id = new_id

    def create(self, image: MetadataImage, acls: Sequence[Acl]) -> Acls:
        """Create ACLs; one that exists already needs no record. One outcome for each, in their order."""
        there = set(image.acls.values())
        problems = [acl_problem(acl) for acl in acls]
        outcomes = [DONE if problem is None else Outcome(ErrorCode.INVALID_REQUEST, problem) for problem in problems]
        valid = dict.fromkeys(acl for acl, problem in zip(acls, problems, strict=True) if problem is None)
        new = [acl for acl in valid if acl not in there]
        if len(new) > ACL_CHANGES_MAX:
            too_many = Outcome(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
            return Decision([too_many] * len(acls))
        return Decision(outcomes, tuple(AccessControlEntryRecord(self._new_id(), *acl) for acl in new))

    def delete(self, image: MetadataImage, acls: Sequence[Acl]) -> Acls:
        """Delete ACLs; it is not an error if there is no such ACL."""
        going = set(acls)
        gone = (RemoveAccessControlEntryRecord(acl_id) for acl_id, found in image.acls.items() if found in going)
        return Decision([DONE] * len(acls), tuple(gone))


def acl_problem(acl: Acl) -> str | None:
    """Why an ACL is invalid, in Kafka's order and words, or None.

    Kafka also accepts a host or a principal without a name, which match no client: a DENY would seem to protect.
    """
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.resource_name:
        return "Invalid empty resource name"
    if acl.resource_type not in RESOURCE_TYPES:
        return f"Invalid resourceType {named(AclResourceType, acl.resource_type).name}"
    if acl.pattern_type not in PATTERN_TYPES:
        return f"Invalid patternType {named(PatternType, acl.pattern_type).name}"
    if acl.operation not in OPERATIONS:
        return f"Invalid operation {named(AclOperation, acl.operation).name}"
    if acl.permission_type not in PERMISSIONS:
        return f"Invalid permissionType {named(AclPermission, acl.permission_type).name}"
    kind, separator, name = acl.principal.partition(":")
    if not separator:
        missing = "no colon is present separating the principal type from the principal name"
        return f"Could not parse principal from `{acl.principal}` ({missing})"
    if not (kind and name):
        return f"Could not parse principal from `{acl.principal}` (write TYPE:NAME, such as User:alice)"
    if not acl.host:
        return "The host should not be empty: * means any"
    return None
