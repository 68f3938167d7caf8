"""A plan's changes one after the other, on a broker that returns no secret values, as Kafka does (row D9)."""

from typing import Any

import pytest
import trio

import fencepost
from fencepost.cli.setting_changes import changed, step_json, steps_text
from fencepost.client.admin import (
    Acl,
    AclOperation,
    AclResourceType,
    Applied,
    ClusterPlan,
    ConfigSource,
    ItemsFailedError,
    PlannedChange,
    WantedAcl,
    WantedConfigs,
    WantedTopic,
)
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tests.kit.scripted_broker import ScriptedBroker

PASSWORD = "ssl.keystore.password"
THREADS = "log.cleaner.threads"
SET, DELETE = 0, 1


class Keeper(ScriptedBroker):
    """A broker with settings at run time; a value of None is a secret's."""

    def __init__(self, settings: dict[str, str | None]) -> None:
        super().__init__()
        self.settings = settings
        self.altered: list[tuple[bool, str, int, str | None]] = []

    def on_DescribeConfigs(self, request: Any, version: int) -> Any:
        source = ConfigSource.DYNAMIC_BROKER_CONFIG
        configs = [
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                config_source=source,
                is_sensitive=value is None,
                synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)],
            )
            for name, value in self.settings.items()
        ]
        (one,) = request.resources
        told = DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name, configs=configs)
        return DescribeConfigsResponse(results=[told])

    def on_IncrementalAlterConfigs(self, request: Any, version: int) -> Any:
        (one,) = request.resources
        self.altered += [(request.validate_only, c.name, c.config_operation, c.value) for c in one.configs]
        done = AlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name)
        return IncrementalAlterConfigsResponse(responses=[done])


async def applied(nursery: trio.Nursery, broker: Keeper, wanted: dict[str, str | None]) -> Applied:
    """Settings of its only broker, made so step by step."""
    await nursery.start(broker.serve)
    async with fencepost.Client(broker.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        plan = ClusterPlan(configs=(WantedConfigs("broker", "1", wanted),))
        return await admin.apply(plan, atomic=False)


@pytest.fixture
def broker() -> Keeper:
    """One that has a secret and something that is none."""
    return Keeper({PASSWORD: None, THREADS: "2"})


async def test_a_secret_is_taken_away(nursery: trio.Nursery, broker: Keeper) -> None:
    """Its value is not told, and that it is set is (kafka-rules D2): so there is something to take away."""
    done = await applied(nursery, broker, {PASSWORD: None, THREADS: "2", "ssl.key.password": None})
    assert [(change.action, change.setting, change.after) for change in done.changes] == [("delete", PASSWORD, None)]
    assert broker.altered == [(True, PASSWORD, DELETE, None), (False, PASSWORD, DELETE, None)]


async def test_a_secret_is_set_anew_and_never_shown(nursery: trio.Nursery, broker: Keeper) -> None:
    """Nobody can tell whether it is as it shall be; what is told of the change ends up in logs."""
    new = "listener.name.outside.ssl.key.password"
    done = await applied(nursery, broker, {PASSWORD: "hunter2", new: "hunter3", THREADS: "3"})
    hidden = "(secret)"
    assert done.changes == (
        PlannedChange("change", "broker", "1", PASSWORD, hidden, hidden),
        PlannedChange("create", "broker", "1", new, None, hidden),
        PlannedChange("change", "broker", "1", THREADS, "2", "3"),
    )
    assert [one[1:] for one in broker.altered if not one[0]] == [
        (PASSWORD, SET, "hunter2"),
        (new, SET, "hunter3"),
        (THREADS, SET, "3"),
    ]


async def test_a_secret_that_is_new_to_the_broker_is_not_shown_by_the_command(nursery: trio.Nursery) -> None:
    """DescribeConfigs says that a setting is a secret only of what it tells at all: of `broker all`, what is set."""
    broker = Keeper({THREADS: "2"})
    await nursery.start(broker.serve)
    async with fencepost.Client(broker.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        steps = await changed(admin, {"broker": ""}, {PASSWORD: "hunter2", THREADS: "3"})
    assert [(step.name, step.sensitive) for step in steps] == [(PASSWORD, True), (THREADS, False)]
    assert "hunter2" not in steps_text(steps)
    assert [step_json(step, False)["after"] for step in steps] == [None, "3"]


async def test_what_a_plan_says_in_two_ways_is_refused_before_anything_is_done(
    nursery: trio.Nursery, broker: Keeper
) -> None:
    """As by a broker that knows plans: no order of the steps would make it true."""
    await nursery.start(broker.serve)
    rule = Acl(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ)
    plan = ClusterPlan(
        (WantedTopic("t", 2), WantedTopic("t", absent=True), WantedTopic("u")),
        (WantedConfigs("broker", "", {THREADS: "3"}), WantedConfigs("broker", "", {THREADS: "4"})),
        (WantedAcl(rule), WantedAcl(rule, absent=True), WantedAcl(rule._replace(name="u"))),
    )
    async with fencepost.Client(broker.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        with pytest.raises(ItemsFailedError) as refused:
            await admin.apply(plan, atomic=False)
    assert {what: error.code for what, error in refused.value.errors.items()} == dict.fromkeys(
        ["topic t", "broker all", "acl User:a READ TOPIC t, ALLOW from *"], ErrorCode.INVALID_REQUEST
    )
    assert set(broker.names()) <= {"ApiVersions", "Metadata"}


async def test_who_will_not_tell_what_is_set_is_named_as_a_part_of_the_plan(
    nursery: trio.Nursery, broker: Keeper
) -> None:
    """One error for each thing, and nothing is done for the others either."""
    await nursery.start(broker.serve)
    no = DescribeConfigsResult(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="not yours",
        resource_type=ConfigResourceType.GROUP,
        resource_name="g",
    )
    broker.scripts["DescribeConfigs"].append(DescribeConfigsResponse(results=[no]))
    plan = ClusterPlan(configs=(WantedConfigs("group", "g", {"a": "1"}), WantedConfigs("broker", "1", {THREADS: "4"})))
    async with fencepost.Client(broker.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        with pytest.raises(ItemsFailedError) as refused:
            await admin.apply(plan, atomic=False)
    told = {what: error.code for what, error in refused.value.errors.items()}
    assert (told, refused.value.results) == ({"group g": ErrorCode.TOPIC_AUTHORIZATION_FAILED}, {})
    assert broker.altered == []
