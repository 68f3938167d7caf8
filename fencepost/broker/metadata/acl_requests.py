"""The parts that the requests about ACLs (29 to 31) share: filters, and Kafka's rules for numbers that no enum has."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from fencepost.broker.network.context import CloseConnection
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType, named

NO_AUTHORIZER = "No Authorizer is configured."
WILDCARD = "*"


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
        """Those ACLs that match."""
        return [acl for acl in acls if self._matches_entry(acl) and self._matches_pattern(acl)]

    def _matches_entry(self, acl: Acl) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        """Kafka's ResourcePatternFilter: MATCH finds the ACLs that apply to a resource of this name (KIP-290)."""
        if self.pattern_type is not PatternType.MATCH:
            return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.resource_name)
        if self.name is None:
            return True
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.resource_name)
        return acl.resource_name in (self.name, WILDCARD)


def refuse_unknown(*numbers: int) -> None:
    """Raise CloseConnection if a client sends UNKNOWN itself, as Kafka does."""
    if not all(numbers):
        raise CloseConnection("a request about ACLs has the number 0, UNKNOWN, as a type, an operation or a permission")


def audit_text(acl: Acl) -> str:
    """An ACL as the audit log shows it."""
    return (
        f"permission={named(AclPermission, acl.permission_type).name} user={acl.principal!r} from={acl.host!r}"
        f" operation={named(AclOperation, acl.operation).name}"
        f" resource={named(AclResourceType, acl.resource_type).name}:{acl.resource_name!r}"
        f" pattern={named(PatternType, acl.pattern_type).name}"
    )
