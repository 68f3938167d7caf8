"""`fencepost spark`: what it says where something is missing or wrong, and what scripts get from it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from fencepost.spark_pipelines import MissingPartError, need_spark, session
from tests.kit import damage
from tests.spark.conftest import Transact
from tests.spark.spoilt_logs import TakenApart, spoilt

NOBODY = "127.0.0.1:9"
QUICKLY = ("-X", "default.api.timeout.ms=1500", "-X", "request.timeout.ms=1000")


def fencepost(*words: str) -> Result:
    return CliRunner().invoke(cli, ["spark", *words])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a stopped broker."""
    work = tmp_path_factory.mktemp("stopped")
    (work / "data").mkdir()
    trio.run(damage.make, work / "data", work / "crashed")
    return work / "data"


def test_the_group_and_each_command_teach_by_example() -> None:
    assert "check that no record is lost or there twice" in fencepost("--help").output
    for command in ("audit", "export", "etl"):
        told = fencepost(command, "--help").output
        assert f"fencepost spark {command} " in told.partition("Examples:")[2]


def test_an_audit_says_what_it_found_by_its_exit_code_in_words_and_as_json(directory: Path, tmp_path: Path) -> None:
    sound = fencepost("audit", "--data", str(directory), "--local", "--html", str(tmp_path / "page.html"))
    assert sound.exit_code == 0, sound.output
    assert "Exactly once: 98 committed records" in sound.output
    assert "▒" in sound.output, "the picture"
    assert (tmp_path / "page.html").read_text().count("<svg") == 3

    def without_a_batch(log: TakenApart) -> None:
        del log.batches[log.first("plain", 1)]

    broken = spoilt(directory, tmp_path / "spoilt", "orders-2", without_a_batch)
    found = fencepost("audit", "--data", str(broken), "--local", "--json")
    assert found.exit_code == 1
    tree = json.loads(found.stdout)
    assert (tree["sound"], tree["faults"]) == (False, 1)
    (fault,) = tree["partitions"][2]["faults"]
    assert fault["rule"] == "offsets are dense"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("audit", "--local", "--bootstrap", NOBODY, *QUICKLY), 1, f"is a broker running at {NOBODY}?"),
        (("audit", "--local", "--bootstrap", NOBODY, "--timeout", "1.5"), 1, f"is a broker running at {NOBODY}?"),
        (("audit", "nothing", "--local", "--data", "DIRECTORY"), 1, "there is no topic nothing"),
        (("audit", "--local", "--data", "/no/such"), 2, "does not exist"),
        (("audit", "--local", "--conf", "spark"), 2, "write it as NAME=VALUE"),
        (("export", "t"), 2, "Missing option '--into'"),
        (("export", "t", "--into", "x", "--select", "value", "--sql", "SELECT 1"), 1, "set only one of select, sql"),
        (("etl", "t", "--to", "u", "--checkpoint", "x", "--function", "billing"), 1, "write it as MODULE:FUNCTION"),
        (("etl", "t", "--to", "u"), 2, "Missing option '--checkpoint'"),
    ],
)
def test_what_goes_wrong_is_said_with_what_to_do(directory: Path, words: tuple[str, ...], code: int, says: str) -> None:
    result = fencepost(*(str(directory) if word == "DIRECTORY" else word for word in words))
    assert (result.exit_code, says in result.output) == (code, True), result.output
    assert "Traceback" not in result.output


WITHOUT = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(','))); from fencepost.cli.main import cli; "


def test_a_local_audit_needs_rich_for_its_picture_and_nothing_of_spark(directory: Path) -> None:
    def audit_without(modules: str, *words: str) -> subprocess.CompletedProcess[str]:
        audit = ["spark", "audit", "--local", "--data", str(directory), *words]
        command = [sys.executable, "-c", f"{WITHOUT}cli({audit!r})", modules]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    of_spark = "pyspark,pyarrow,numpy,pandas"
    assert "Exactly once: 98 committed records" in audit_without(of_spark).stdout
    assert json.loads(audit_without(f"{of_spark},rich", "--json").stdout)["sound"] is True
    refused = audit_without(f"{of_spark},rich")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines() == [
        "fencepost: rich, which prints the report, is not installed here.",
        "  Install it (pip install rich), or use --json",
    ]


def a_java(folder: Path, version: str) -> Path:
    """A program that says it is such a Java."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return folder


def test_where_java_or_pyspark_is_missing_or_too_old_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    result = fencepost("export", "t", "--into", str(tmp_path / "lake"))
    assert result.exit_code == 1
    assert "Spark needs Java 17 or newer. There is no java command" in result.output
    assert "apt install openjdk-17-jre-headless" in result.output
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    for version, number in (("1.8.0_402", 8), ("11.0.22", 11)):
        monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / version, version)))
        with pytest.raises(MissingPartError, match=f"is Java {number}: set JAVA_HOME to a newer one"):
            need_spark()
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "new", "21.0.1")))
    need_spark()
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(MissingPartError, match=r"pyspark and pyarrow and numpy is not installed.*pip install"):
        need_spark()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_task_that_raises_gives_one_line(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    """And an export's command says how much it did, and can be repeated."""
    transact([(0, b"1"), (1, b"2")])
    words = ("export", topic, "--into", str(tmp_path / "lake"), "--bootstrap", bootstrap)
    result = fencepost(*words)
    assert result.exit_code == 0, result.output
    assert "2 rows in 1 new batch: " in result.output
    assert "0 rows in 0 new batches: " in fencepost(*words).output
    wrong = fencepost("export", topic, "--into", str(tmp_path / "x"), "--bootstrap", bootstrap, "--select", "valu")
    assert (wrong.exit_code, "The columns are: key, value, topic" in wrong.output) == (1, True), wrong.output
    failing = ("--select", "raise_error('it is ' || cast(value AS string)) AS value")
    raised = fencepost("export", topic, "--into", str(tmp_path / "y"), "--bootstrap", bootstrap, *failing)
    assert raised.exit_code == 1
    assert "it is " in raised.output
    assert "Traceback" not in raised.output
    assert "\tat " not in raised.output


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_an_export_gives_up_on_a_broker_that_is_away_after_its_timeout(spark: Any, tmp_path: Path) -> None:
    began = time.monotonic()
    away = fencepost("export", "t", "--into", str(tmp_path / "lake"), "--bootstrap", NOBODY, "--timeout", "1.5")
    assert (away.exit_code, f"is a broker running at {NOBODY}?" in away.output) == (1, True), away.output
    assert time.monotonic() - began < 30, "half of the default"
