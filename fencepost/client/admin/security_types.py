"""What the admin client tells of rights: access rules, quotas and SCRAM users, with Kafka's names and numbers."""

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.protocol.admin_enums import AclOperation

N = TypeVar("N", bound=IntEnum)


def named(kind: type[N], number: int) -> N:
    """The member of a number on the wire; UNKNOWN for one that is newer than this client."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


class ResourceType(IntEnum):
    """What an access rule is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule's name is meant (KIP-290). ANY and MATCH stand in filters only; MATCH: every rule that would apply."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Whether a rule allows or denies; a rule that denies wins. ANY stands in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One access rule. `principal` is "User:NAME" ("User:*" for all), `host` an address or "*".

    `name` is "*" for all resources of the type, and "kafka-cluster" for the cluster.
    """

    resource_type: ResourceType
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


def acl_of(resource: Any, one: Any) -> Acl:
    """An access rule of two parts of an answer, or of a metadata record that is both."""
    return Acl(
        named(ResourceType, resource.resource_type),
        resource.resource_name,
        one.principal,
        named(AclOperation, one.operation),
        named(AclPermission, one.permission_type),
        one.host,
        named(PatternType, resource.pattern_type),
    )


class AclFilter(NamedTuple):
    """Which access rules are meant: all, unless something is said. None is any name, principal or host."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


class QuotaName(Enum):
    """Names in quotas that are none: the default of all without one of their own, and any (in questions)."""

    DEFAULT = "default"
    ANY = "any"


DEFAULT: Final = QuotaName.DEFAULT
"""The entity that stands for all users, client ids or addresses without a quota of their own."""
ANY: Final = QuotaName.ANY
"""In questions: every entity that has such a part."""


class QuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id, both together, or an address. None: that is not part of it."""

    user: "str | QuotaName | None" = None
    client_id: "str | QuotaName | None" = None
    ip: "str | QuotaName | None" = None


class ScramMechanism(IntEnum):
    """The two that Kafka has."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredential(NamedTuple):
    """That a user can log in with a mechanism, and by how many iterations; nobody gets the password back."""

    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A credential to set. The password is salted and hashed here: only that is sent. `salt` None: a fresh one."""

    user: str
    password: str | bytes
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = 8192
    salt: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramUpsertion(user={self.user!r}, password=..., mechanism={self.mechanism.name})"


class ScramDeletion(NamedTuple):
    """A credential to remove."""

    user: str
    mechanism: ScramMechanism
