"""What commands say to wrong names, settings and values; and kcat's -t."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.kit.command_line import command
from tests.kit.record_commands import Broker, consume, produce, topic


def test_a_missing_topic_is_an_error_without_a_word_of_trying_for_15_seconds(broker: Broker) -> None:
    done = command(broker, "consume", "nosuch", "-e")
    assert done.exit_code == 1
    assert done.stderr.startswith("fencepost: topic 'nosuch' does not exist (UNKNOWN_TOPIC_OR_PARTITION)\n")
    assert "tries again" not in done.stderr


def test_an_invalid_topic_name_was_a_message_without_a_verb(broker: Broker) -> None:
    for done in (consume_failing(broker, "bad/topic"), produce(broker, "bad/topic", text="v\n")):
        assert done.exit_code == 1
        assert done.stderr.startswith("fencepost: 'bad/topic' is not a valid name of a topic (INVALID_TOPIC_EXCEPTION)")
    done = command(broker, "topic", "describe", "bad/topic")
    assert done.stderr.startswith("fencepost: describing topic 'bad/topic' failed (INVALID_TOPIC_EXCEPTION)")


def consume_failing(broker: Broker, name: str) -> Result:
    return command(broker, "consume", name, "-e")


def test_the_topic_may_be_given_with_t_as_in_kcat(broker: Broker, tmp_path: Path) -> None:
    name, other = topic(broker), topic(broker)
    (tmp_path / "file").write_text("one\ntwo\n")
    assert produce(broker, "-t", name, "-l", str(tmp_path / "file")).exit_code == 0
    assert produce(broker, "--topic", name, text="three\n").exit_code == 0
    assert produce(broker, other, text="four\n").exit_code == 0
    assert command(broker, "consume", "-t", name, "-e", "-q").stdout == "one\ntwo\nthree\n"
    assert command(broker, "consume", "-t", f"{name}:0", "-e", "-q", "-c", "1").stdout == "one\n"
    both = command(broker, "consume", "-t", name, other, "-e", "-q").stdout
    assert sorted(both.split()) == ["four", "one", "three", "two"]
    assert consume(broker, name, "-t", other, "-c", "4").count("\n") == 4


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_no_topic_at_all_is_wrong_usage(broker: Broker, name: str) -> None:
    done = command(broker, name)
    assert (done.exit_code, "name " in done.stderr) == (2, True)


def test_a_file_that_does_not_exist_is_wrong_usage(broker: Broker) -> None:
    done = produce(broker, "-t", "t", "nosuch")
    assert (done.exit_code, "'nosuch' does not exist" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("security.protocol=tls",), "option 'security.protocol': 'tls' must be one of"),
        (("sasl.mechanism=PLAIN",), "SASL options need security.protocol 'sasl_ssl' or 'sasl_plaintext'"),
        (("sasl.mechanisms=SCRAM",), "option 'sasl.mechanisms': 'SCRAM' must be one of"),
        (("security.protocol=sasl_ssl", "sasl.mechanism=PLAIN"), "PLAIN needs sasl.username and sasl.password"),
        (("security.protocol=ssl", "ssl.ca.location=/nosuch"), "ssl.ca.location /nosuch cannot be used"),
        (("metadata.max.age.ms=1h",), "option 'metadata.max.age.ms': '1h' must be a whole number"),
        (("linger.ms=2s",), "; it is in milliseconds: write 2000 for 2s"),
        (("fetch.min.bytes=1h",), "option 'fetch.min.bytes': '1h' must be a whole number from 0 to 2147483647\n"),
    ],
)
def test_messages_name_settings_as_the_file_does(broker: Broker, given: tuple[str, ...], says: str) -> None:
    done = command(broker, "consume", "t", *(word for one in given for word in ("-X", one)))
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "hours", "--set", "retention.ms=1h"),
        ("config", "set", "broker", "all", "log.retention.ms=1h"),
        ("serve", "--memory", "--set", "log.retention.ms=1h"),
    ],
)
def test_a_duration_for_a_setting_in_milliseconds_says_what_to_write(broker: Broker, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, words) if words[0] == "serve" else command(broker, *words)
    assert done.exit_code in (1, 2)
    assert "it is in milliseconds: write 3600000 for 1h" in done.output
