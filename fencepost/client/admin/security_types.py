"""Values of the admin client for security: access rules, quotas and SCRAM users, with Kafka's numbers."""

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType, named
from fencepost.protocol.scram import ITERATIONS


class Acl(NamedTuple):
    """One access rule. `principal` is "User:NAME" ("User:*" for all), `host` an address or "*".

    `name` is "*" for all resources of the type, and "kafka-cluster" for the cluster.
    """

    resource_type: AclResourceType
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


def acl_of(resource: Any, one: Any) -> Acl:
    """An access rule from two parts of a response, or from a metadata record that is both."""
    return Acl(
        named(AclResourceType, resource.resource_type),
        resource.resource_name,
        one.principal,
        named(AclOperation, one.operation),
        named(AclPermission, one.permission_type),
        one.host,
        named(PatternType, resource.pattern_type),
    )


class AclFilter(NamedTuple):
    """A filter for access rules. The defaults match all rules; None matches any name, principal or host."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class QuotaName(Enum):
    """Special names in quotas: the default entity, and (in requests that describe quotas) any entity."""

    DEFAULT = "default"
    ANY = "any"


DEFAULT: Final = QuotaName.DEFAULT
"""The entity that stands for all users, client ids or addresses without a quota of their own."""
ANY: Final = QuotaName.ANY
"""Matches every entity that has such a part, in `describe_client_quotas`."""


class QuotaEntity(NamedTuple):
    """The entity of a quota: a user, a client id, both together, or an address. None: not a part of it."""

    user: "str | QuotaName | None" = None
    client_id: "str | QuotaName | None" = None
    ip: "str | QuotaName | None" = None


class ScramMechanism(IntEnum):
    """Kafka's two SCRAM mechanisms."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredential(NamedTuple):
    """A user's credential for a mechanism and its number of iterations. The password cannot be read back."""

    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A credential to set. The client sends only the salted hash of the password. `salt` None: a random one."""

    user: str
    password: str | bytes
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = ITERATIONS
    salt: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramUpsertion(user={self.user!r}, password=..., mechanism={self.mechanism.name})"


class ScramDeletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism
