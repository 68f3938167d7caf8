"""Docker Compose with TLS, as docs/security.md prints it: its commands, and its broker as a process."""

import re
from pathlib import Path

from tests.architecture.project_files import ROOT
from tests.kit.compose import ComposeBroker, compose
from tests.kit.shell import run, shell

_DOCUMENT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_SECTION = _DOCUMENT.partition("\n## With Docker Compose\n")[2].partition("\n## ")[0]
_PREPARE, _START = re.findall(r"^```sh\n(.*?)^```", _SECTION, re.MULTILINE | re.DOTALL)
_UP = "docker compose up --build --detach\n"


def secure_broker(directory: Path) -> ComposeBroker:
    """The broker of the documented files, with secrets made by the documented commands."""
    with shell(directory) as bash:
        run(bash, _PREPARE)
        given = run(bash, "echo $COMPOSE_FILE $BROKER_HOST")
    files, host = given.split()
    secrets = directory / "secrets"
    broker = ComposeBroker(
        directory / "broker", compose(*files.split(":"))["services"]["broker"], {"BROKER_HOST": host}, secrets
    )
    for file in secrets.glob("*.properties"):
        file.write_text(broker.here(file.read_text()))
    return broker


def add_spark(broker: ComposeBroker, directory: Path) -> str:
    """Run what is documented for the time after the start, as `docker compose exec` would in the container."""
    assert _START.startswith(_UP)
    commands = _START.removeprefix(_UP).replace("docker compose exec broker ", "")
    assert "docker" not in commands
    with shell(directory) as bash:
        settings = "".join(f"export {name}={value}\n" for name, value in broker.environment.items())
        return run(bash, settings + broker.here(commands))
