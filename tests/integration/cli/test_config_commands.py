"""`fencepost config` against a running broker, as an operator types it (row D2)."""

import re
import shlex
from typing import Any

import pytest
from click.testing import Result

from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json


def config(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "config", *words)


def told(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    return command_json(broker, "config", *words)


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = re.sub(r"[^\w.-]", "-", request.node.name)[:80]
    assert command(broker, "topic", "create", name, "--set", "max.message.bytes=4096").exit_code == 0
    return name


def test_get_says_where_a_setting_comes_from(broker: BrokerProcess, topic: str) -> None:
    """Row D2: source and synonyms, strongest first."""
    (own,) = told(broker, "get", "topic", topic)
    assert (own["name"], own["value"], own["source"], own["read_only"]) == (
        "max.message.bytes",
        "4096",
        "DYNAMIC_TOPIC_CONFIG",
        False,
    )
    sources = [(one["name"], one["value"], one["source"]) for one in own["synonyms"]]
    assert sources == [
        ("max.message.bytes", "4096", "DYNAMIC_TOPIC_CONFIG"),
        ("message.max.bytes", "1048588", "DEFAULT_CONFIG"),
    ]
    assert re.search(r"^max.message.bytes +4096 +topic$", config(broker, "get", "topic", topic).stdout, re.MULTILINE)
    everything = told(broker, "get", "topic", topic, "--all")
    assert {"retention.ms", "cleanup.policy", "segment.bytes"} <= {one["name"] for one in everything}
    assert len(told(broker, "get", "topic", topic, "retention.*")) == 2
    text = config(broker, "get", "topic", topic, "max.message.bytes", "--explain").stdout
    assert re.search(r"^  from topic: max.message.bytes=4096$", text, re.MULTILINE)
    assert re.search(r"^  else default: message.max.bytes=1048588$", text, re.MULTILINE)
    assert text.splitlines()[1].startswith("  "), "what it means, in the broker's words"


def test_a_name_that_is_none_is_told_with_the_nearest(broker: BrokerProcess, topic: str) -> None:
    wrong = config(broker, "get", "topic", topic, "retention.m")
    assert (wrong.exit_code, "the nearest is 'retention.ms'" in wrong.stderr) == (1, True), wrong.output
    refused = config(broker, "set", "topic", topic, "retention.m=1")
    assert (refused.exit_code, "retention.m" in refused.stderr) == (1, True)


def test_set_and_unset_tell_what_held_and_what_holds(broker: BrokerProcess, topic: str) -> None:
    """Row D2: IncrementalAlterConfigs changes what is named, and nothing else."""
    (step,) = told(broker, "set", "topic", topic, "retention.ms=77")
    assert (step["subject"], step["name"], step["after"]) == (f"topic {topic}", "retention.ms", "77")
    assert {one["name"] for one in told(broker, "get", "topic", topic)} == {"retention.ms", "max.message.bytes"}
    (step,) = told(broker, "unset", "topic", topic, "max.message.bytes")
    assert (step["before"], step["after"]) == ("4096", "1048588")
    (dry,) = told(broker, "unset", "topic", topic, "retention.ms", "--dry-run")
    assert dry["dry_run"] is True
    assert [one["name"] for one in told(broker, "get", "topic", topic)] == ["retention.ms"]


def test_lists_are_changed_by_their_members(broker: BrokerProcess, topic: str) -> None:
    """Row D2: APPEND and SUBTRACT (KIP-339)."""
    (step,) = told(broker, "set", "topic", topic, "--append", "cleanup.policy=compact")
    assert (step["before"], step["after"]) == ("delete", "delete,compact")
    assert told(broker, "get", "topic", topic, "cleanup.policy")[0]["value"] == "delete,compact"
    (step,) = told(broker, "set", "topic", topic, "--subtract", "cleanup.policy=delete")
    assert (step["before"], step["after"]) == ("delete,compact", "compact")
    assert told(broker, "get", "topic", topic, "cleanup.policy")[0]["value"] == "compact"


def test_what_has_no_effect_here_says_so(broker: BrokerProcess, topic: str) -> None:
    """Row D2: Kafka's settings that mean nothing on one node, as they are looked at and as they are set."""
    (entry,) = told(broker, "get", "topic", topic, "preallocate")
    assert entry["without_effect"] is True
    assert told(broker, "get", "topic", topic, "retention.ms")[0]["without_effect"] is False
    (step,) = told(broker, "set", "topic", topic, "preallocate=true")
    assert step["remark"] == "has no effect here"
    text = config(broker, "get", "topic", topic).stdout
    assert re.search(r"^preallocate +true +topic +no effect here$", text, re.MULTILINE), text
    assert re.search(r"^max.message.bytes +4096 +topic$", text, re.MULTILINE), text
    assert "No effect here: " in config(broker, "get", "topic", topic, "preallocate", "--explain").stdout


def test_brokers_have_settings_for_one_and_for_all(broker: BrokerProcess) -> None:
    """Row D2: what is set at run time on a broker, and for all of them (KIP-226)."""
    assert config(broker, "set", "broker", "all", "log.cleaner.backoff.ms=16000").exit_code == 0
    assert config(broker, "set", "broker", "1", "log.cleaner.backoff.ms=17000").exit_code == 0
    (entry,) = told(broker, "get", "broker", "1", "log.cleaner.backoff.ms")
    assert (entry["value"], entry["source"]) == ("17000", "DYNAMIC_BROKER_CONFIG")
    assert [one["source"] for one in entry["synonyms"]] == [
        "DYNAMIC_BROKER_CONFIG",
        "DYNAMIC_DEFAULT_BROKER_CONFIG",
        "DEFAULT_CONFIG",
    ]
    assert config(broker, "unset", "broker", "1", "log.cleaner.backoff.ms").exit_code == 0
    assert told(broker, "get", "broker", "1", "log.cleaner.backoff.ms")[0]["value"] == "16000"
    text = config(broker, "get", "broker", "all").stdout
    assert re.search(r"^log.cleaner.backoff.ms +16000 +all brokers, at run time$", text, re.MULTILINE)
    assert config(broker, "unset", "broker", "all", "log.cleaner.backoff.ms").exit_code == 0
    fixed = config(broker, "set", "broker", "1", "node.id=4")
    assert (fixed.exit_code, "node.id" in fixed.stderr) == (1, True)
    assert re.search(r"^node.id +1 .*read-only$", config(broker, "get", "broker", "1", "node.id").stdout, re.MULTILINE)


def test_groups_have_settings(broker: BrokerProcess) -> None:
    """Row D2: the GROUP resource of Kafka 4.0."""
    assert config(broker, "set", "group", "billing", "consumer.session.timeout.ms=50000").exit_code == 0
    (entry,) = told(broker, "get", "group", "billing")
    assert (entry["name"], entry["value"], entry["source"]) == (
        "consumer.session.timeout.ms",
        "50000",
        "DYNAMIC_GROUP_CONFIG",
    )
    (step,) = told(broker, "unset", "group", "billing", "consumer.session.timeout.ms")
    assert (step["before"], step["after"]) == ("50000", "45000")
    assert "Nothing is set on group 'billing'" in config(broker, "get", "group", "billing").stdout


def test_what_has_settings_of_its_own_is_listed(broker: BrokerProcess, topic: str) -> None:
    """Row D3: ListConfigResources."""
    config(broker, "set", "group", "listed", "consumer.session.timeout.ms=50000")
    assert command(broker, "topic", "create", "nothing-set").exit_code == 0
    found = {(one["kind"], one["name"]): one["settings"] for one in told(broker, "list")}
    (session,) = found["group", "listed"]
    assert (session["name"], session["value"], session["source"]) == (
        "consumer.session.timeout.ms",
        "50000",
        "DYNAMIC_GROUP_CONFIG",
    )
    assert [(one["name"], one["value"]) for one in found["topic", topic]] == [("max.message.bytes", "4096")]
    assert ("topic", "nothing-set") not in found
    assert "storage" in {one["name"] for one in found["broker", "1"]}
    kinds = {one["kind"] for one in told(broker, "list", "--kind", "group", "--kind", "topic")}
    assert kinds == {"group", "topic"}
    text = config(broker, "list").stdout
    assert re.search(rf"^topic +{re.escape(topic)} +max.message.bytes +4096 +topic$", text, re.MULTILINE)


def test_every_setting_there_is_is_listed_with_its_default_and_meaning(broker: BrokerProcess, topic: str) -> None:
    """As kafka-configs --describe --all, of all topics, brokers and groups."""
    config(broker, "set", "broker", "all", "log.cleaner.backoff.ms=16000")
    settings = {(one["kind"], one["name"]): one["settings"] for one in told(broker, "list", "--all")}
    assert {"retention.ms", "max.message.bytes"} <= {one["name"] for one in settings["topic", topic]}
    assert all(one["documentation"] for entries in settings.values() for one in entries)
    listed = config(broker, "list", "--kind", "broker", "--explain")
    assert "broker all:\n\nlog.cleaner.backoff.ms = 16000\n  " in listed.stdout
    assert re.search(r"^\d+ settings on 2 resources$", listed.stderr, re.MULTILINE), listed.stderr
    config(broker, "unset", "broker", "all", "log.cleaner.backoff.ms")


def test_explain_prints_what_the_document_shows(broker: BrokerProcess) -> None:
    """docs/cli.md, as printed."""
    document = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    typed, printed = re.findall(r"^```\n\$ fencepost (config get .*?)\n(.*?)^```", document, re.MULTILINE | re.DOTALL)[
        0
    ]
    assert command(broker, "topic", "create", "orders", "--set", "retention.ms=86400000").exit_code == 0
    assert command(broker, *shlex.split(typed)).stdout == printed


def test_a_setting_says_where_it_comes_from_when_nothing_stands_behind_it(broker: BrokerProcess) -> None:
    """Kafka tells no synonym of a retention.ms that nobody set."""
    assert command(broker, "topic", "create", "unset-retention").exit_code == 0
    text = config(broker, "get", "topic", "unset-retention", "retention.ms", "--explain").stdout
    assert text.splitlines()[-1] == "  from default"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "topic", "t"), "name the settings to change"),
        (("set", "topic", "t", "a=1", "--append", "a=2"), "named only once"),
        (("get", "broker", "one"), "give an id, or `broker all` for all brokers"),
        (("get", "planet", "x"), "'topic', 'broker', 'group'"),
        (("unset", "topic", "t"), "Missing argument"),
    ],
)
def test_wrong_usage_is_explained(broker: BrokerProcess, words: tuple[str, ...], says: str) -> None:
    result = config(broker, *words)
    assert (result.exit_code, says in result.stderr) == (2, True), result.output
