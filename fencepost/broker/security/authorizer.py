"""Decides what a principal may do: Kafka's StandardAuthorizer, decision for decision. Replaced when rules change."""

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from itertools import chain
from typing import NamedTuple, Protocol

from fencepost.broker.security.principal import CLUSTER, Principal
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType

CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""
WILDCARD = "*"
ANY_PRINCIPAL = "User:*"
PROBE_NAME = "hardcode"
"""The name that Kafka's authorizeByResourceType asks for first: it finds super users, and rules for all names."""
HOSTS_KEPT = 4096
DECISIONS_KEPT = 10_000
NAME_MAX = 249
_IMPLIED: dict[int, int] = {
    **dict.fromkeys(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER), AclOperation.DESCRIBE
    ),
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
"""What an ALLOW of an operation allows besides. A DENY implies nothing."""


class HasPrincipalAndHost(Protocol):
    """The two facts about a connection that rules refer to."""

    @property
    def principal(self) -> Principal: ...
    @property
    def client_host(self) -> str: ...


class Reason(Enum):
    """Why a request is allowed or denied."""

    SUPER_USER = "the principal is in super.users"
    RULE = "a rule decides"
    NO_RULE_FOR_RESOURCE = "no rule is about the resource, so allow.everyone.if.no.acl.found decides"
    NO_RULE_FOR_REQUEST = "rules are about the resource, but none allows this principal, host and operation"


class Verdict(NamedTuple):
    """A decision and its reason; `rule` is the rule that decided, if one did."""

    allowed: bool
    reason: Reason
    rule: Acl | None = None


class Authorizer:
    """What the rules `acls` allow. `super_users` are principals as text ("User:admin"), allowed everything.

    `allow_if_no_acl` is the setting allow.everyone.if.no.acl.found.
    """

    def __init__(self, acls: Iterable[Acl], super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.allow_if_no_acl = allow_if_no_acl
        self._groups: dict[tuple[str, str], list[Acl]] = {}
        for acl in acls:
            self._groups.setdefault((acl.principal, java_address(acl.host)), []).append(acl)
        self._tables: dict[tuple[str, str], _Table] = {}
        self._sessions: dict[tuple[Principal, str], tuple[_Table, ...] | None] = {}
        self._any: dict[tuple[Principal, str, int, int], bool] = {}
        self._patterns: dict[int, _Names] | None = None
        self._allowed: set[tuple[Principal, str, AclOperation, AclResourceType, str]] = set()
        """Decisions that allowed: most requests repeat one."""

    def allows(self, session: HasPrincipalAndHost, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        """Whether the session may do `operation` on the resource."""
        question = (session.principal, session.client_host, operation, kind, name)
        if question in self._allowed:
            return True
        is_allowed = self._decide(question[:2], (kind, operation), name)
        if is_allowed and len(name) <= NAME_MAX:  # longer ones could fill the memory
            if len(self._allowed) >= DECISIONS_KEPT:
                self._allowed.clear()
            self._allowed.add(question)
        return is_allowed

    def _decide(self, who: tuple[Principal, str], key: tuple[int, int], name: str) -> bool:
        tables = self._sessions[who] if who in self._sessions else self._tables_of(who)
        if tables is None:
            return True
        is_allowed = False
        for table in tables:
            denied, allowed = table.names.get(key) or table.compile(key)
            if denied is not None and denied.match(name):
                return False
            if allowed is not None and not is_allowed:
                is_allowed = allowed.match(name)
        return is_allowed or (self.allow_if_no_acl and not self._has_rules(key[0], name))

    def allows_any(self, session: HasPrincipalAndHost, operation: AclOperation, kind: AclResourceType) -> bool:
        """Whether the session may do `operation` on some resource of this type, which need not exist.

        Kafka's authorizeByResourceType: a DENY for all names ends it; otherwise an ALLOW counts that no DENY covers
        whole. Implied operations do not count here.
        """
        question = (session.principal, session.client_host, int(kind), int(operation))
        known = self._any.get(question)
        if known is None:
            if len(self._any) >= HOSTS_KEPT:
                self._any.clear()
            known = self._any[question] = self.allows(session, operation, kind, PROBE_NAME) or self._some_name(
                session, operation, kind
            )
        return known

    def explain(
        self, principal: Principal, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> Verdict:
        """The decision of `allows`, its reason, and the rule that decided. Looks at every rule."""
        if self._may_do_all(principal):
            return Verdict(True, Reason.SUPER_USER)
        about = [acl for acl in chain.from_iterable(self._groups.values()) if _is_about(acl, kind, name)]
        applying = [acl for acl in about if _applies(acl, principal, java_address(host), operation)]
        for acl in sorted(applying, key=_allows):
            return Verdict(_allows(acl), Reason.RULE, acl)
        if about:
            return Verdict(False, Reason.NO_RULE_FOR_REQUEST)
        return Verdict(self.allow_if_no_acl, Reason.NO_RULE_FOR_RESOURCE)

    def _may_do_all(self, principal: Principal) -> bool:
        return principal == CLUSTER or str(principal) in self.super_users

    def _tables_of(self, who: tuple[Principal, str]) -> "tuple[_Table, ...] | None":
        """The compiled rules that apply to a principal and host; None for a super user."""
        principal, host = who
        if len(self._sessions) >= HOSTS_KEPT:
            self._sessions.clear()
        tables = None
        if not self._may_do_all(principal):
            names, hosts = {str(principal), ANY_PRINCIPAL}, {java_address(host), WILDCARD}
            tables = tuple(self._table((one, at)) for one in names for at in hosts if (one, at) in self._groups)
        self._sessions[who] = tables
        return tables

    def _table(self, key: tuple[str, str]) -> "_Table":
        if key not in self._tables:
            self._tables[key] = _Table(self._groups[key])
        return self._tables[key]

    def _has_rules(self, kind: int, name: str) -> bool:
        """Whether any rule is about the resource, for whatever principal and operation."""
        if self._patterns is None:
            by_kind: dict[int, list[Acl]] = {}
            for acl in chain.from_iterable(self._groups.values()):
                by_kind.setdefault(acl.resource_type, []).append(acl)
            self._patterns = {one: _Names(acls) for one, acls in by_kind.items()}
        names = self._patterns.get(kind)
        return names is not None and names.match(name)

    def _some_name(self, session: HasPrincipalAndHost, operation: AclOperation, kind: AclResourceType) -> bool:
        tables = self._tables_of((session.principal, session.client_host)) or ()
        rules = [
            acl
            for table in tables
            for acl in table.rules
            if acl.resource_type == kind and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = _Names([acl for acl in rules if not _allows(acl)])
        if denied.all_names:
            return False
        allowed = _Names([acl for acl in rules if _allows(acl)])
        return (
            allowed.all_names
            or any(not denied.match(name) for name in allowed.literals)
            or any(not denied.covers_prefix(prefix) for prefix in allowed.prefixes)
        )


class _Names:
    """The names that a set of rules matches: all, some exactly, and some by their beginnings."""

    __slots__ = ("all_names", "literals", "prefixes")

    def __init__(self, acls: Iterable[Acl]) -> None:
        literals = {acl.resource_name for acl in acls if acl.pattern_type == PatternType.LITERAL}
        self.all_names = WILDCARD in literals
        self.literals = frozenset(literals)
        self.prefixes: list[str] = []
        """Sorted, and without those that begin with another one: so a name can begin only with the one before it."""
        for prefix in sorted({acl.resource_name for acl in acls if acl.pattern_type == PatternType.PREFIXED}):
            if not (self.prefixes and prefix.startswith(self.prefixes[-1])):
                self.prefixes.append(prefix)

    def match(self, name: str) -> bool:
        return self.all_names or name in self.literals or self.covers_prefix(name)

    def covers_prefix(self, name: str) -> bool:
        """Whether `name`, and so every name that begins with it, begins with one of the prefixes."""
        place = bisect_right(self.prefixes, name)
        return place > 0 and name.startswith(self.prefixes[place - 1])


class _Table:
    """The rules of one principal and host. `names` has the denied and the allowed names by resource type and operation.

    They are compiled at their first use: a change of rules throws them away, and few operations are ever asked for.
    """

    __slots__ = ("names", "rules")

    def __init__(self, rules: list[Acl]) -> None:
        self.rules = rules
        self.names: dict[tuple[int, int], tuple[_Names | None, _Names | None]] = {}

    def compile(self, key: tuple[int, int]) -> tuple[_Names | None, _Names | None]:
        kind, operation = key
        rules = [acl for acl in self.rules if acl.resource_type == kind and _covers(acl, operation)]
        denied = [acl for acl in rules if not _allows(acl)]
        allowed = [acl for acl in rules if _allows(acl)]
        self.names[key] = found = (_Names(denied) if denied else None, _Names(allowed) if allowed else None)
        return found


def _allows(acl: Acl) -> bool:
    """Whether the rule allows. A permission unknown to this version counts as DENY, as in Kafka."""
    return acl.permission_type == AclPermission.ALLOW


def _covers(acl: Acl, operation: int) -> bool:
    """Whether the rule is about an operation: its own one, every one for ALL, or for an ALLOW an implied one."""
    return acl.operation in (operation, AclOperation.ALL) or (_IMPLIED.get(acl.operation) == operation and _allows(acl))


def _is_about(acl: Acl, kind: AclResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def _applies(acl: Acl, principal: Principal, host: str, operation: AclOperation) -> bool:
    return (
        acl.principal in (str(principal), ANY_PRINCIPAL)
        and java_address(acl.host) in (host, WILDCARD)
        and _covers(acl, operation)
    )


@lru_cache(maxsize=HOSTS_KEPT)
def java_address(host: str) -> str:
    """An address as Java writes it, the spelling in Kafka's rules: `0:0:0:0:0:0:0:1` for `::1`. Other text stays."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = address.packed
    text = ":".join(f"{groups[at] << 8 | groups[at + 1]:x}" for at in range(0, 16, 2))
    return text if address.scope_id is None else f"{text}%{address.scope_id}"
