"""`fencepost topic` against a running broker, as an operator types it (rows D1, D3, D8)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json
from tests.kit.wire import NOW_MS, Wire, batch_of

HOUR_MS = 3_600_000


def topic(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "topic", *words)


def told(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    return command_json(broker, "topic", *words)


def test_topics_are_created_described_and_listed(broker: BrokerProcess) -> None:
    """Row D1: partitions, settings and an id, each topic with its own answer."""
    made = topic(broker, "create", "orders", "-p", "3", "--set", "retention.ms=86400000")
    assert (made.exit_code, made.stdout) == (0, "Created: topic 'orders' with 3 partitions.\n")
    assert made.stderr == (
        f"Show its partitions and settings:\n  fencepost topic describe orders --bootstrap {broker.address}\n"
    ), "what to do next, as a command to copy"
    assert topic(broker, "create", "orders-two").exit_code == 0
    (one,) = told(broker, "describe", "orders")
    assert (one["name"], len(one["partitions"]), one["configs"]) == ("orders", 3, {"retention.ms": "86400000"})
    assert one["partitions"][2] == {"partition": 2, "leader": 1, "leader_epoch": 0, "replicas": [1], "in_sync": [1]}
    text = topic(broker, "describe", "orders").stdout
    assert re.search(rf"^id +{re.escape(one['topic_id'])}$", text, re.MULTILINE)
    assert re.search(r"^set on it +retention.ms=86400000$", text, re.MULTILINE)
    assert "fencepost config get topic orders --all" in text, "how to see the rest"
    listed = told(broker, "list", "orders*")
    assert [(entry["name"], entry["partitions"], entry["internal"]) for entry in listed] == [
        ("orders", 3, False),
        ("orders-two", 1, False),
    ]
    assert "__consumer_offsets" not in topic(broker, "list").stdout
    assert "__consumer_offsets" in topic(broker, "list", "--internal").stdout
    (by_id,) = told(broker, "describe", "--id", one["topic_id"])
    assert by_id["name"] == "orders"


def test_one_refused_topic_does_not_keep_the_others_from_being_made(broker: BrokerProcess) -> None:
    """Row D1: an error of its own for each topic, and exit code 1 with what to do."""
    topic(broker, "create", "there-already")
    made = topic(broker, "create", "there-already", "in/valid", "beside", "--json")
    assert made.exit_code == 1
    assert [(one["created"], one["error"]) for one in json.loads(made.stdout)] == [
        (False, "TOPIC_ALREADY_EXISTS"),
        (False, "INVALID_TOPIC_EXCEPTION"),
        (True, None),
    ]
    assert "2 of 3 could not be created" in made.stderr
    assert "--if-not-exists accepts it" in made.stderr
    assert told(broker, "describe", "beside")
    again = topic(broker, "create", "there-already", "--if-not-exists", "-p", "7")
    assert (again.exit_code, again.stdout) == (0, "Unchanged: topic 'there-already': it exists already.\n")


def test_an_error_is_one_sentence(broker: BrokerProcess) -> None:
    """Not a stack of the command's, the client's and the broker's words; the hint has a line of its own."""
    assert topic(broker, "create", "demo").exit_code == 0
    again = topic(broker, "create", "demo")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.splitlines() == [
        "fencepost: topic 'demo' already exists (TOPIC_ALREADY_EXISTS)",
        "  `fencepost topic describe NAME` shows it; --if-not-exists accepts it",
    ]
    two = topic(broker, "create", "demo", "demo-two")
    assert two.stderr.splitlines()[:2] == [
        "Not created: topic 'demo' already exists (TOPIC_ALREADY_EXISTS)",
        "fencepost: 1 of 2 could not be created",
    ]
    for words in (("topic", "describe"), ("topic", "delete"), ("topic", "offsets"), ("config", "get", "topic")):
        told_of = command(broker, *words, "nowhere").stderr.splitlines()[0]
        assert re.fullmatch(
            r"fencepost: (the )?topic 'nowhere' does not exist \(UNKNOWN_TOPIC_OR_PARTITION\)", told_of
        ), words


def test_errors_are_json_where_json_is_asked_for(broker: BrokerProcess) -> None:
    """On standard error, so that what stands on standard output stays what was asked for."""
    absent = topic(broker, "describe", "nowhere", "--json")
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert json.loads(absent.stderr) == {
        "error": "UNKNOWN_TOPIC_OR_PARTITION",
        "message": "topic 'nowhere' does not exist (UNKNOWN_TOPIC_OR_PARTITION)",
        "hint": "the topic or partition does not exist; `fencepost topic list` shows the topics, and partitions are"
        " numbered from 0",
    }
    away = CliRunner().invoke(cli, ["topic", "list", "--json", "--timeout", "0.5s", "--bootstrap", "127.0.0.1:1"])
    assert away.exit_code == 1
    assert json.loads(away.stderr)["error"] == "NETWORK_EXCEPTION"
    own = command(broker, "group", "reset", "nobody", "--all", "--to-latest", "--json")
    assert (own.exit_code, json.loads(own.stderr)["error"]) == (1, None)


def test_topics_are_listed_with_their_sizes(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("sized", partitions=2)
    wire.produce("sized", batch_of(bytes(3000), timestamp_ms=NOW_MS))
    (one,) = told(broker, "list", "sized")
    assert 3000 < one["size_bytes"] < 3200
    text = topic(broker, "list", "sized").stdout
    assert re.search(r"^TOPIC +PARTITIONS +REPLICAS +NOT IN SYNC +SIZE\nsized +2 +1 +0 +3\.\d KiB$", text), text


@pytest.mark.parametrize("age", ["1d", "2w", "1w2d", "2h30m", "PT2H", "P1DT2H"])
def test_durations_are_taken_in_weeks_and_days(broker: BrokerProcess, age: str) -> None:
    command(broker, "topic", "create", "aged", "--if-not-exists")
    assert topic(broker, "trim", "aged", "--older-than", age, "--dry-run").exit_code == 0
    assert command(broker, "txn", "hanging", "--older-than", age).exit_code == 0
    assert topic(broker, "list", "--timeout", age).exit_code == 0


@pytest.mark.parametrize("age", ["1x", "", "w", "nan", "-1"])
def test_what_is_no_duration_is_refused(broker: BrokerProcess, age: str) -> None:
    for words in (("txn", "hanging", "--older-than"), ("topic", "list", "--timeout")):
        refused = command(broker, *words, age)
        assert (refused.exit_code, "Traceback" in refused.output) == (2, False), words


def test_a_dry_run_is_checked_by_the_broker_and_changes_nothing(broker: BrokerProcess) -> None:
    """Row D1: validate-only."""
    dry = topic(broker, "create", "not-yet", "-p", "4", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "Would be created: topic 'not-yet' with 4 partitions.\n")
    assert topic(broker, "create", "not-yet", "--set", "retention.ms=soon", "--dry-run").exit_code == 1
    topic(broker, "create", "dry", "-p", "2")
    assert "would grow from 2 to 5" in topic(broker, "add-partitions", "dry", "--by", "3", "--dry-run").stdout
    assert "Would be deleted: topic 'dry'" in topic(broker, "delete", "dry", "--dry-run").stdout
    changed = topic(broker, "alter", "dry", "--set", "retention.ms=1000", "--dry-run")
    assert "Nothing was changed" in changed.stderr
    (one,) = told(broker, "describe", "dry")
    assert (len(one["partitions"]), one["configs"]) == (2, {})
    assert topic(broker, "describe", "not-yet").exit_code == 1


def test_partitions_grow_and_never_shrink(broker: BrokerProcess) -> None:
    """Row D1."""
    topic(broker, "create", "growing", "-p", "2")
    assert told(broker, "add-partitions", "growing", "--by", "3") == {
        "topic": "growing",
        "before": 2,
        "after": 5,
        "dry_run": False,
    }
    assert topic(broker, "add-partitions", "growing", "--to", "6").exit_code == 0
    refused = topic(broker, "add-partitions", "growing", "--to", "3")
    assert (refused.exit_code, "INVALID_PARTITIONS" in refused.stderr) == (1, True)
    assert "partitions can be added, but not removed" in refused.stderr
    assert len(told(broker, "describe", "growing")[0]["partitions"]) == 6


def test_alter_says_what_held_and_what_holds(broker: BrokerProcess) -> None:
    """Row D2: all or nothing on one topic."""
    topic(broker, "create", "altered", "--set", "max.message.bytes=5000")
    changes = ("--set", "segment.bytes=1048576", "--unset", "max.message.bytes")
    (first, second) = told(broker, "alter", "altered", *changes)
    assert (first["name"], first["before"], first["after"]) == ("segment.bytes", "1073741824", "1048576")
    assert (second["name"], second["before"], second["after"]) == ("max.message.bytes", "5000", "1048588")
    assert told(broker, "describe", "altered")[0]["configs"] == {"segment.bytes": "1048576"}
    refused = topic(broker, "alter", "altered", "--set", "segment.bytes=2097152", "--set", "cleanup.policy=burn")
    assert (refused.exit_code, "INVALID_CONFIG" in refused.stderr) == (1, True)
    assert told(broker, "describe", "altered")[0]["configs"] == {"segment.bytes": "1048576"}


def test_delete_by_id_never_takes_a_new_topic_of_the_name(broker: BrokerProcess) -> None:
    """Rows D1 and M5: DeleteTopics by id."""
    topic(broker, "create", "renewed")
    (first,) = told(broker, "describe", "renewed")
    assert topic(broker, "delete", "renewed").stdout == "Deleted: topic 'renewed' with 1 partition.\n"
    topic(broker, "create", "renewed", "-p", "2")
    late = topic(broker, "delete", "--id", first["topic_id"])
    assert (late.exit_code, "UNKNOWN_TOPIC_ID" in late.stderr) == (1, True)
    assert topic(broker, "delete", "--id", first["topic_id"], "--if-exists").exit_code == 0
    assert len(told(broker, "describe", "renewed")[0]["partitions"]) == 2
    assert (
        topic(broker, "delete", "nowhere", "--if-exists").stdout == "Unchanged: topic 'nowhere': it does not exist.\n"
    )


def test_offsets_show_where_partitions_begin_and_end_and_what_is_held_back(broker: BrokerProcess, wire: Wire) -> None:
    """Rows I6 and D8: first offset, last stable offset and high watermark are three numbers."""
    wire.create_topic("held", partitions=2)
    wire.produce("held", batch_of(b"a", b"b", b"c", timestamp_ms=NOW_MS - HOUR_MS))
    wire.produce("held", batch_of(b"d", timestamp_ms=NOW_MS))
    held = wire.init_producer_id("holder")
    wire.add_partitions("holder", held, "held", 0)
    open_batch = batch_of(b"e", b"f", transactional=True, producer_id=held[0], producer_epoch=held[1], base_sequence=0)
    wire.produce("held", open_batch, transactional_id="holder")
    first, second = told(broker, "offsets", "held", "--at", "2025-06-01T00:00:00")
    assert (first["first"], first["last_stable_offset"], first["high_watermark"]) == (0, 4, 6)
    assert first["at"]["offset"] == 0
    assert (second["offsets"], second["at"]) == (0, None), "no record is that late"
    text = topic(broker, "offsets", "held:0").stdout
    assert re.search(r"^held:0 +0 +4 +6 +2 +6$", text, re.MULTILINE), text
    assert wire.end_txn("holder", held, commit=False).error_code == ErrorCode.NONE


def test_trim_drops_what_is_old_and_nothing_else(broker: BrokerProcess, wire: Wire) -> None:
    """Row D8: DeleteRecords, by offset, by time and whole."""
    wire.create_topic("trimmed", partitions=2)
    wire.produce("trimmed", batch_of(b"a", b"b", b"c", timestamp_ms=NOW_MS - 2 * HOUR_MS))
    wire.produce("trimmed", batch_of(b"d", b"e", timestamp_ms=NOW_MS))
    wire.produce("trimmed", batch_of(b"z", timestamp_ms=NOW_MS), partition=1)
    dry = told(broker, "trim", "trimmed", "--older-than", "1h", "--dry-run")
    assert [(cut["partition"], cut["began_at"], cut["begins_at"]) for cut in dry] == [
        ("trimmed:0", 0, 3),
        ("trimmed:1", 0, 0),
    ], "by the records' own times"
    assert [one["first"] for one in told(broker, "offsets", "trimmed")] == [0, 0]
    assert topic(broker, "trim", "trimmed:0", "--to", "2").exit_code == 0
    assert [one["first"] for one in told(broker, "offsets", "trimmed")] == [2, 0]
    again = told(broker, "trim", "trimmed:0", "--to", "1")
    assert (again[0]["began_at"], again[0]["begins_at"]) == (2, 2), "nothing comes back"
    beyond = topic(broker, "trim", "trimmed:0", "--to", "99")
    assert (beyond.exit_code, "it ends at 5" in beyond.stdout) == (1, True), beyond.output
    assert topic(broker, "trim", "trimmed", "--all").exit_code == 0
    assert [one["first"] for one in told(broker, "offsets", "trimmed")] == [5, 1]
    wire.create_topic("compacted")
    wire.produce("compacted", batch_of(b"a"))
    topic(broker, "alter", "compacted", "--set", "cleanup.policy=compact")
    refused = topic(broker, "trim", "compacted", "--all")
    assert (refused.exit_code, "POLICY_VIOLATION" in refused.stdout) == (1, True), refused.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add-partitions", "t"), "exactly one of --to and --by"),
        (("alter", "t"), "--set NAME=VALUE or --unset NAME"),
        (("alter", "t", "--set", "a=1", "--unset", "a"), "named only once"),
        (("create", "t", "--set", "retention.ms"), "write NAME=VALUE"),
        (("create", "t", "--set", "a=1", "--set", "a=2"), "a is given twice"),
        (("trim", "t"), "exactly one of --to, --all, --before and --older-than"),
        (("trim", "t", "--all", "--to", "3"), "exactly one of"),
        (("describe", "--id", "short"), "is not a topic id"),
        (("describe", "--id", "-0xkD3nQSGmvTAAxPcXQAA", "--id", "-"), "'-' is not a topic id"),
        (("delete",), "name a topic, or give --id ID"),
        (("offsets", "t:x"), "write TOPIC or TOPIC:PARTITION"),
    ],
)
def test_wrong_usage_is_explained(broker: BrokerProcess, words: tuple[str, ...], says: str) -> None:
    result = topic(broker, *words)
    assert (result.exit_code, says in result.stderr) == (2, True), result.output


def test_a_topic_that_is_not_there_is_told(broker: BrokerProcess) -> None:
    for words in (("describe", "nope"), ("offsets", "nope"), ("delete", "nope"), ("trim", "nope:0", "--all")):
        result = topic(broker, *words)
        assert (result.exit_code, "`fencepost topic list` shows" in result.stderr) == (1, True), result.output


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("create", "wide", "-p", "3000000000"), "num_partitions"),
        (("create", "wide", "-r", "40000"), "replication_factor"),
        (("add-partitions", "wide-there", "--to", "3000000000"), "count"),
        (("alter", "wide-there", "--set", "retention.ms=\udcff"), "value"),
    ],
)
def test_what_the_protocol_can_not_say_is_explained(broker: BrokerProcess, words: tuple[str, ...], field: str) -> None:
    """Numbers beyond the wire's, and arguments that are no text in UTF-8, which Python keeps as lone surrogates."""
    topic(broker, "create", "wide-there", "--if-not-exists")
    refused = topic(broker, *words)
    assert isinstance(refused.exception, SystemExit), refused.exception
    assert (refused.exit_code, f"{field}: the protocol cannot encode the value" in refused.output) == (1, True)


def test_what_was_changed_before_a_topic_was_refused_is_told(broker: BrokerProcess) -> None:
    topic(broker, "create", "altered-first")
    some = topic(broker, "alter", "altered-first", "altered-nowhere", "--set", "retention.ms=5", "--json")
    assert some.exit_code == 1
    assert [(one["subject"], one["after"]) for one in json.loads(some.stdout)] == [("topic altered-first", "5")]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in some.stderr
    assert "the topics above were changed, and no others" in some.stderr
    assert told(broker, "describe", "altered-first")[0]["configs"] == {"retention.ms": "5"}


def test_a_list_without_sizes_says_why(tmp_path: Path) -> None:
    """KafkaApis.handleDescribeLogDirsRequest: it needs DESCRIBE of the cluster."""
    settings = {"storage": "memory", "authorizer.class.name": "standard", "super.users": "User:root"}
    with BrokerProcess(tmp_path, settings=settings | {"allow.everyone.if.no.acl.found": "true"}) as broker:
        assert topic(broker, "create", "dark").exit_code == 0
        rule = ("--principal", "User:else", "--operation", "describe", "--cluster")
        assert command(broker, "acl", "add", *rule).exit_code == 0
        done = topic(broker, "list", "dark")
    assert re.search(r"^dark +1 +1 +0 +-$", done.stdout, re.MULTILINE), done.output
    assert done.stderr == "1 topic. No sizes: they need the right DESCRIBE of the cluster.\n"
