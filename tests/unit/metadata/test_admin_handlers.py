"""Levels of loggers, subscriptions of client metrics, settings without effect, and lists of all that has settings."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker.config.entries import broker_entries
from fencepost.broker.config.topic_config import NO_DYNAMIC
from fencepost.broker.config.without_effect import WITHOUT_EFFECT
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.errors import ErrorCode
from tests.unit.metadata.wire import NodeDouble, ask, messages, node, versions

SET, DELETE = 0, 1
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def chatty() -> Iterator[logging.Logger]:
    """A logger of this test's own."""
    made = logging.getLogger("fencepost.tests.chatty")
    yield made
    made.setLevel(logging.NOTSET)


async def alter(on: NodeDouble, kind: int, name: str, *edits: tuple[str, int, str | None], only: bool = False) -> Any:
    """IncrementalAlterConfigs of one resource; its code and words."""
    m = messages(44)
    configs = [m.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in edits]
    resource = m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)
    [answer] = (await ask(on, 44, 1, request)).responses
    return answer.error_code, answer.error_message


async def described(on: NodeDouble, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """DescribeConfigs of one resource, by name."""
    m = messages(32)
    resource = m.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    [result] = (await ask(on, 32, 4, request)).results
    return {entry.name: entry for entry in result.configs}


async def test_d2_the_level_of_a_logger_is_altered_and_given_back(chatty: logging.Logger) -> None:
    """KIP-412; a level that is only tried stays."""
    on = await node()
    edit = (chatty.name, SET, "TRACE")
    assert await alter(on, BROKER_LOGGER, "1", edit, only=True) == (0, None)
    assert chatty.level == logging.NOTSET
    assert await alter(on, BROKER_LOGGER, "1", edit) == (0, None)
    assert chatty.isEnabledFor(logging.DEBUG)
    assert (await described(on, BROKER_LOGGER, "1", chatty.name))[chatty.name].value == "TRACE"
    assert await alter(on, BROKER_LOGGER, "1", (chatty.name, SET, "ERROR")) == (0, None)
    assert not chatty.isEnabledFor(logging.WARNING)
    assert await alter(on, BROKER_LOGGER, "1", (chatty.name, DELETE, None)) == (0, None)
    assert chatty.level == logging.NOTSET


@pytest.mark.parametrize("kind", [BROKER, BROKER_LOGGER])
async def test_d2_a_broker_changes_its_own_settings_alone(kind: int) -> None:
    """ConfigAdminManager.preprocess: the broker that a client asks compares the id with its own."""
    on = await node()
    for name in ("2", "one"):
        assert (await alter(on, kind, name, ("root", SET, "INFO")))[0] == ErrorCode.INVALID_REQUEST


async def test_d2_a_resource_that_is_named_twice_is_refused(chatty: logging.Logger) -> None:
    m = messages(44)
    configs = [m.AlterableConfig(name=chatty.name, config_operation=SET, value="TRACE")]
    twice = [m.AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name="1", configs=configs) for _ in range(2)]
    answer = await ask(await node(), 44, 1, m.IncrementalAlterConfigsRequest(resources=twice))
    assert [one.error_code for one in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert chatty.level == logging.NOTSET


async def test_d2_all_edits_of_loggers_or_none(chatty: logging.Logger) -> None:
    on = await node()
    code, words = await alter(on, BROKER_LOGGER, "1", (chatty.name, SET, "ERROR"), ("no.such", SET, "INFO"))
    assert (code, words) == (ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!")
    assert chatty.level == logging.NOTSET


async def test_d2_what_has_no_effect_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's settings that mean nothing here are listed with Kafka's defaults, taken, kept, and named in the log."""
    on = await node()
    assert await alter(on, BROKER, "", ("num.io.threads", SET, "16")) == (0, None)
    assert "setting has no effect here name=num.io.threads value=16" in caplog.text
    found = (await described(on, BROKER, "1"))["num.io.threads"]
    assert (found.value, found.config_source) == ("16", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert found.documentation.startswith("No effect here: ")
    assert [origin.value for origin in found.synonyms] == ["16", "8"]
    assert (await described(on, BROKER, ""))["num.io.threads"].value == "16"
    code, _ = await alter(on, BROKER, "", ("num.io.threads", SET, "many"))
    assert code == ErrorCode.INVALID_REQUEST
    code, _ = await alter(on, BROKER, "", ("queued.max.requests", SET, "16"))
    assert code == ErrorCode.INVALID_REQUEST  # Kafka takes that one at its start only
    for name in ("flush.messages", "preallocate", "remote.log.copy.disable", "unclean.leader.election.enable"):
        assert "No effect here" in (await described(on, TOPIC, "a"))[name].documentation


async def test_d2_nothing_that_would_guard_something_is_taken_in_vain() -> None:
    guards = ("authorizer.", "sasl.", "ssl.", "security.", "principal.", "delegation.", "connections.", "quota.client")
    harmless = ("sasl.kerberos.", "sasl.login.", "sasl.mechanism.")  # there is no Kerberos, and no other broker
    guarded = [name for name in WITHOUT_EFFECT if name.startswith(guards) or "policy" in name]
    assert [name for name in guarded if not name.startswith(harmless)] == [
        # Java's implementations of what OpenSSL does here; a broker checks no host names
        "ssl.endpoint.identification.algorithm",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ]
    on = await node()
    code, _ = await alter(on, BROKER, "", ("sasl.enabled.mechanisms", SET, "PLAIN"))
    assert code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.kerberos.min.time.before.relogin", "58000"),  # librdkafka's test 0081 sets it
        ("sasl.kerberos.kinit.cmd", "/usr/bin/kinit"),
        ("sasl.kerberos.service.name", "kafka"),
        ("sasl.kerberos.ticket.renew.window.factor", "0.8"),
        ("sasl.login.refresh.buffer.seconds", "300"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("ssl.keymanager.algorithm", "SunX509"),
    ],
)
async def test_d2_some_settings_are_of_one_broker_only(name: str, value: str) -> None:
    """The answers of Apache Kafka 4.3 to the same requests."""
    on = await node()
    assert await alter(on, BROKER, "1", (name, SET, value)) == (0, None)
    assert (await described(on, BROKER, "1"))[name].value == value
    assert await alter(on, BROKER, "", (name, SET, value)) == (
        ErrorCode.INVALID_REQUEST,
        f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]",
    )


async def test_d2_every_setting_is_explained() -> None:
    """KIP-569: a type and a sentence for each."""
    on = await node()
    for entry in broker_entries(on.config, NO_DYNAMIC):
        assert entry.documentation, entry.name
        assert entry.kind, entry.name
    for kind, name in ((TOPIC, "a"), (GROUP, "g"), (CLIENT_METRICS, "m")):
        assert all(entry.documentation for entry in (await described(on, kind, name)).values())


@pytest.mark.parametrize("expression", ["(", "a{99999999999999}", "(" * 5000 + ")" * 5000])
async def test_d2_expressions_of_a_subscription_that_python_can_not_compile(expression: str) -> None:
    """KIP-714: an illegal pattern is INVALID_CONFIG, also where it is too large or too deep to be one at all."""
    on = await node()
    match = f"client_id={expression}"
    code, message = await alter(on, CLIENT_METRICS, "m", ("match", SET, match))
    assert (code, message) == (ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {match}")


@versions(74)
async def test_d3_resources_with_settings_are_listed(version: int) -> None:
    """KIP-1142; v0 knows client metrics only."""
    on = await node()
    assert await alter(on, CLIENT_METRICS, "m", ("interval.ms", SET, "1000")) == (0, None)
    assert await alter(on, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    answer = await ask(on, 74, version, messages(74).ListConfigResourcesRequest())
    found = {(one.resource_type, one.resource_name) for one in answer.config_resources}
    if version == 0:
        assert found == {(CLIENT_METRICS, "m")}
        return
    topics = {(TOPIC, name) for name in ("a", "b", "__consumer_offsets", "__transaction_state")}
    assert found == {(CLIENT_METRICS, "m"), (GROUP, "g"), (BROKER, "1"), (BROKER_LOGGER, "1"), *topics}
    some = await ask(on, 74, version, messages(74).ListConfigResourcesRequest(resource_types=[GROUP]))
    assert [one.resource_name for one in some.config_resources] == ["g"]


@pytest.mark.parametrize("kind", [2, -1])
async def test_d8_there_are_two_kinds_of_elections(kind: int) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR here."""
    m = messages(43)
    place = m.TopicPartitions(topic="a", partitions=[0])
    answer = await ask(await node(), 43, 2, m.ElectLeadersRequest(election_type=kind, topic_partitions=[place]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_d8_the_only_broker_is_not_forgotten() -> None:
    """Kafka forgets and fences even a living one."""
    on = await node()
    codes = [
        (await ask(on, 64, 0, messages(64).UnregisterBrokerRequest(broker_id=number))).error_code for number in (1, 2)
    ]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED]
