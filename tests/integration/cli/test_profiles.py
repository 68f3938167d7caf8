"""`fencepost profile`, and how every command takes its values."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from fencepost.testing import Broker
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import PATIENCE_SECONDS

Run = Callable[..., Result]
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A command with profiles of its own, and this environment besides."""

    def run(*words: str, **environment: str) -> Result:
        # None removes a variable that the tests themselves were started with.
        names = ("BOOTSTRAP", "COMMAND_CONFIG", "PROFILE")
        clean: dict[str, str | None] = {f"FENCEPOST_{name}": None for name in names}
        own = {"XDG_CONFIG_HOME": str(tmp_path), **environment}
        return CliRunner().invoke(cli, words, env={**clean, **own}, prog_name="fencepost")

    return run


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "fencepost" / "profiles.toml"


def reaches(result: Result) -> bool:
    """Whether the command was answered by a broker; if not, no broker was there."""
    assert (result.exit_code == 0) != ("NETWORK_EXCEPTION" in result.output), result.output
    return result.exit_code == 0


def ask(run: Run, *words: str, **environment: str) -> bool:
    patience = "0.3" if NOWHERE in words else PATIENCE_SECONDS
    return reaches(run("topic", "list", *words, "--timeout", patience, **environment))


def test_profiles_are_created_listed_shown_used_and_deleted(run: Run, tmp_path: Path) -> None:
    assert run("profile", "create", "near", "-b", "localhost").output == (
        "Profile 'near' is created. All commands use it now.\n"
    )
    run(
        "profile",
        "create",
        "far",
        "-b",
        "far:1,farther",
        "-X",
        'client.rack=a "b"',
        "-X",
        "socket.keepalive.enable=true",
    )
    listed = run("profile", "list").stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [["far", "far:1,farther:9092", "*"], ["near", "localhost:9092"]]
    assert run("profile", "use", "near").exit_code == 0
    shown = json.loads(run("profile", "show", "far", "--json").stdout)
    assert (shown["current"], shown["bootstrap"]) == (False, "far:1,farther:9092")
    assert shown["properties"]["client.rack"] == 'a "b"'
    assert json.loads(run("profile", "show", "--json").stdout)["name"] == "near"
    assert run("profile", "delete", "near").stdout == "Profile 'near' is deleted. No profile is in use now.\n"
    assert run("profile", "show").exit_code == 1
    assert [one["name"] for one in json.loads(run("profile", "list", "--json").stdout)] == ["far"]
    assert stat.S_IMODE(file_of(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("create", "near"), 1, "--replace replaces it"),
        (("create", "new", "-X", "sasl.password=x"), 2, "--from-file sasl.password=PATH or --from-env"),
        (("create", "new", "-X", "security.protocoll=SSL"), 2, "the nearest is 'security.protocol'"),
        (("use", "nowhere"), 1, "profile 'nowhere' does not exist (near); `fencepost profile create nowhere`"),
        (("delete", "nowhere"), 1, "does not exist"),
        (("show", "nowhere"), 1, "does not exist"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    run: Run, tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    run("profile", "create", "near", "-b", "localhost")
    before = file_of(tmp_path).read_bytes()
    refused = run("profile", *words)
    assert (refused.exit_code, says in refused.output) == (code, True), refused.output
    assert file_of(tmp_path).read_bytes() == before


def test_a_command_uses_the_current_profile_unless_told_otherwise(
    broker: BrokerProcess, run: Run, tmp_path: Path
) -> None:
    run("profile", "create", "here", "-b", broker.address)
    run("profile", "create", "nowhere", "-b", NOWHERE)
    assert not reaches(run("topic", "list", "--timeout", "0.3"))
    assert ask(run, "--profile", "here")
    assert ask(run, FENCEPOST_PROFILE="here")
    assert ask(run, FENCEPOST_BOOTSTRAP=broker.address)
    assert ask(run, "--bootstrap", broker.address)
    assert ask(run, "--profile", "here", FENCEPOST_BOOTSTRAP=NOWHERE, FENCEPOST_PROFILE="nowhere")
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.address}\n")
    assert ask(run, "--command-config", str(file))
    assert ask(run, FENCEPOST_COMMAND_CONFIG=str(file))
    file.write_text(f"bootstrap.servers={NOWHERE}\n")
    assert ask(run, "--profile", "here", FENCEPOST_COMMAND_CONFIG=str(file))
    run("profile", "use", "here")
    assert ask(run)
    assert ask(run, "-X", "client.rack=a")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("current = 3 4\n", "is not a file of profiles"),
        ("[profiles.a]\nbootstrap = 'x'\n", "is not a file of profiles"),
        ("current = 'gone'\n", "profile 'gone' does not exist (there is none)"),
    ],
)
def test_a_file_that_makes_no_sense_is_reported_by_each_command(
    run: Run, tmp_path: Path, content: str, says: str
) -> None:
    file_of(tmp_path).parent.mkdir()
    file_of(tmp_path).write_text(content)
    refused = run("topic", "list")
    assert (refused.exit_code, says in refused.output) == (2, True), refused.output


def test_a_named_profile_and_a_file_of_properties_exclude_each_other(run: Run, tmp_path: Path) -> None:
    run("profile", "create", "near", "-b", "localhost")
    file = tmp_path / "client.properties"
    file.touch()
    refused = run("topic", "list", "--profile", "near", "--command-config", str(file))
    assert (refused.exit_code, "exclude each other" in refused.output) == (2, True)


def test_a_profile_names_a_file_or_a_variable_that_has_the_password(run: Run, tmp_path: Path) -> None:
    """The password is in no file that the command writes, and in no output."""
    with Broker(
        {"super.users": "User:admin", "authorizer.class.name": "standard"}, tls=True, users={"admin": "s3kret"}
    ) as broker:
        properties = broker.client_config("admin")
        servers = properties.pop("bootstrap.servers")
        assert properties.pop("sasl.password") == "s3kret"
        assignments = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
        password = tmp_path / "password"
        password.write_text("s3kret\n")
        (tmp_path / "whole").write_text("".join(f"{k}={v}\n" for k, v in broker.client_config("admin").items()))
        creations = {
            "file": (*assignments, "--from-file", f"sasl.password={password}"),
            "variable": (*assignments, "--from-env", "sasl.password=ADMIN_PASSWORD"),
            "whole": ("--command-config", str(tmp_path / "whole")),
        }
        for name, words in creations.items():
            created = run("profile", "create", name, "-b", servers, *words)
            assert created.exit_code == 0, created.output
            assert "s3kret" not in run("profile", "show").output
            assert ask(run, ADMIN_PASSWORD="s3kret")
        assert "s3kret" not in file_of(tmp_path).read_text()
        refused = run("topic", "list", "--profile", "variable")
        assert "the environment variable ADMIN_PASSWORD, which is not set" in refused.output
        refused = run("topic", "list", "--profile", "variable", ADMIN_PASSWORD="guessed")
        assert "the security settings come from the profile 'variable'" in refused.output


def test_a_shell_completes_the_names_of_profiles_and_the_topics_of_the_current_one(
    broker: BrokerProcess, run: Run
) -> None:
    run("topic", "create", "completed", "--bootstrap", broker.address)
    run("profile", "create", "here", "-b", broker.address)
    for line, expected in (
        ("fencepost profile use h", "here"),
        ("fencepost topic list --profile h", "here"),
        ("fencepost topic describe comp", "completed"),
    ):
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        assert run(**asked, _FENCEPOST_COMPLETE="bash_complete").stdout == f"plain,{expected}\n"
