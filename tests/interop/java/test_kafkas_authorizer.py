"""Our authorizer beside Kafka's own StandardAuthorizer, from its jar: generated rules and requests, the same decisions.

`FENCEPOST_AUTHORIZER_PAIRS=10000` plays so many pairs of rules and a request.
"""

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from fencepost.broker.security.authorizer import Authorizer, Reason
from fencepost.broker.security.principal import Principal
from fencepost.coordinator.metadata.image import Acl
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType
from tests.interop.java.kafka_jvm import KafkaJvm

PAIRS = int(os.environ.get("FENCEPOST_AUTHORIZER_PAIRS", "500"))
REQUESTS_PER_RULES = 5
SUPER_USERS = "User:root;User:CN=broker,O=example"
KINDS = [AclResourceType.TOPIC, AclResourceType.TOPIC, AclResourceType.GROUP]
OPERATIONS = [operation for operation in AclOperation if operation > AclOperation.ALL]
COMMON = [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS]
NAMES = ["a", "ab", "abc", "abd", "abcd", "b", "ba", "*", "*a", "hard", "hardcode", "é", "é\U0001f600", "Z"]
PRINCIPALS = ["User:ann", "User:ann", "User:bob", "User:*", "Group:ann", "User:CN=x,O=y"]
HOSTS = ["*", "*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"]
CLIENTS = [
    Principal("User", "ann"),
    Principal("User", "ann"),
    Principal("User", "bob"),
    Principal("User", "CN=x,O=y"),
    Principal("Group", "ann"),
    Principal("Group", "*"),  # not User:*, for which Kafka throws an exception
    Principal("User", "root"),
    Principal("User", "CN=broker,O=example"),
]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "::1", "10.0.0.3"]


class Request(NamedTuple):
    """Who asks from where for what; without a name: for any resource of the type."""

    principal: Principal
    client_host: str
    operation: AclOperation
    kind: AclResourceType
    name: str | None


def some_rules(chance: random.Random) -> list[Acl]:
    """Rules about few names, so that many of them meet in one request; none twice, as Kafka keeps them."""
    few = chance.sample(NAMES, 3)
    return list(
        dict.fromkeys(
            Acl(
                chance.choice(KINDS),
                chance.choice(few),
                chance.choice([PatternType.LITERAL, PatternType.PREFIXED]),
                chance.choice(PRINCIPALS),
                chance.choice(HOSTS),
                AclOperation.ALL if chance.random() < 0.2 else chance.choice([*COMMON, *COMMON, *OPERATIONS]),
                AclPermission.DENY if chance.random() < 0.3 else AclPermission.ALLOW,
            )
            for _ in range(chance.randrange(13))
        )
    )


def a_request(chance: random.Random, rules: Sequence[Acl]) -> Request:
    """Often one that a rule is about. No name is `*` and more: Kafka decides those otherwise (docs/rules.md, 16)."""
    client = chance.choice(CLIENTS if chance.random() < 0.3 else CLIENTS[:3])
    address, operation = chance.choice(ADDRESSES), chance.choice([*COMMON, AclOperation.DESCRIBE_CONFIGS, *OPERATIONS])
    kind, name = chance.choice(KINDS), chance.choice(NAMES)
    if rules and chance.random() < 0.8:
        near = chance.choice(rules)
        kind, name = AclResourceType(near.resource_type), near.resource_name + chance.choice(["", "", "c", "x"])
        if near.principal != "User:*" and chance.random() < 0.8:
            client = Principal(*near.principal.split(":"))
        if near.host != "*" and chance.random() < 0.8:
            address = near.host
        if near.operation != AclOperation.ALL and chance.random() < 0.6:
            operation = AclOperation(near.operation)
    name = "*" if name.startswith("*") else name
    return Request(client, address, operation, kind, None if chance.random() < 0.25 else name)


class KafkasAuthorizer:
    """org.apache.kafka.metadata.authorizer.StandardAuthorizer, in the JVM of the tests."""

    def __init__(self, kafka: KafkaJvm, *, open_without_rules: bool) -> None:
        self._kafka, self._jvm = kafka, kafka.jvm
        jvm = kafka.jvm
        common = jvm.org.apache.kafka.common
        self._metadata, self._common, self._server = jvm.org.apache.kafka.metadata, common, jvm.org.apache.kafka.server
        self._of: dict[Any, Any] = {}
        for ours, theirs in (
            (AclOperation, common.acl.AclOperation),
            (AclPermission, common.acl.AclPermissionType),
            (AclResourceType, common.resource.ResourceType),
            (PatternType, common.resource.PatternType),
        ):
            self._of |= {(ours, one.value): theirs.valueOf(one.name) for one in ours}
        interface = jvm.java.lang.Class.forName("org.apache.kafka.server.authorizer.Authorizer")
        [self._any] = [one for one in interface.getMethods() if one.getName() == "authorizeByResourceType"]
        """A default method of the interface: py4j does not find those in an object."""
        self._contexts: dict[tuple[Principal, str], Any] = {}
        self._authorizer = self._metadata.authorizer.StandardAuthorizer()
        self._authorizer.configure(
            {
                "node.id": "1",
                "super.users": SUPER_USERS,
                "allow.everyone.if.no.acl.found": "true" if open_without_rules else "false",
            }
        )
        metrics = common.metrics
        self._authorizer.withPluginMetrics(metrics.internals.PluginMetricsImpl(metrics.Metrics(), {}))
        self._authorizer.completeInitialLoad()

    def load(self, rules: Sequence[Acl]) -> None:
        """Replace all rules."""
        acls = self._jvm.java.util.HashMap()
        for number, rule in enumerate(rules):
            acl = self._metadata.authorizer.StandardAcl(
                self._of[AclResourceType, rule.resource_type],
                rule.resource_name,
                self._of[PatternType, rule.pattern_type],
                rule.principal,
                rule.host,
                self._of[AclOperation, rule.operation],
                self._of[AclPermission, rule.permission_type],
            )
            acls.put(self._common.Uuid(0, number + 1), acl)
        self._authorizer.loadSnapshot(acls)

    def allows(self, request: Request) -> bool:
        context = self._context(request)
        operation, kind = self._of[AclOperation, request.operation], self._of[AclResourceType, request.kind]
        if request.name is None:
            arguments = self._kafka.array("Object", [context, operation, kind])
            return str(self._any.invoke(self._authorizer, arguments).toString()) == "ALLOWED"
        literal = self._of[PatternType, PatternType.LITERAL]
        pattern = self._common.resource.ResourcePattern(kind, request.name, literal)
        action = self._server.authorizer.Action(operation, pattern, 1, False, False)
        return str(self._authorizer.authorize(context, [action]).toString()) == "[ALLOWED]"

    def _context(self, request: Request) -> Any:
        key = request.principal, request.client_host
        if key not in self._contexts:
            security = self._common.security.auth
            self._contexts[key] = self._common.requests.RequestContext(
                None,
                "1",
                self._jvm.java.net.InetAddress.getByName(request.client_host),
                security.KafkaPrincipal(*request.principal),
                self._common.network.ListenerName("PLAINTEXT"),
                security.SecurityProtocol.PLAINTEXT,
                self._common.network.ClientInformation.EMPTY,
                False,
            )
        return self._contexts[key]


@pytest.fixture(scope="module", params=[False, True], ids=["closed", "open"])
def kafkas(kafka: KafkaJvm, request: pytest.FixtureRequest) -> tuple[KafkasAuthorizer, bool]:
    """Kafka's authorizer without and with allow.everyone.if.no.acl.found."""
    return KafkasAuthorizer(kafka, open_without_rules=request.param), request.param


def test_every_decision_is_that_of_kafkas_own_class(kafkas: tuple[KafkasAuthorizer, bool]) -> None:
    """Rows R1 to R7: StandardAuthorizer.authorize and authorizeByResourceType."""
    theirs, is_open = kafkas
    chance = random.Random(f"fencepost-{is_open}")
    outcomes: Counter[tuple[bool, bool]] = Counter()
    reasons: Counter[tuple[Reason, bool]] = Counter()
    while outcomes.total() < PAIRS / 2:
        rules = some_rules(chance)
        theirs.load(rules)
        ours = Authorizer(rules, SUPER_USERS.split(";"), allow_if_no_acl=is_open)
        for _ in range(REQUESTS_PER_RULES):
            request = a_request(chance, rules)
            expected = theirs.allows(request)
            if request.name is None:
                decided = ours.allows_any(request, request.operation, request.kind)
            else:
                decided = ours.allows(request, request.operation, request.kind, request.name)
                verdict = ours.explain(*request[:2], request.operation, request.kind, request.name)
                assert verdict.allowed is expected, f"{request}\n" + "\n".join(map(repr, rules))
                reasons[verdict.reason, verdict.allowed] += 1
            assert decided is expected, f"{request}\n" + "\n".join(map(repr, rules))
            outcomes[request.name is None, expected] += 1
    assert len(outcomes) == 4, outcomes
    assert set(reasons) == {
        (Reason.SUPER_USER, True),
        (Reason.RULE, True),
        (Reason.RULE, False),
        (Reason.NO_RULE_FOR_REQUEST, False),
        (Reason.NO_RULE_FOR_RESOURCE, is_open),
    }
    print(f"{outcomes.total()} pairs: {dict(outcomes)}, {dict(reasons)}")
