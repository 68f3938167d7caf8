"""Decides on the creation and deletion of ACLs. Pure; the authorizer enforces them."""

from collections.abc import Sequence

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, Outcome
from fencepost.coordinator.metadata.image import Acl, MetadataImage
from fencepost.coordinator.metadata.ports import IdSource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)

Acls = Decision[MetadataRecord, list[Outcome], None]
RESOURCE_TYPES = range(2, 8)
"""Topic, group, cluster, transactional id, delegation token, user: all but UNKNOWN (0) and ANY (1)."""
CLUSTER_TYPE, CLUSTER_NAME = 4, "kafka-cluster"
PATTERN_TYPES = range(3, 5)
"""LITERAL and PREFIXED (KIP-290)."""
OPERATIONS = range(2, 16)
PERMISSIONS = range(2, 4)
"""DENY and ALLOW."""


class AclController:
    """The rules of Kafka's AclControlManager."""

    def __init__(self, new_id: IdSource) -> None:
        self._new_id = new_id

    def create(self, image: MetadataImage, acls: Sequence[Acl]) -> Acls:
        """Create ACLs; one that exists already needs no record. One outcome for each, in their order."""
        there = set(image.acls.values())
        problems = [acl_problem(acl) for acl in acls]
        outcomes = [DONE if problem is None else Outcome(ErrorCode.INVALID_REQUEST, problem) for problem in problems]
        new = [acl for acl, problem in zip(acls, problems, strict=True) if problem is None and acl not in there]
        return Decision(outcomes, tuple(AccessControlEntryRecord(self._new_id(), *acl) for acl in new))

    def delete(self, image: MetadataImage, acls: Sequence[Acl]) -> Acls:
        """Delete ACLs; it is not an error if there is no such ACL."""
        going = set(acls)
        gone = (RemoveAccessControlEntryRecord(acl_id) for acl_id, found in image.acls.items() if found in going)
        return Decision([DONE] * len(acls), tuple(gone))


def acl_problem(acl: Acl) -> str | None:
    """Why an ACL is invalid, or None."""
    kind, separator, name = acl.principal.partition(":")
    if acl.resource_type not in RESOURCE_TYPES:
        return "Invalid resource type"
    if acl.pattern_type not in PATTERN_TYPES:
        return f"Invalid patternType {acl.pattern_type}"
    if acl.permission_type not in PERMISSIONS:
        return "Invalid permissionType"
    if acl.operation not in OPERATIONS:
        return "Invalid operationType"
    if not acl.resource_name:
        return "Resource name should not be empty"
    if acl.resource_type == CLUSTER_TYPE and acl.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not (kind and separator and name):
        return f"Could not parse principal from `{acl.principal}`: it is type:name"
    if not acl.host:
        return "The host should not be empty: * means any"
    return None
