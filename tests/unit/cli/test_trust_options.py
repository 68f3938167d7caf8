"""How every command is told which broker to ask and how to trust it: options, files, the environment."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from fencepost.broker.config.sources import from_environment
from fencepost.cli.connect import Broker, broker_options, client_config, command_for
from fencepost.cli.main import COMMANDS, cli

PASSWORD = "no-eyes-for-this"


def config_of(*words: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """What a command would make its client of."""
    found: dict[str, Any] = {}

    @click.command()
    @broker_options
    def probe(broker: Broker) -> None:
        bootstrap = broker.bootstrap
        found.update(client_config(*broker[:2], "probe"), again=command_for(bootstrap, "topic", "list"))

    result = CliRunner().invoke(probe, list(words), env=environ, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found


def test_without_anything_it_is_the_broker_on_this_machine() -> None:
    assert config_of() == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "probe",
        "default.api.timeout.ms": 15_000,
        "request.timeout.ms": 15_000,
        "again": "fencepost topic list",
    }


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("localhost", "localhost:9092"),
        ("localhost:9093", "localhost:9093"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:9093", "[::1]:9093"),
        ("PLAINTEXT://near", "PLAINTEXT://near:9092"),
        ("near, far:1", "near:9092,far:1"),
    ],
)
def test_a_broker_without_a_port_is_asked_at_9092(given: str, asked: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={given}\n")
    for found in (
        config_of("--bootstrap", given),
        config_of(environ={"FENCEPOST_BOOTSTRAP": given}),
        config_of("--command-config", str(file)),
    ):
        assert found["bootstrap.servers"] == asked


def test_a_file_names_the_broker_and_how_to_trust_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# ours\nbootstrap.servers=far.example.com:9093\nsecurity.protocol=SASL_SSL\n"
        f"sasl.mechanism=PLAIN\nsasl.username=me\nsasl.password={PASSWORD}\nrequest.timeout.ms=70000\nclient.id=theirs\n"
    )
    for found in (config_of("--command-config", str(file)), config_of(environ={"FENCEPOST_COMMAND_CONFIG": str(file)})):
        assert found["bootstrap.servers"] == "far.example.com:9093"
        assert (found["security.protocol"], found["sasl.password"]) == ("SASL_SSL", PASSWORD)
        assert found["request.timeout.ms"] == "70000", "the file's patience, where the command line has none"
        assert found["default.api.timeout.ms"] == 15_000
        assert found["client.id"] == "probe", "the broker tells commands from others by it"
        assert found["again"].endswith(f"--bootstrap far.example.com:9093 --command-config {file}")


def test_the_command_line_wins_and_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text('"metadata.broker.list" = "far:1"\n"sasl.username" = "me"\n"request.timeout.ms" = 70000\n')
    words = ("--command-config", str(file), "-b", "near:2", "--timeout", "3", "-X", f"sasl.password={PASSWORD}")
    found = config_of(*words, "-X", "sasl.username=you")
    assert (found["bootstrap.servers"], found["sasl.username"]) == ("near:2", "you")
    assert (found["request.timeout.ms"], found["sasl.password"]) == (3000, PASSWORD)
    assert "metadata.broker.list" not in found
    assert PASSWORD not in found["again"]
    assert config_of("-X", "bootstrap.servers=single:3")["bootstrap.servers"] == "single:3"
    assert config_of(environ={"FENCEPOST_BOOTSTRAP": "env:4"})["bootstrap.servers"] == "env:4"


def failed(*words: str) -> Result:
    """A command that cannot even begin."""
    result = CliRunner().invoke(cli, ["topic", "list", *words, "--bootstrap", "127.0.0.1:1", "--timeout", "0.2"])
    assert PASSWORD not in result.output
    return result


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("security.protocoll=SSL\n", "the nearest is 'security.protocol'"),
        ("security.protocol=TLS\n", "must be one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        (f"security.protocol=SASL_SSL\nsasl.password={PASSWORD}\n", "needs sasl.mechanism"),
        ("ssl.truststore.type=JKS\n", "must be PEM; convert JKS"),
        ("=nothing\n", "line 1"),
    ],
)
def test_a_file_that_makes_no_sense_is_wrong_usage(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(content)
    result = failed("--command-config", str(file))
    assert (result.exit_code, says in result.stderr) == (2, True), result.output


def test_options_that_make_no_sense_are_wrong_usage(tmp_path: Path) -> None:
    assert "not of the form name=value" in failed("-X", "acks").stderr
    assert "does not exist" in failed("--command-config", str(tmp_path / "none")).stderr
    unreachable = failed()
    assert (unreachable.exit_code, "is a broker running at 127.0.0.1:1?" in unreachable.stderr) == (1, True)


@pytest.mark.parametrize("name", sorted({"cluster", "config", "group", "topic", "txn"} & set(COMMANDS)))
def test_every_command_that_asks_a_broker_can_be_told_how_to_trust_it(name: str) -> None:
    group = cli.get_command(click.Context(cli), name)
    assert isinstance(group, click.Group)
    for command in group.commands.values():
        options = {option for parameter in command.params for option in parameter.opts}
        if "--store" in options or command.name == "check":
            continue  # it asks the database, or only reads a file
        assert {"--profile", "--command-config", "-X", "--bootstrap", "--timeout"} <= options, command.name


def test_what_the_command_line_reads_of_the_environment_is_no_setting_of_a_broker() -> None:
    """`serve` refuses FENCEPOST_ names that are no settings; these are the commands'."""
    ours = {f"FENCEPOST_{name}": "a" for name in ("BOOTSTRAP", "COMMAND_CONFIG", "PROFILE")}
    environ = {**ours, "FENCEPOST_NUM_PARTITIONS": "4"}
    assert [(given.name, given.raw) for given in from_environment(environ)] == [("num.partitions", "4")]


def test_ask_is_what_all_of_them_use() -> None:
    """A second way to make a client would not know these options."""
    here = Path(Broker.ask.__code__.co_filename).parent
    makers = [file.name for file in sorted(here.glob("*.py")) if "Client.from_config(" in file.read_text("utf-8")]
    assert makers == ["connect.py"]
