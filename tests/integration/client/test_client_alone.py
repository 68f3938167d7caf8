"""What works in an environment with the packages of `pip install fencepost`, and what the rest says that it needs."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

OF_THE_CLIENT = {"anyio", "construct", "crc32c", "cramjam"}
BEHIND_THEM = {"idna", "sniffio", "typing_extensions"}
"""What anyio imports. With Python 3.15 it needs none of them but idna."""
ALONE = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names | {OF_THE_CLIENT | BEHIND_THEM | {"fencepost"}!r}:
            raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)

sys.meta_path.insert(0, Refuse())
"""
ROUND_TRIP = """
import asyncio, fencepost

async def main():
    async with fencepost.Client(sys.argv[1]) as kafka:
        async with kafka.transactional_producer("alone") as producer, producer.transaction() as txn:
            await txn.send("alone", b"one", key=b"key")
        async with kafka.consumer("alone", group="alone") as consumer:
            print([record.value async for batch in consumer.read_to_end() for record in batch])

asyncio.run(main())
"""


def alone(program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that can import nothing but what the client needs."""
    whole = [sys.executable, "-c", ALONE + program, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(whole, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_client_needs_what_the_package_depends_on_and_no_more(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {re.split(r"[>=]", one)[0] for one in project["dependencies"]} == OF_THE_CLIENT
    with BrokerProcess(tmp_path) as broker:
        done = alone(ROUND_TRIP, broker.address, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[b'one']\n", "")


def test_a_program_on_asyncio_imports_no_trio(tmp_path: Path) -> None:
    """Nor anything else of the broker, where it is installed."""
    program = f"import sys{ROUND_TRIP}\nprint({{'trio', 'outcome', 'click', 're2', 'msgspec'}} & set(sys.modules))"
    with BrokerProcess(tmp_path) as broker:
        done = subprocess.run(
            [sys.executable, "-c", program, broker.address], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.stdout, done.stderr) == ("[b'one']\nset()\n", "")


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("from fencepost.testing import Broker", "fencepost.testing needs trio: pip install 'fencepost[broker]'"),
        (
            "from fencepost.testing.__main__ import main; main()",
            "fencepost.testing needs trio: pip install 'fencepost[broker]'",
        ),
        (
            "from fencepost.testcontainers import install; install()",
            "fencepost.testcontainers needs trio: pip install 'fencepost[broker]'",
        ),
        ("import fencepost.sync", "fencepost.sync needs trio: pip install 'fencepost[sync]'"),
        ("from fencepost.client.serializers import Json; Json()", "Json needs msgspec: pip install 'fencepost[json]'"),
    ],
)
def test_what_needs_an_extra_names_it(program: str, message: str, tmp_path: Path) -> None:
    done = alone(program, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"ModuleNotFoundError: {message}")


def test_the_version_is_told_without_them(tmp_path: Path) -> None:
    done = alone("import fencepost.__main__; fencepost.__main__.main()", "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"fencepost \S+ \(records: .+\)\n", done.stdout)


def test_the_command_without_its_packages_is_one_line_that_names_them(tmp_path: Path) -> None:
    done = alone("import fencepost.__main__; fencepost.__main__.main()", "serve", "--memory", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fencepost: the command needs click: pip install 'fencepost[broker]'\n"
