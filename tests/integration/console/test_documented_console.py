"""The ten minutes of docs/console.md, as a reader spends them: commands by bash, the rest by a browser's requests."""

import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.cli.console import console
from fencepost.testing.reserved_port import reserve_port
from tests.architecture.project_files import ROOT
from tests.kit.chromium import chromium_path
from tests.kit.console import Visitor, wait_for
from tests.kit.shell import run, shell

pytestmark = pytest.mark.long
DOCUMENT = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
SERVE, SESSION, NETWORK = re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
PICTURES = re.findall(r"!\[[^]]+\]\((pictures/[\w-]+\.png)\)", DOCUMENT)


class Owner:
    """Reserves a port while it exists."""

    def __init__(self) -> None:
        self.port = reserve_port(self, "127.0.0.1")


def test_the_ten_minutes(tmp_path: Path) -> None:
    """A stuck transaction is found and ended by the console alone."""
    broker, served = Owner(), Owner()
    serve = SERVE.strip().replace("127.0.0.1:8080", f"127.0.0.1:{served.port}")
    with shell(tmp_path) as first, shell(tmp_path) as second, ThreadPoolExecutor() as threads:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(f"{serve} --listen 127.0.0.1:{broker.port}\n")
        first.stdin.flush()
        while "fencepost ready on" not in (line := first.stdout.readline()):
            assert line
        assert f"console=http://127.0.0.1:{served.port}" in line
        visitor = Visitor(f"http://127.0.0.1:{served.port}")
        waits = SESSION.replace("sleep 50", "while [ ! -e ended ]; do sleep 0.1; done")
        assert waits != SESSION
        script = f"export FENCEPOST_BOOTSTRAP=127.0.0.1:{broker.port}\n{waits}\necho exit code $?"
        program = threads.submit(run, second, script)
        wait_for(lambda: "orders:0" in visitor.get("/stuck").words)
        assert "Held by producer" in visitor.get("/stuck/orders/0").words
        done = visitor.post("/transaction/abort", {"id": "demo", "sure": "yes"})
        assert "is aborted" in done.words
        (tmp_path / "ended").touch()
        assert "exit code 1" in program.result(60), "its commit is refused"
        audit = visitor.get("/audit").words
        assert "aborted the transaction of 'demo'" in audit
        assert "refused" in audit


def test_the_command_for_the_network_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("client.properties", "server.pem", "server.key"):
        Path(name).write_text("")
    words = shlex.split(NETWORK.replace("\\\n", " "))
    assert words[:2] == ["fencepost", "console"]
    context = console.make_context("console", words[2:])
    assert context.params["listen"] == "0.0.0.0:8443"
    assert context.params["hosts"] == ("console.example",)


def test_every_picture_is_there_and_every_one_is_shown() -> None:
    there = {f"pictures/{path.name}" for path in (ROOT / "docs" / "pictures").glob("console-*.png")}
    assert there == set(PICTURES) | {"pictures/console-tail-dark.png"}


@pytest.mark.skipif(chromium_path() is None, reason="there is no Chromium on this machine")
def test_the_pictures_can_be_taken_again(tmp_path: Path) -> None:
    """By the documented command, in a copy of the project: the docs of the clone stay as they are."""
    copy = tmp_path / "project"
    for name in ("deploy", "fencepost"):
        shutil.copytree(ROOT / name, copy / name)
    (copy / "docs").mkdir()
    broker, served = Owner(), Owner()
    ports = {"127.0.0.1:9092": f"127.0.0.1:{broker.port}", "127.0.0.1:8080": f"127.0.0.1:{served.port}"}
    script = copy / "deploy" / "docs_site" / "console_pictures.py"
    text = script.read_text()
    for usual, free in ports.items():
        text = text.replace(usual, free)
    script.write_text(text.replace("SETTLE_MS = 3500", "SETTLE_MS = 500"))
    with shell(copy) as bash:
        assert "console-log.png" in run(bash, "PYTHONPATH=. python -m deploy.docs_site.console_pictures")
    assert {path.name for path in (copy / "docs" / "pictures").iterdir()} == {
        path.name for path in (ROOT / "docs" / "pictures").iterdir()
    }
