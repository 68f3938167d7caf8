"""The compiled authorizer decides as a plain fold over all rules does, which is written here after Kafka's rules."""

import time
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.broker.security.authorizer import Authorizer, Reason, java_address
from fencepost.broker.security.principal import Principal
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType

NAMES = ("a", "ab", "abc", "abd", "b", "*", "*a", "hardcode", "hard", "zz", "kafka-cluster")
PRINCIPALS = ("User:a", "User:b", "User:*", "Group:a", "Group:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "*")
SUPER, TOPIC, GROUP = "User:root", AclResourceType.TOPIC, AclResourceType.GROUP
OPERATIONS = [operation for operation in AclOperation if operation >= AclOperation.ALL]
IMPLIES_DESCRIBE = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}


class Client(NamedTuple):
    """What rules refer to of a connection."""

    principal: Principal
    client_host: str


acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]).map(int),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]).map(int),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS).map(int),
    st.sampled_from([AclPermission.DENY, AclPermission.ALLOW, AclPermission.ALLOW]).map(int),
)
clients = st.builds(
    Client,
    st.builds(Principal, st.sampled_from(["User", "User", "Group"]), st.sampled_from(["a", "b", "root", "*"])),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "10.0.0.3"]),
)


def matches_name(acl: Acl, kind: AclResourceType, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name[: len(acl.resource_name)] == acl.resource_name
    return acl.resource_name == "*" or acl.resource_name == name


def is_of(acl: Acl, client: Client) -> bool:
    who = f"{client.principal.kind}:{client.principal.name}"
    at = "0:0:0:0:0:0:0:1" if client.client_host == "::1" else client.client_host
    return acl.principal in (who, "User:*") and acl.host in (at, "*")


def grants(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation in (AclOperation.ALL, operation):
        return True
    if acl.permission_type == AclPermission.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return acl.operation in IMPLIES_DESCRIBE
    return operation is AclOperation.DESCRIBE_CONFIGS and acl.operation == AclOperation.ALTER_CONFIGS


def plain(rules: list[Acl], client: Client, operation: AclOperation, name: str, *, open_without_rules: bool) -> bool:
    """StandardAuthorizerData.authorize, for a topic."""
    if str(client.principal) == SUPER:
        return True
    about = [acl for acl in rules if matches_name(acl, TOPIC, name)]
    hits = [acl for acl in about if is_of(acl, client) and grants(acl, operation)]
    if any(acl.permission_type == AclPermission.DENY for acl in hits):
        return False
    return bool(hits) or (open_without_rules and not about)


def plain_any(rules: list[Acl], client: Client, operation: AclOperation, *, open_without_rules: bool) -> bool:
    """Authorizer.authorizeByResourceType, for topics."""
    if plain(rules, client, operation, "hardcode", open_without_rules=open_without_rules):
        return True
    own = [
        acl
        for acl in rules
        if acl.resource_type == TOPIC and is_of(acl, client) and acl.operation in (operation, AclOperation.ALL)
    ]
    denied = {(a.pattern_type, a.resource_name) for a in own if a.permission_type == AclPermission.DENY}
    allowed = {(a.pattern_type, a.resource_name) for a in own if a.permission_type == AclPermission.ALLOW}
    if (PatternType.LITERAL, "*") in denied:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    for kind, name in allowed:
        beginnings = {(PatternType.PREFIXED, name[:length]) for length in range(1, len(name) + 1)}
        literal = {(kind, name)} if kind == PatternType.LITERAL else set()
        if not (beginnings | literal) & denied:
            return True
    return False


RULE = Acl(TOPIC, "hard", PatternType.PREFIXED, "User:a", "*", AclOperation.READ, AclPermission.ALLOW)


@given(st.lists(acls, max_size=12), clients, st.sampled_from(OPERATIONS), st.sampled_from(NAMES), st.booleans())
@example([RULE], Client(Principal("User", "a"), "10.0.0.1"), AclOperation.DESCRIBE, "hardcode", False)
def test_the_compiled_rules_decide_as_a_fold_over_all_rules(
    rules: list[Acl], client: Client, operation: AclOperation, name: str, open_without_rules: bool
) -> None:
    """Rows R1 to R7: Kafka's StandardAuthorizerData (KIP-801) and Authorizer.authorizeByResourceType (KIP-679)."""
    authorizer = Authorizer(rules, [SUPER], allow_if_no_acl=open_without_rules)
    expected = plain(rules, client, operation, name, open_without_rules=open_without_rules)
    for _ in ("decided", "remembered"):
        assert authorizer.allows(client, operation, TOPIC, name) is expected
    assert authorizer.allows_any(client, operation, TOPIC) is plain_any(
        rules, client, operation, open_without_rules=open_without_rules
    )
    verdict = authorizer.explain(*client, operation, TOPIC, name)
    assert verdict.allowed is expected
    if verdict.rule is not None:
        assert verdict.reason is Reason.RULE
        assert verdict.rule in rules
        assert (verdict.rule.permission_type == AclPermission.ALLOW) is expected
        assert matches_name(verdict.rule, TOPIC, name)
        assert is_of(verdict.rule, client)
        assert grants(verdict.rule, operation)


def test_an_address_has_javas_spelling() -> None:
    """Row R3: InetAddress.getHostAddress, to which StandardAuthorizerData compares the host of a rule."""
    assert java_address("::1") == "0:0:0:0:0:0:0:1"
    assert java_address("2001:db8::ff00:42:8329") == "2001:db8:0:0:0:ff00:42:8329"
    assert java_address("::ffff:10.1.2.3") == "10.1.2.3"
    assert java_address("10.1.2.3") == "10.1.2.3"
    assert java_address("*") == "*"


def test_a_decision_takes_no_longer_with_ten_thousand_rules() -> None:
    """A scan of these rules takes more than a millisecond."""
    rules = [RULE._replace(resource_name=f"t-{number}-") for number in range(5000)]
    rules += [RULE._replace(resource_name=f"t-{number}", pattern_type=PatternType.LITERAL) for number in range(5000)]
    authorizer, client = Authorizer(rules), Client(Principal("User", "a"), "10.0.0.1")

    def seconds() -> float:
        start = time.perf_counter()
        for number in range(1000):
            assert authorizer.allows(client, AclOperation.DESCRIBE, TOPIC, f"t-{number}-x")
            assert not authorizer.allows(client, AclOperation.READ, TOPIC, f"u-{number}")
        return (time.perf_counter() - start) / 2000

    assert min(seconds() for _ in range(5)) < 0.0001
