"""A plan as people write it: TOML or JSON, and every mistake named with its place (row D9)."""

import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.client import ConfigError
from fencepost.client.admin import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    ClusterPlan,
    PatternType,
    WantedAcl,
    WantedConfigs,
    WantedTopic,
)
from fencepost.client.admin.plan_file import parse_plan

ALL_OF_IT = """
[topics.orders]
partitions = 12
replication_factor = 1
configs = { "retention.ms" = 86400000, "cleanup.policy" = ["compact", "delete"], "preallocate" = true }
unset = ["retention.bytes"]

[topics.customers.configs]
segment.bytes = 1048576
min.cleanable.dirty.ratio = 0.25

[topics.old]
state = "absent"

[brokers.all.configs]
log.retention.ms = 604800000
[brokers.3]
unset = "log.retention.ms"
[groups.billing.configs]
consumer.session.timeout.ms = "30000"

[[acls]]
principals = ["User:billing", "User:audit"]
operations = ["read", "DescribeConfigs"]
topic = "orders-"
pattern = "prefixed"

[[acls]]
principal = "User:mallory"
operation = "all"
cluster = true
permission = "deny"
host = "10.0.0.7"
state = "absent"
"""


def test_everything_that_a_plan_can_say() -> None:
    plan = parse_plan(ALL_OF_IT)
    orders = {"retention.ms": "86400000", "cleanup.policy": "compact,delete", "preallocate": "true"}
    customers = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.25"}
    assert plan.topics == (
        WantedTopic("orders", 12, 1, {**orders, "retention.bytes": None}),
        WantedTopic("customers", configs=customers),
        WantedTopic("old", absent=True),
    )
    assert plan.configs == (
        WantedConfigs("broker", "", {"log.retention.ms": "604800000"}),
        WantedConfigs("broker", "3", {"log.retention.ms": None}),
        WantedConfigs("group", "billing", {"consumer.session.timeout.ms": "30000"}),
    )
    *prefixed, last = plan.acls
    assert [(one.rule.principal, one.rule.operation, one.absent) for one in prefixed] == [
        ("User:billing", AclOperation.READ, False),
        ("User:billing", AclOperation.DESCRIBE_CONFIGS, False),
        ("User:audit", AclOperation.READ, False),
        ("User:audit", AclOperation.DESCRIBE_CONFIGS, False),
    ]
    assert {(one.rule.resource_type, one.rule.name, one.rule.pattern_type) for one in prefixed} == {
        (AclResourceType.TOPIC, "orders-", PatternType.PREFIXED)
    }
    denied = Acl(
        AclResourceType.CLUSTER, "kafka-cluster", "User:mallory", AclOperation.ALL, AclPermission.DENY, "10.0.0.7"
    )
    assert last == WantedAcl(denied, absent=True)


def test_json_says_the_same_and_null_takes_away(tmp_path: Path) -> None:
    content = {"topics": {"a": {"partitions": 2, "configs": {"retention.ms": None, "segment.bytes": 9}}}}
    expected = ClusterPlan((WantedTopic("a", 2, configs={"retention.ms": None, "segment.bytes": "9"}),))
    (tmp_path / "plan.json").write_text(json.dumps(content))
    (tmp_path / "plan").write_text(json.dumps(content))
    assert ClusterPlan.read(tmp_path / "plan.json") == expected
    assert ClusterPlan.read(str(tmp_path / "plan")) == expected, "told by its first brace"
    assert ClusterPlan.from_mapping(content) == expected
    (tmp_path / "plan.toml").write_text("[topics.a]\npartitions = 2\n")
    assert ClusterPlan.read(tmp_path / "plan.toml") == ClusterPlan((WantedTopic("a", 2),))
    assert parse_plan("") == ClusterPlan(), "nothing is a plan, too"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[topic.a]", "unknown key 'topic'; the nearest is 'topics'"),
        ("[topics.a]\npartition = 3", "topics.a: unknown key 'partition'; the nearest is 'partitions'"),
        ("[topics.a]\npartitions = 0", "topics.a.partitions: must be a whole number from 1 to 2147483647, not 0"),
        ("[topics.a]\npartitions = '3'", "topics.a.partitions: must be a whole number"),
        ("[topics.a]\npartitions = true", "topics.a.partitions: must be a whole number"),
        ("[topics.a]\nstate = 'gone'", "topics.a.state: must be present or absent"),
        ("[topics.a]\nstate = 'absent'\npartitions = 2", "topics.a: a topic with state absent must have no other keys"),
        ("topics = 3", "topics: must be a table, not 3"),
        ("[topics]\na = 3", "topics.a: must be a table"),
        ("[topics.a]\nunset = [3]", "topics.a.unset: must be a string or a list of strings"),
        ("[topics.a]\nconfigs = {x = 1}\nunset = 'x'", "topics.a: x is both set and unset"),
        ("[topics.a]\nconfigs = {x = [1]}", "topics.a.configs.x: must be a string, a number, true or false"),
        ("[topics.a]\nconfigs = {x = 2026-11-22}", "topics.a.configs.x: must be a string"),
        ("[brokers.some]", "brokers.some: name a broker by its id, or 'all'"),
        ("acls = {}", "acls: must be a list of rules"),
        ("[[acls]]\nprincipal = 'User:a'", "acls, rule 1: name exactly one of topic, group, cluster"),
        ("[[acls]]\ntopic = 't'\ngroup = 'g'", "acls, rule 1: name exactly one of"),
        ("[[acls]]\ntopic = 't'\noperation = 'read'", "acls, rule 1: principals must be given"),
        ("[[acls]]\ntopic = 't'\nprincipal = 'User:a'", "acls, rule 1: operations must be given"),
        ("[[acls]]\ntopic = 't'\nprincipal = 'a'\noperation = 'read'", "'a' must be of the form User:NAME"),
        (
            "[[acls]]\ntopic = 't'\nprincipal = 'User:a'\noperation = 'reed'",
            "acls, rule 1.operations: 'reed' must be one of",
        ),
        ("[[acls]]\ntopic = ''\nprincipal = 'User:a'\noperation = 'read'", "acls, rule 1.topic: must be a name"),
        ("[[acls]]\ncluster = false\nprincipal = 'User:a'\noperation = 'read'", "cluster: must be true"),
        (
            "[[acls]]\ntopic = 't'\nprincipal = 'User:a'\nprincipals = ['User:b']\noperation = 'read'",
            "acls, rule 1: give principal or principals, not both",
        ),
        (
            "[[acls]]\ntopic = 't'\nprincipal = 'User:a'\noperation = 'read'\noperations = ['write']",
            "acls, rule 1: give operation or operations, not both",
        ),
        (
            "[[acls]]\ntopic = 't'\nprincipal = 'User:a'\noperation = 'read'\nhosts = ['h']\nhost = 'i'",
            "acls, rule 1: give host or hosts, not both",
        ),
        (
            "[topics.a.configs]\nretention.ms = 1\n'retention.ms' = 2",
            "topics.a.configs: retention.ms is set more than once",
        ),
        ("[topics.a]\nunset = ['x', 'y', 'x']", "topics.a.unset: x appears more than once"),
        ("[brokers.1]\n[brokers.01]", "brokers.01: broker 1 is named more than once"),
        ('{"topics": {"a": {}, "a": {"partitions": 3}}}', "the plan: the key 'a' appears more than once"),
        ('{"topics": {"a": {"configs": {"x": 1, "x": 2}}}}', "the plan: the key 'x' appears more than once"),
        ("[topics.a]\npartitions = 3000000000", "topics.a.partitions: must be a whole number from 1 to 2147483647"),
        ("[topics.a]\nreplication_factor = 32768", "a.replication_factor: must be a whole number from 1 to 32767"),
        ("[brokers.99999999999]", "brokers.99999999999: name a broker by its id, or 'all'"),
        ("[[acls]]\ntopic = 't'\nprincipal = 'User:a'\noperation = 'read'\nhosts = []", "hosts must be given"),
        ("[topics.a.configs.retention]", "topics.a.configs.retention: must not be empty"),
        ("[topics.a\n", "the plan is not valid TOML"),
        ("{", "the plan is not valid JSON"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_plan(text)
    assert says in str(told.value)


@pytest.mark.parametrize("section", ["topics", "brokers", "groups"])
def test_names_are_strings(section: str) -> None:
    with pytest.raises(ConfigError, match=f"{section}: 1 must be a string"):
        ClusterPlan.from_mapping({section: {1: {}}})


def test_what_is_no_object_and_what_is_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a plan must be an object"):
        parse_plan("[]", json_named=True)
    (tmp_path / "plan.yaml").write_text("topics:\n  a: {}\n")
    with pytest.raises(ConfigError, match="TOML or JSON, not YAML"):
        ClusterPlan.read(tmp_path / "plan.yaml")
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        ClusterPlan.read(tmp_path / "plan.toml")
    with pytest.raises(FileNotFoundError):
        ClusterPlan.read(tmp_path / "nowhere.toml")


def test_the_same_principal_rule_for_all_kinds_of_resources() -> None:
    kinds: dict[str, Any] = {
        "topic": AclResourceType.TOPIC,
        "group": AclResourceType.GROUP,
        "transactional_id": AclResourceType.TRANSACTIONAL_ID,
        "delegation_token": AclResourceType.DELEGATION_TOKEN,
        "user": AclResourceType.USER,
    }
    for key, kind in kinds.items():
        plan = ClusterPlan.from_mapping({"acls": [{"principal": "User:*", "operation": "describe", key: "*"}]})
        assert (plan.acls[0].rule.resource_type, plan.acls[0].rule.name) == (kind, "*")
