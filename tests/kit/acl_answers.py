"""Requests about ACLs with the answers that Apache Kafka 4.3.1 gives; the same table runs against both brokers."""

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost.client.admin import Acl, AclFilter, ItemsFailedError
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api29_describe_acls import DescribeAclsRequest
from fencepost.protocol.messages.api30_create_acls import AclCreation, CreateAclsRequest
from fencepost.protocol.messages.api31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.kit.wire import ConnectionEnded, Wire

DESCRIBE, CREATE, DELETE = 29, 30, 31
CLOSED = "the connection is closed"
INVALID, UNKNOWN_ERROR = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR
ONLY_CLUSTER = "The only valid name for the CLUSTER resource is kafka-cluster"
NO_COLON = "(no colon is present separating the principal type from the principal name)"
TOPIC, CLUSTER, ID, USER = 2, 4, 5, 7
MATCH, LITERAL, PREFIXED = 2, 3, 4

CREATIONS: list[tuple[dict[str, Any], tuple[int, str] | str, tuple[int, str] | None]] = [
    # what differs from READ for User:a on topic x; Kafka's answer; ours, where it is another
    ({}, (0, ""), None),
    ({"pattern": PREFIXED}, (0, ""), None),
    ({"kind": USER, "operation": 13}, (0, ""), None),
    ({"kind": ID, "operation": 15}, (0, ""), None),
    ({"operation": 9}, (0, ""), None),  # ClusterAction on a topic: no check of operations by type
    ({"name": "not a/topic"}, (0, ""), None),
    ({"host": "example.com"}, (0, ""), None),
    ({"kind": 0}, CLOSED, None),
    ({"pattern": 0}, CLOSED, None),
    ({"operation": 0}, CLOSED, None),
    ({"permission": 0}, CLOSED, None),
    ({"kind": 99}, (INVALID, "Invalid resourceType UNKNOWN"), None),
    ({"pattern": 9}, (INVALID, "Invalid patternType UNKNOWN"), None),
    ({"operation": 99}, (INVALID, "Invalid operation UNKNOWN"), None),
    ({"permission": 9}, (INVALID, "Invalid permissionType UNKNOWN"), None),
    # Kafka's constructor of a ResourcePattern throws, which ends the whole request with its error -1
    ({"kind": 1}, (UNKNOWN_ERROR, ""), (INVALID, "Invalid resourceType ANY")),
    ({"pattern": MATCH}, (UNKNOWN_ERROR, ""), (INVALID, "Invalid patternType MATCH")),
    ({"operation": 1}, (UNKNOWN_ERROR, ""), (INVALID, "Invalid operation ANY")),
    ({"permission": 1}, (UNKNOWN_ERROR, ""), (INVALID, "Invalid permissionType ANY")),
    ({"name": ""}, (INVALID, "Invalid empty resource name"), None),
    ({"kind": CLUSTER}, (INVALID, ONLY_CLUSTER), None),
    ({"kind": CLUSTER, "name": "kafka", "pattern": PREFIXED}, (INVALID, ONLY_CLUSTER), None),
    ({"principal": "ann"}, (INVALID, f"Could not parse principal from `ann` {NO_COLON}"), None),
    ({"principal": ""}, (INVALID, f"Could not parse principal from `` {NO_COLON}"), None),
    # rules that match no client: a DENY would seem to protect
    (
        {"principal": ":a"},
        (0, ""),
        (INVALID, "Could not parse principal from `:a` (write TYPE:NAME, such as User:alice)"),
    ),
    ({"host": ""}, (0, ""), (INVALID, "The host should not be empty: * means any")),
]

Connect = Callable[[], socket.socket]
PATIENCE_SECONDS = 60.0


def eventually(holds: Callable[[], bool]) -> None:
    """Return once it holds: Kafka's brokers learn of a change a moment after it is answered."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def creation(
    kind: int = TOPIC,
    name: str = "x",
    pattern: int = LITERAL,
    principal: str = "User:a",
    host: str = "*",
    operation: int = 3,
    permission: int = 3,
) -> Any:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def fields(
    kind: int = 1,
    name: str | None = None,
    pattern: int = 1,
    principal: str | None = None,
    host: str | None = None,
    operation: int = 1,
    permission: int = 1,
) -> dict[str, Any]:
    """The fields of a filter; all of it is ANY."""
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": host,
        "operation": operation,
        "permission_type": permission,
    }


class AclWire:
    """Requests about ACLs, each on a connection of its own, because some end it.

    `patience_s`: how long `describe` may lack a change that was answered; Kafka's brokers learn of it a moment later.
    """

    def __init__(self, connect: Connect, version: int = 3, patience_s: float = 0.0) -> None:
        self._connect = connect
        self._version = version
        self._patience_s = patience_s

    def expect(self, count: int) -> None:
        """Fail unless there are so many ACLs."""
        deadline = time.monotonic() + self._patience_s
        while len(found := self.describe()) != count:
            assert time.monotonic() < deadline, f"{len(found)} ACLs are there, not {count}"
            time.sleep(0.02)

    def call(self, key: int, request: Any) -> Any:
        with Wire(self._connect()) as wire:
            try:
                return wire.call(key, self._version, request)
            except ConnectionEnded:
                return CLOSED

    def create(self, *creations: Any) -> Any:
        """(code, message) of each, or CLOSED."""
        response = self.call(CREATE, CreateAclsRequest(creations=list(creations)))
        if response == CLOSED:
            return response
        return [(one.error_code, one.error_message or "") for one in response.results]

    def describe(self, **wanted: Any) -> Any:
        """(type, name, pattern, principal, host, operation, permission) of each ACL, sorted, or CLOSED."""
        response = self.call(DESCRIBE, DescribeAclsRequest(**fields(**wanted)))
        if response == CLOSED:
            return response
        assert response.error_code == ErrorCode.NONE, response
        return sorted(
            (one.resource_type, one.resource_name, one.pattern_type, *acl_fields(acl))
            for one in response.resources
            for acl in one.acls
        )

    def delete(self, *filters: dict[str, Any]) -> Any:
        """(code, message, names of the deleted) for each filter, or CLOSED."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**fields(**one)) for one in filters])
        response = self.call(DELETE, request)
        if response == CLOSED:
            return response
        return [
            (one.error_code, one.error_message, sorted(acl.resource_name for acl in one.matching_acls))
            for one in response.filter_results
        ]


def acl_fields(acl: Any) -> tuple[str, str, int, int]:
    return acl.principal, acl.host, acl.operation, acl.permission_type


def check_creations(acls: AclWire, *, is_kafka: bool) -> None:
    """Every row of CREATIONS; then none of them is left."""
    for changed, kafkas, ours in CREATIONS:
        expected = kafkas if is_kafka or ours is None else ours
        answer = acls.create(creation(**changed))
        assert answer == (CLOSED if expected == CLOSED else [expected]), changed
    acls.delete({})
    acls.expect(0)


def check_batches(acls: AclWire) -> None:
    """Each entry has its own result; an ACL that exists, or comes twice, is a success and is stored once."""
    valid, invalid = creation(name="m"), creation(name="")
    wrong = (INVALID, "Invalid empty resource name")
    prefixed = creation(name="n", pattern=PREFIXED)
    assert acls.create(valid, invalid, valid, prefixed) == [(0, ""), wrong, (0, ""), (0, "")]
    assert acls.create(valid) == [(0, "")]
    assert acls.create() == []
    acls.expect(2)
    assert acls.describe() == [
        (TOPIC, "m", LITERAL, "User:a", "*", 3, 3),
        (TOPIC, "n", PREFIXED, "User:a", "*", 3, 3),
    ]
    assert acls.delete({"name": "n"}, {"kind": 99}, {"name": "n"}, {"operation": 99}, {"name": "none"}) == [
        (0, None, ["n"]),
        (INVALID, "Unknown patternFilter.", []),
        (0, None, ["n"]),
        (INVALID, "Unknown entryFilter.", []),
        (0, None, []),
    ]
    assert acls.delete({"kind": 0}) == CLOSED
    acls.expect(1)
    assert [name for _, name, *_ in acls.describe()] == ["m"]
    assert acls.delete() == []
    acls.delete({})
    acls.expect(0)


def check_filters(acls: AclWire) -> None:
    """ResourcePatternFilter and AccessControlEntryFilter: null and ANY match all, MATCH what applies to a name."""
    acls.create(
        creation(name="ab"),
        creation(name="a", pattern=PREFIXED, principal="User:b"),
        creation(name="*", operation=4),
        creation(name="abc", permission=2, host="10.0.0.1"),
        creation(kind=USER, name="ab", operation=13),
    )
    acls.expect(5)

    def names(**wanted: Any) -> Any:
        found = acls.describe(**wanted)
        return found if found == CLOSED else [name for _, name, *_ in found]

    assert names(kind=TOPIC) == ["*", "a", "ab", "abc"]
    assert names(name="ab") == ["ab", "ab"]
    assert names(kind=TOPIC, name="ab", pattern=MATCH) == ["*", "a", "ab"]
    assert names(kind=TOPIC, name="*", pattern=MATCH) == ["*"]
    assert names(kind=TOPIC, pattern=MATCH) == ["*", "a", "ab", "abc"]
    assert names(kind=TOPIC, name="a", pattern=LITERAL) == []
    assert names(pattern=PREFIXED) == ["a"]
    assert names(principal="User:b") == ["a"]
    assert names(host="10.0.0.1") == ["abc"]
    assert names(host="10.0.0.2") == []
    assert names(operation=4) == ["*"]
    assert names(permission=2) == ["abc"]
    assert names(kind=USER) == ["ab"]
    assert names(name="") == []
    for unknown in ("kind", "pattern", "operation", "permission"):
        assert names(**{unknown: 0}) == CLOSED
        assert names(**{unknown: 99}) == []
    acls.delete({})
    acls.expect(0)


def check_limit(acls: AclWire) -> None:
    """QuorumController.MAX_RECORDS_PER_USER_OP: 10,000 ACLs in one request."""
    too_many = (ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    assert set(acls.create(*[creation(name=f"many-{number}") for number in range(10_001)])) == {too_many}
    acls.expect(0)


async def check_admin(admin: fencepost.Admin) -> None:
    """The calls of our admin client."""

    async def expect(*rules: Acl) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while await admin.describe_acls() != sorted(rules):
            assert time.monotonic() < deadline

    read = Acl(AclResourceType.TOPIC, "acl-a", "User:ann", AclOperation.READ)
    write = Acl(AclResourceType.TOPIC, "acl-", "User:bob", AclOperation.WRITE, pattern_type=PatternType.PREFIXED)
    no = Acl(AclResourceType.GROUP, "acl-g", "User:eve", AclOperation.ALL, AclPermission.DENY, host="10.0.0.7")
    await admin.create_acls([read, write, no])
    await expect(read, write, no)
    matching = AclFilter(AclResourceType.TOPIC, "acl-a", pattern_type=PatternType.MATCH)
    assert await admin.describe_acls(matching) == sorted([read, write])
    assert await admin.describe_acls(AclFilter(permission=AclPermission.DENY)) == [no]
    wrong = Acl(AclResourceType.TOPIC, "acl-a", "ann", AclOperation.READ)
    with pytest.raises(ItemsFailedError) as refused:
        await admin.create_acls([read, wrong])
    assert list(refused.value.errors) == [wrong]
    assert refused.value.errors[wrong].code is ErrorCode.INVALID_REQUEST
    gone = await admin.delete_acls([AclFilter(*write), AclFilter(principal="User:eve")])
    assert gone == {AclFilter(*write): [write], AclFilter(principal="User:eve"): [no]}
    await expect(read)
    await admin.delete_acls(AclFilter(*read))
    await expect()
