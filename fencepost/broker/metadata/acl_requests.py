"""The parts that the requests about ACLs (29 to 31) share: filters, and Kafka's rules for numbers that no enum has."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fencepost.broker.network.context import CloseConnection
from fencepost.broker.security.log_names import quoted
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType, named

NO_AUTHORIZER = "No Authorizer is configured."
WILDCARD = "*"
_RESOURCE_TYPE, _NAME, _PATTERN_TYPE, _PRINCIPAL, _HOST, _OPERATION, _PERMISSION = range(len(Acl._fields))
ANY = 1
"""In each of the four enumerations."""


class AclFilter(NamedTuple):
    """A filter for ACLs: None, or ANY, matches everything. Kafka's AclBindingFilter."""

    resource_type: AclResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    @classmethod
    def of(cls, request: Any) -> "AclFilter":
        """The filter in a DescribeAcls request, or in an entry of DeleteAcls. Raises CloseConnection."""
        refuse_unknown(
            request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
        )
        return cls(
            named(AclResourceType, request.resource_type_filter),
            request.resource_name_filter,
            named(PatternType, request.pattern_type_filter),
            request.principal_filter,
            request.host_filter,
            named(AclOperation, request.operation),
            named(AclPermission, request.permission_type),
        )

    def select(self, acls: Iterable[Acl]) -> list[Acl]:
        wanted = [
            (field, value)
            for field, value in (
                (_NAME, None if self.pattern_type is PatternType.MATCH else self.name),
                (_RESOURCE_TYPE, _unless_any(self.resource_type)),
                (_PATTERN_TYPE, None if self.pattern_type is PatternType.MATCH else _unless_any(self.pattern_type)),
                (_PRINCIPAL, self.principal),
                (_HOST, self.host),
                (_OPERATION, _unless_any(self.operation)),
                (_PERMISSION, _unless_any(self.permission)),
            )
            if value is not None
        ]
        found = list(acls)
        for field, value in wanted:
            found = [acl for acl in found if acl[field] == value]
        if self.pattern_type is PatternType.MATCH and self.name is not None:
            found = [acl for acl in found if _is_about(acl, self.name)]
        return found


def _unless_any(number: int) -> int | None:
    return None if number == ANY else int(number)


def _is_about(acl: Acl, name: str) -> bool:
    """Whether the ACL applies to a resource of this name: Kafka's ResourcePatternFilter with MATCH (KIP-290)."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def refuse_unknown(*numbers: int) -> None:
    """Raise CloseConnection if a client sends UNKNOWN itself, as Kafka does."""
    if not all(numbers):
        raise CloseConnection("a request about ACLs has the number 0, UNKNOWN, as a type, an operation or a permission")


def audit_text(acl: Acl) -> str:
    """An ACL as the audit log shows it."""
    return (
        f"permission={named(AclPermission, acl.permission_type).name}"
        f" user={quoted(acl.principal)} from={quoted(acl.host)}"
        f" operation={named(AclOperation, acl.operation).name}"
        f" resource={named(AclResourceType, acl.resource_type).name}:{quoted(acl.resource_name)}"
        f" pattern={named(PatternType, acl.pattern_type).name}"
    )
