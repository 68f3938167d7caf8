"""`fencepost topic apply` and `Admin.apply`: many things as one transaction of the metadata (rows D9, M2)."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import fencepost
import fencepost.sync
from fencepost.cli.main import cli
from fencepost.client.admin import (
    Acl,
    AclOperation,
    AclResourceType,
    ClusterPlan,
    ItemsFailedError,
    NewTopic,
    PlannedChange,
    WantedAcl,
    WantedConfigs,
    WantedTopic,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api19_create_topics as m19
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json, whom_to_ask
from tests.kit.wire import Wire

PLAN = """
[topics.plan-new]
partitions = 3
configs = { "retention.ms" = 86400000, "cleanup.policy" = ["compact", "delete"] }

[topics.plan-grows]
partitions = 4
configs = { "segment.bytes" = 1048576 }
unset = ["retention.ms"]

[topics.plan-goes]
state = "absent"

[brokers.all.configs]
log.cleaner.backoff.ms = 16000

[groups.plan-group.configs]
consumer.session.timeout.ms = 50000

[[acls]]
principal = "User:billing"
operations = ["read", "describe"]
topic = "plan-new"
"""


def apply(broker: BrokerProcess, plan: str, *words: str) -> Result:
    """Apply a plan from standard input."""
    return CliRunner().invoke(cli, ["topic", "apply", "-", *words, *whom_to_ask(broker, *words)], input=plan)


def topics(broker: BrokerProcess, pattern: str) -> dict[str, int]:
    """The topics that match, with their partitions."""
    return {one["name"]: one["partitions"] for one in command_json(broker, "topic", "list", pattern)}


def test_a_plan_is_shown_applied_and_then_nothing_is_left_to_do(broker: BrokerProcess, tmp_path: Path) -> None:
    """Row D9: topics, partitions, settings of topics, brokers and groups, and ACLs, in one change."""
    command(broker, "topic", "create", "plan-grows", "--set", "retention.ms=1000")
    command(broker, "topic", "create", "plan-goes", "-p", "2")
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    shown = [
        "+ topic plan-new (3 partitions)",
        "+   retention.ms: 86400000",
        "+   cleanup.policy: compact,delete",
        "~ topic plan-grows",
        "~   partitions: 1 -> 4",
        "+   segment.bytes: 1048576",
        "-   retention.ms: 1000 -> unset",
        "- topic plan-goes (2 partitions)",
        "~ broker all",
        "+   log.cleaner.backoff.ms: 16000",
        "~ group plan-group",
        "+   consumer.session.timeout.ms: 50000",
        "+ acl User:billing READ TOPIC plan-new, ALLOW from *",
        "+ acl User:billing DESCRIBE TOPIC plan-new, ALLOW from *",
    ]
    dry = command(broker, "topic", "apply", str(file), "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert dry.stdout.splitlines() == [*shown, "11 changes, to be made at once. Nothing was changed yet."]
    assert topics(broker, "plan-*") == {"plan-grows": 1, "plan-goes": 2}
    done = command(broker, "topic", "apply", str(file))
    assert done.stdout.splitlines() == [*shown, "11 changes, made at once."]
    assert topics(broker, "plan-*") == {"plan-new": 3, "plan-grows": 4}
    (told,) = command_json(broker, "topic", "describe", "plan-grows")
    assert told["configs"] == {"segment.bytes": "1048576"}
    assert command_json(broker, "config", "get", "group", "plan-group")[0]["value"] == "50000"
    assert command_json(broker, "config", "get", "broker", "all")[0]["value"] == "16000"
    again = command(broker, "topic", "apply", str(file))
    assert (again.exit_code, again.stdout) == (0, "Nothing to change: the cluster matches the plan.\n")


@pytest.mark.parametrize(
    ("bad", "code", "what"),
    [
        ("[topics.all-there]\npartitions = 1\n", "INVALID_PARTITIONS", "topic all-there"),
        ("[topics.all-there]\nreplication_factor = 3\n", "INVALID_REPLICATION_FACTOR", "topic all-there"),
        ('[topics."in valid"]\n', "INVALID_TOPIC_EXCEPTION", "topic in valid"),
        ('[topics.all-bad.configs]\nretention.ms = "soon"\n', "INVALID_CONFIG", "topic all-bad"),
        ('[topics.__consumer_offsets]\nstate = "absent"\n', "INVALID_REQUEST", "topic __consumer_offsets"),
        ("[brokers.all.configs]\nnode.id = 7\n", "INVALID_REQUEST", "broker all"),
        ("[brokers.7.configs]\nlog.cleaner.threads = 2\n", "BROKER_ID_NOT_REGISTERED", "broker 7"),
        ('[groups.g.configs]\nconsumer.session.timeout.ms = "x"\n', "INVALID_CONFIG", "group g"),
    ],
)
def test_one_thing_that_is_refused_keeps_all_from_being_done(
    broker: BrokerProcess, bad: str, code: str, what: str
) -> None:
    """Row D9: all or nothing, and the answer names whom to blame."""
    command(broker, "topic", "create", "all-there", "-p", "2", "--if-not-exists")
    plan = (
        f"{bad}\n[topics.all-new]\npartitions = 2\n[groups.all-group.configs]\nconsumer.heartbeat.interval.ms = 6000\n"
    )
    refused = apply(broker, plan)
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"{what}: "), refused.stderr
    assert (code in refused.stderr, "nothing was changed" in refused.stderr) == (True, True), refused.stderr
    as_json = apply(broker, plan, "--json", "--dry-run")
    (one,) = json.loads(as_json.stdout)["refused"]
    assert (one["what"], one["error"]) == (what, code)
    assert topics(broker, "all-*") == {"all-there": 2}
    assert command_json(broker, "config", "get", "group", "all-group") == []


def test_rules_that_no_authorizer_enforces_are_named(broker: BrokerProcess) -> None:
    """A broker without an authorizer keeps ACLs as data, and the command does not let anybody believe more."""
    rule = '[[acls]]\nprincipal = "User:a"\noperation = "write"\ngroup = "{}"\n'
    told = apply(broker, rule.format("told"))
    assert told.exit_code == 0
    assert "this broker has no authorizer" in told.stderr
    assert "enforce" not in apply(broker, "[topics.no-rules]\n").stderr
    gone = apply(broker, rule.format("told") + 'state = "absent"\n')
    assert gone.stdout.startswith("- acl User:a WRITE GROUP told, ALLOW from *\n")


def test_no_answer_means_that_it_may_be_done(broker: BrokerProcess) -> None:
    """A plan may be applied again, which a program that gives up has to know."""
    broker.pause()
    try:
        silent = apply(broker, "[topics.silent]\n", "--timeout", "3")
    finally:
        broker.resume()
    assert silent.exit_code == 1
    assert "apply it again" in silent.stderr or "is a broker running at" in silent.stderr, silent.stderr
    assert apply(broker, "[topics.silent]\n").exit_code == 0
    assert topics(broker, "silent") == {"silent": 1}


def test_a_rule_can_not_be_there_and_not_be_there(broker: BrokerProcess) -> None:
    rule = '[[acls]]\nprincipals = ["User:a", "User:a"]\noperation = "write"\ngroup = "torn"\n'
    both = apply(broker, f'{rule}{rule}state = "absent"\n')
    assert both.exit_code == 1
    assert both.stderr.startswith("acl User:a WRITE GROUP torn, ALLOW from *: "), both.stderr
    assert "INVALID_REQUEST" in both.stderr
    once = apply(broker, rule)
    assert once.stdout.endswith("\n1 change, made at once.\n"), "said twice is said once"


def test_what_a_plan_says_twice_is_refused(broker: BrokerProcess, wire: Wire) -> None:
    """The file cannot say it; a program can."""
    setting = m19.PlannedSetting(name="retention.ms", value="1")
    twice = m19.Plan(
        topics=[m19.PlannedTopic(name="a"), m19.PlannedTopic(name="a", absent=True)],
        resources=[
            m19.PlannedResource(resource_type=32, resource_name="g", settings=[setting, setting]),
            m19.PlannedResource(resource_type=2, resource_name="a"),
        ],
    )
    answer = wire.call(19, 7, m19.CreateTopicsRequest(plan=twice))
    assert answer.topics == []
    problems = {(one.kind, one.name): one.error_code for one in answer.plan.problems}
    assert problems == dict.fromkeys([("resource", "a"), ("topic", "a"), ("group", "g")], ErrorCode.INVALID_REQUEST)
    both = m19.CreateTopicsRequest(topics=[m19.CreatableTopic(name="b", num_partitions=1)], plan=m19.Plan())
    answer = wire.call(19, 5, both)
    assert [one.error_code for one in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert [one.error_code for one in answer.plan.problems] == [ErrorCode.INVALID_REQUEST]
    assert topics(broker, "[ab]") == {}
    assert "plan refused by=client 'wire'" in broker.log()


def test_who_asks_for_no_plan_gets_kafkas_bytes(wire: Wire) -> None:
    """The tag is in the answer only where it was in the request (KIP-482)."""
    answer = wire.call(19, 7, m19.CreateTopicsRequest(topics=[m19.CreatableTopic(name="plain", num_partitions=1)]))
    assert (answer.plan, answer.unknown_tags) == (None, None)


async def test_programs_apply_plans_and_see_errors_by_thing(broker: BrokerProcess) -> None:
    """Row D9: the Admin call."""
    rule = Acl(AclResourceType.TOPIC, "by-program", "User:a", AclOperation.READ)
    plan = ClusterPlan(
        (WantedTopic("by-program", 2, configs={"retention.ms": "5"}),),
        (WantedConfigs("group", "by-program", {"consumer.heartbeat.interval.ms": "6000"}),),
        (WantedAcl(rule),),
    )
    async with fencepost.Client(broker.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        would = await admin.apply(plan, validate_only=True)
        assert would.atomic
        assert "by-program" not in await admin.list_topics()
        done = await admin.apply(plan)
        assert done == would
        assert done.changes[0] == PlannedChange("create", "topic", "by-program", "partitions", None, "2")
        assert done.changes[-1][:4] == ("create", "acl", "User:a READ TOPIC by-program, ALLOW from *", "")
        assert (await admin.describe_configs(topic="by-program"))["retention.ms"].value == "5"
        assert (await admin.apply(plan)).changes == ()
        await admin.create_topics([NewTopic("by-hand", 3)])
        with pytest.raises(ItemsFailedError) as refused:
            await admin.apply(ClusterPlan((WantedTopic("by-hand", 1), WantedTopic("by-none", 1))))
        assert {what: error.code for what, error in refused.value.errors.items()} == {
            "topic by-hand": ErrorCode.INVALID_PARTITIONS
        }
        stepwise = await admin.apply(ClusterPlan((WantedTopic("by-hand", 4), WantedTopic("by-steps"))), atomic=False)
        assert not stepwise.atomic
        assert {"by-hand", "by-steps"} <= set(await admin.list_topics())
        assert "by-none" not in await admin.list_topics()


def test_blocking_programs_apply_plans(broker: BrokerProcess) -> None:
    with fencepost.sync.Client(broker.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        done = admin.apply(ClusterPlan.from_mapping({"topics": {"blocking": {"partitions": 2}}}))
        assert [(one.action, one.name, one.after) for one in done.changes] == [("create", "blocking", "2")]
        assert len(admin.describe_topics("blocking")["blocking"].partitions) == 2


def test_wrong_plans_are_explained_before_the_broker_is_asked(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text("[topics.a]\npartition = 3\n")
    for file, says in ((tmp_path / "plan.toml", "the nearest is 'partitions'"), (tmp_path / "none", "does not exist")):
        result: Any = CliRunner().invoke(cli, ["topic", "apply", str(file), "--bootstrap", "127.0.0.1:1"])
        assert (result.exit_code, says in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("words", [(), ("--json",), ("--dry-run",)])
def test_thing_by_thing_a_name_that_can_not_be_is_refused_as_a_part_of_the_plan(
    broker: BrokerProcess, words: tuple[str, ...]
) -> None:
    """What was only looked at before it was refused was not done."""
    command(broker, "topic", "create", "step-there", "--if-not-exists")
    plan = '[topics.step-there]\npartitions = 3\n[topics."in valid"]\n'
    refused = apply(broker, plan, "--not-atomic", *words)
    assert isinstance(refused.exception, SystemExit), refused.exception
    assert refused.exit_code == 1
    assert "nothing was changed" in refused.stderr
    if "--json" in words:
        told = json.loads(refused.stdout)
        assert told["changes"] == []
        assert [(one["what"], one["error"]) for one in told["refused"]] == [
            ("topic in valid", "INVALID_TOPIC_EXCEPTION")
        ]
    else:
        assert refused.stderr.startswith("topic in valid: "), refused.stderr
    assert topics(broker, "step-*") == {"step-there": 1}
