"""The numbers and words of the administrative APIs, with names that both the broker and the admin client use."""

from enum import IntEnum
from typing import TypeVar

N = TypeVar("N", bound=IntEnum)


def named(kind: type[N], number: int) -> N:
    """The member of a number on the wire; UNKNOWN for one that is newer than this version."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


class AclOperation(IntEnum):
    """The operation that an ACL allows or denies, also in `authorized_operations`. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15
    """On a transactional id, besides WRITE, for a transaction without a timeout (KIP-939, row T22)."""


class AclResourceType(IntEnum):
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
    """How a rule's name matches (KIP-290). ANY and MATCH are for filters; MATCH finds every rule that applies."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Whether a rule allows or denies; a rule that denies wins. ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ConfigResourceType(IntEnum):
    """The type of a resource that has configurations."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a setting's value, by Kafka's name (KIP-226); a number without a name here is SOURCE_<number>."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource | None":
        if not isinstance(value, int):
            return None
        made = int.__new__(cls, value)
        made._name_, made._value_ = f"SOURCE_{value}", value
        return made


class ConfigOperation(IntEnum):
    """The change of one configuration (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class UpgradeType(IntEnum):
    """Whether a feature may only rise, or also fall (KIP-584)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
"""The states of a transaction that holds readers back, as ListTransactions and DescribeTransactions name them."""
