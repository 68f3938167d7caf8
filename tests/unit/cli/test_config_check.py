"""`fencepost config check`: it takes and refuses what `serve --config` does, and starts nothing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.main import cli
from tests.kit.certificates import Authority

PROPERTIES = """# A broker of Kafka's.
node.id=7
process.roles=broker,controller
listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=/nowhere/at/all
num.network.threads=3
ssl.keystore.password=hidden
"""


def check(tmp_path: Path, text: str, *words: str, name: str = "server.properties") -> Result:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return CliRunner().invoke(cli, ["config", "check", str(file), *words])


def test_kafkas_own_file_is_checked_without_a_broker(tmp_path: Path) -> None:
    checked = check(tmp_path, PROPERTIES)
    assert checked.exit_code == 0, checked.output
    assert "a broker would start with it" in checked.stdout
    assert "without effect: controller.listener.names, num.network.threads, process.roles" in checked.stdout
    assert "not served: CONTROLLER://:9093" in checked.stdout
    assert "open to every client: PLAINTEXT://0.0.0.0:9092" in checked.stdout
    assert "hidden" not in checked.output


def test_json_has_the_same(tmp_path: Path) -> None:
    checked = check(tmp_path, PROPERTIES, "--set", "listeners=PLAINTEXT://127.0.0.1:9092", "--json")
    found = json.loads(checked.stdout)
    assert {"node.id", "log.dirs"} <= set(found["settings"])
    assert "num.network.threads" in found["without_effect"]
    assert found["open_to_every_client"] == []
    assert "hidden" not in checked.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("num.partition=3", "num.partitions"),
        ("num.partitions=three", "three"),
        ("listeners=SASL_SSL://:9094", "SASL_SSL"),
    ],
)
def test_what_a_broker_would_refuse_is_refused_with_the_name(tmp_path: Path, text: str, said: str) -> None:
    checked = check(tmp_path, text)
    assert (checked.exit_code, said in checked.stderr) == (1, True), checked.output
    as_json = check(tmp_path, text, "--json")
    assert (as_json.exit_code, said in json.loads(as_json.stderr)["message"]) == (1, True)


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    text = "num.partition=3\nlog.retention.ms=soon\nlistener.name.x.nonsense=1\nnum.partitions=2\n"
    checked = check(tmp_path, text)
    assert checked.exit_code == 1
    lines = checked.stderr.splitlines()
    assert ["num.partition " in lines[0], "log.retention.ms" in lines[1], "nonsense" in lines[2]] == [True] * 3
    assert len(lines) == 3
    listeners = "listeners=SASL_SSL://:9094,SSL://:9095\nsuper.users=User:a\nfirst.user=a\n"
    checked = check(tmp_path, listeners + "group.consumer.heartbeat.interval.ms=1\n")
    for said in ("super.users", "first.password", "min.heartbeat", "uses SASL", "SASL_SSL and needs", "SSL uses SSL"):
        assert said in checked.stderr
    assert len(checked.stderr.splitlines()) == 6


def test_a_name_that_resembles_no_setting_has_no_nearest(tmp_path: Path) -> None:
    checked = check(tmp_path, "zookeeper.connect=localhost:2181\n")
    assert (checked.exit_code, "nearest" in checked.stderr) == (1, False), checked.output


def test_the_certificates_are_loaded_as_at_a_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, junk, none = tmp_path / "own.pem", tmp_path / "junk.pem", tmp_path / "none.pem"
    own.write_text(authority.sign("server").both, encoding="utf-8")
    junk.write_text("no certificate", encoding="utf-8")
    pem = "listeners=SSL://:9093,TWO://:9094\nlistener.security.protocol.map=SSL:SSL,TWO:SSL\nssl.keystore.type=PEM\n"
    assert check(tmp_path, f"{pem}ssl.keystore.location={own}\n").exit_code == 0
    stores = f"ssl.keystore.location={none}\nlistener.name.two.ssl.keystore.location={junk}\n"
    trust = f"ssl.client.auth=required\nssl.truststore.type=PEM\nssl.truststore.location={junk}\n"
    checked = check(tmp_path, pem + stores + trust)
    assert checked.exit_code == 1, checked.output
    lines = checked.stderr.splitlines()
    for line, store in zip(
        lines, (f"keystore.location {none}", "truststore", f"keystore.location {junk}", "truststore"), strict=True
    ):
        assert f"ssl.{store}" in line, lines


def test_toml_is_checked_as_well(tmp_path: Path) -> None:
    assert check(tmp_path, '"num.partitions" = 3\n', name="broker.toml").exit_code == 0
