"""Access rules through the admin clients of confluent-kafka, kafka-python and fencepost.

`FENCEPOST_ACL_BOOTSTRAP=host:port` points the same tests at another broker where User:ANONYMOUS is a super user and no
rule is set. They pass against Apache Kafka 4.3.1.
"""

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaPythonType

import fencepost
from tests.kit import acl_answers
from tests.kit.broker_process import BrokerProcess

GIVEN = os.environ.get("FENCEPOST_ACL_BOOTSTRAP")
SETTINGS = {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a broker with an authorizer."""
    if GIVEN:
        yield GIVEN
        return
    with BrokerProcess(tmp_path_factory.mktemp("acls"), settings=SETTINGS) as broker:
        yield broker.address


@pytest.fixture
async def admin(address: str) -> AsyncIterator[fencepost.Admin]:
    """Our admin client."""
    async with fencepost.Client(address, default_api_timeout=100) as client, client.admin() as admin:
        yield admin


async def test_our_admin_client(admin: fencepost.Admin) -> None:
    await acl_answers.check_admin(admin)


def confluent_rule(name: str, pattern: Any, principal: str, operation: Any, permission: Any) -> Any:
    return confluent.AclBinding(confluent.ResourceType.TOPIC, name, pattern, principal, "*", operation, permission)


def test_confluent_kafka(address: str) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": address})
    literal, prefixed = confluent.ResourcePatternType.LITERAL, confluent.ResourcePatternType.PREFIXED
    read, deny = confluent.AclOperation.READ, confluent.AclPermissionType.DENY
    allow = confluent.AclPermissionType.ALLOW
    rules = [
        confluent_rule("c-orders", literal, "User:ann", read, allow),
        confluent_rule("c-", prefixed, "User:bob", read, deny),
    ]
    for future in admin.create_acls(rules).values():
        assert future.result(100) is None
    [refused] = admin.create_acls([confluent_rule("c-orders", literal, "ann", read, allow)]).values()
    with pytest.raises(KafkaException, match="no colon"):
        refused.result(100)
    everything = confluent.AclBindingFilter(
        confluent.ResourceType.TOPIC,
        "c-orders",
        confluent.ResourcePatternType.MATCH,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )

    def principals() -> set[str]:
        return {one.principal for one in admin.describe_acls(everything).result(100)}

    acl_answers.eventually(lambda: principals() == {"User:ann", "User:bob"})
    [deleted] = admin.delete_acls([everything]).values()
    assert {(one.name, one.permission_type) for one in deleted.result(100)} == {("c-orders", allow), ("c-", deny)}
    acl_answers.eventually(lambda: principals() == set())


def test_kafka_python(address: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    pattern = ResourcePattern(KafkaPythonType.GROUP, "k-group", ACLResourcePatternType.LITERAL)
    rule = ACL("User:kim", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    wanted = ACLFilter(
        "User:kim",
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(KafkaPythonType.ANY, None, ACLResourcePatternType.ANY),
    )
    try:
        created = admin.create_acls([rule])
        assert (len(created["succeeded"]), created["failed"]) == (1, [])
        acl_answers.eventually(lambda: admin.describe_acls(wanted)[0] == [rule])
        [(_, deleted, error)] = admin.delete_acls([wanted])
        assert (deleted, error.errno) == ([rule], 0)
        acl_answers.eventually(lambda: admin.describe_acls(wanted)[0] == [])
    finally:
        admin.close()
