"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs at every version."""

from typing import Any

import pytest

from fencepost.broker.config.fields import Kind
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.errors import ErrorCode
from tests.unit.metadata.wire import NodeDouble, ask, messages, node, versions


async def describe(on: NodeDouble, version: int, kind: int, name: str, keys=None, **more) -> Any:
    m = messages(32)
    resource = m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer = await ask(on, 32, version, m.DescribeConfigsRequest(resources=[resource], **more))
    return answer.results[0]


@versions(32)
async def test_describe_configs_of_a_topic(version: int) -> None:
    on = await node("log.retention.hours=3")
    result = await describe(on, version, 2, "a")
    configs = {config.name: config for config in result.configs}
    assert configs["retention.ms"].value == "5"
    assert configs["cleanup.policy"].value == "delete"
    assert not configs["retention.ms"].read_only
    if version == 0:
        assert (configs["retention.ms"].is_default, configs["cleanup.policy"].is_default) == (False, True)
    else:
        assert configs["retention.ms"].config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert configs["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
    if version >= 3:
        assert (configs["retention.ms"].config_type, configs["cleanup.policy"].config_type) == (5, 7)
    [only] = (await describe(on, version, 2, "b", ["retention.ms"])).configs
    assert (only.name, only.value) == ("retention.ms", "10800000")


async def test_describe_configs_with_synonyms_and_documentation() -> None:
    """KIP-226, KIP-569."""
    on = await node("log.retention.hours=3")
    [plain] = (await describe(on, 4, 2, "a", ["retention.ms"])).configs
    assert (plain.synonyms, plain.documentation) == ([], None)
    [full] = (
        await describe(on, 4, 2, "a", ["retention.ms"], include_synonyms=True, include_documentation=True)
    ).configs
    assert [(entry.name, entry.value, entry.source) for entry in full.synonyms] == [
        ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.hours", "10800000", ConfigSource.STATIC_BROKER_CONFIG),
    ]
    assert full.documentation


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "7", ErrorCode.INVALID_REQUEST),
        (4, "one", ErrorCode.INVALID_REQUEST),
        (8, "", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (64, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_describe_configs_of_what_there_is_not(kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(await node(), 4, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert (result.resource_type, result.resource_name) == (kind, name)


async def alter(on: NodeDouble, key: int, version: int, kind: int, name: str, *edits, validate_only=False) -> int:
    m = messages(key)
    if key == 33:
        configs = [m.AlterableConfig(name=config, value=value) for config, value in edits]
        resource = m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = m.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    else:
        configs = [m.AlterableConfig(name=config, config_operation=op, value=value) for config, op, value in edits]
        resource = m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [response] = (await ask(on, key, version, request)).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert (response.error_message is None) == (response.error_code == 0)
    return int(response.error_code)


@versions(33)
async def test_alter_configs_replaces_the_whole_set(version: int) -> None:
    on = await node()
    assert await alter(on, 33, version, 2, "a", ("segment.ms", "9"), validate_only=True) == 0
    assert on.metadata.image.topic_config("a") == {"retention.ms": "5"}
    assert await alter(on, 33, version, 2, "a", ("segment.ms", "9")) == 0
    assert on.metadata.image.topic_config("a") == {"segment.ms": "9"}
    assert await alter(on, 33, version, 2, "a", ("segment.ms", "soon")) == ErrorCode.INVALID_CONFIG


@versions(44)
async def test_incremental_alter_configs_edits(version: int) -> None:
    on = await node()
    edits = [("cleanup.policy", 2, "compact"), ("retention.ms", 1, None), ("segment.ms", 0, "7")]
    assert await alter(on, 44, version, 2, "a", *edits) == 0
    assert on.metadata.image.topic_config("a") == {"cleanup.policy": "delete,compact", "segment.ms": "7"}
    assert on.metadata.log_config("a").segment_ms == 7
    assert await alter(on, 44, version, 2, "a", ("segment.ms", 0, None)) == ErrorCode.INVALID_REQUEST


async def test_a_broker_setting_altered_for_all_reaches_every_topic_that_says_nothing() -> None:
    on = await node()
    assert await alter(on, 44, 1, 4, "", ("log.retention.ms", 0, "77")) == 0
    assert on.metadata.log_config("b").retention_ms == 77
    assert on.metadata.log_config("a").retention_ms == 5
    [entry] = (await describe(on, 4, 2, "b", ["retention.ms"])).configs
    assert (entry.value, entry.config_source) == ("77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    [cluster_wide] = (await describe(on, 4, 4, "")).configs
    assert (cluster_wide.name, cluster_wide.value) == ("log.retention.ms", "77")
    assert await alter(on, 44, 1, 4, "1", ("log.retention.ms", 0, "78")) == 0
    assert on.metadata.log_config("b").retention_ms == 78
    [own] = (await describe(on, 4, 4, "1", ["log.retention.ms"], include_synonyms=True)).configs
    assert [synonym.value for synonym in own.synonyms] == ["78", "77"]
    assert await alter(on, 44, 1, 4, "1", ("log.retention.ms", 1, None)) == 0
    assert on.metadata.log_config("b").retention_ms == 77


async def test_describe_configs_of_the_broker() -> None:
    result = await describe(await node("num.partitions=4"), 4, 4, "1")
    configs = {config.name: config for config in result.configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("4", True)
    assert configs["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert not configs["log.retention.ms"].read_only
    sensitive = {config.name for config in result.configs if config.is_sensitive}
    assert sensitive == {config.name for config in result.configs if config.config_type == Kind.PASSWORD}
    assert sensitive >= {"first.password", "sasl.jaas.config", "ssl.key.password"}


async def test_the_value_of_a_secret_is_not_described() -> None:
    """Type PASSWORD: Kafka leaves out the value."""
    jaas = 'sasl.jaas.config=x required user_alice="hunter2";'
    on = await node(jaas)
    [found] = [one for one in (await describe(on, 4, 4, "1")).configs if one.name == "sasl.jaas.config"]
    assert (found.value, found.is_sensitive, found.config_source) == (None, True, ConfigSource.STATIC_BROKER_CONFIG)
    assert [one.value for one in found.synonyms] == [None] * len(found.synonyms)
    assert "hunter2" not in repr(on.config)
