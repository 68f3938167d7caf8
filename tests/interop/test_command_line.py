"""`fencepost topic`, `config`, `cluster` and plans, asked of our broker and of a real Apache Kafka (rows D1 to D9)."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import fencepost.sync
from fencepost.cli.main import cli
from fencepost.client.admin import QuotaEntity, ScramUpsertion
from tests.interop.conftest import StartKafka
from tests.interop.java.real_kafka import RealKafka
from tests.kit.certificates import Authority
from tests.kit.waiting import until

PATIENCE_SECONDS = 90.0
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.guarded.plain.sasl.jaas.config": f'{PLAIN} user_admin="secret=1" user_guest="guest";',
}


class Commands:
    """Commands for one broker."""

    def __init__(self, bootstrap: str, *options: str) -> None:
        self._options = ["--timeout", "100", "--bootstrap", bootstrap, *options]

    def run(self, *words: str, typed: str | None = None) -> Result:
        """One command."""
        return CliRunner().invoke(cli, [*words, *self._options], input=typed)

    def told(self, *words: str) -> Any:
        """One command's JSON."""
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def until(self, enough: Callable[[Any], bool], *words: str) -> Any:
        """One command's JSON once it is as it must become: a broker learns of a change a moment after it was made."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            result = self.run(*words, "--json")
            if result.exit_code == 0 and enough(json.loads(result.stdout)):
                return json.loads(result.stdout)
            assert time.monotonic() < deadline, result.output
            time.sleep(0.1)


@pytest.fixture
def commands(each_bootstrap: str) -> Commands:
    return Commands(each_bootstrap)


each_broker = pytest.mark.parametrize("each_bootstrap", ["fencepost", "kafka"], indirect=True)


@each_broker
def test_topics_and_their_settings_from_the_first_to_the_last(commands: Commands, name: str) -> None:
    assert commands.run("topic", "create", name, "-p", "2", "--set", "retention.ms=86400000").exit_code == 0
    assert commands.run("topic", "create", name).exit_code == 1
    (one,) = commands.until(lambda found: len(found[0]["partitions"]) == 2, "topic", "describe", name)
    assert one["configs"] == {"retention.ms": "86400000"}
    assert commands.run("topic", "add-partitions", name, "--to", "3").exit_code == 0
    commands.until(lambda found: len(found[0]["partitions"]) == 3, "topic", "describe", name)
    (step,) = commands.told("config", "set", "topic", name, "max.message.bytes=4096")
    assert step["after"] == "4096"
    found = commands.until(lambda found: len(found) >= 2, "config", "get", "topic", name)
    own = {entry["name"]: entry for entry in found if entry["source"] == "DYNAMIC_TOPIC_CONFIG"}
    assert {setting: entry["value"] for setting, entry in own.items()} == {
        "retention.ms": "86400000",
        "max.message.bytes": "4096",
    }
    synonyms = [(one["name"], one["source"]) for one in own["max.message.bytes"]["synonyms"]]
    assert synonyms == [("max.message.bytes", "DYNAMIC_TOPIC_CONFIG"), ("message.max.bytes", "DEFAULT_CONFIG")]
    assert [one["offsets"] for one in commands.told("topic", "offsets", name)] == [0, 0, 0]
    assert commands.run("topic", "trim", name, "--all").exit_code == 0
    assert commands.run("topic", "delete", name).stdout == f"Deleted: topic '{name}' with 3 partitions.\n"
    until(lambda: commands.run("topic", "describe", name).exit_code, seconds=PATIENCE_SECONDS)


@each_broker
def test_the_cluster_answers(commands: Commands, name: str) -> None:
    commands.run("topic", "create", name, "-p", "1")
    assert commands.told("cluster", "describe")["brokers"][0]["controller"] is True
    assert commands.told("cluster", "features")["features"]["transaction.version"]["level"] == 2
    found = commands.until(lambda found: any(one["replicas"] for one in found), "cluster", "log-dirs", "--topic", name)
    assert [replica["partition"] for one in found for replica in one["replicas"]] == [f"{name}:0"]
    led = commands.until(lambda told: not any(one["refused"] for one in told), "cluster", "elect-leaders", name)
    assert led == [{"partition": f"{name}:0", "elected": False, "refused": None}]
    assert commands.told("cluster", "reassignments") == []
    commands.until(lambda found: name in {one["name"] for one in found}, "config", "list", "--kind", "topic", "--all")


def test_a_plan_on_kafka_needs_consent_and_goes_step_by_step(real_kafka: RealKafka, name: str, tmp_path: Path) -> None:
    """Row D9: Kafka has no way to do it at once. It ignores the plan's tag, and does nothing by mistake."""
    commands = Commands(real_kafka.address)
    commands.run("topic", "create", f"{name}-old")
    commands.until(lambda found: found, "topic", "list", f"{name}-old")
    file = tmp_path / "plan.toml"
    file.write_text(
        f'[topics.{name}]\npartitions = 2\nconfigs = {{ "retention.ms" = 5000 }}\n'
        f'[topics.{name}-old]\nstate = "absent"\n'
        f"[groups.{name}.configs]\nconsumer.session.timeout.ms = 50000\n"
    )
    refused = commands.run("topic", "apply", str(file))
    assert (refused.exit_code, "only fencepost can" in refused.stderr) == (1, True), refused.output
    assert "--not-atomic" in refused.stderr
    dry = commands.run("topic", "apply", str(file), "--dry-run")
    assert (dry.exit_code, "one after the other" in dry.stdout) == (0, True), dry.output
    assert [one["name"] for one in commands.told("topic", "list", f"{name}*")] == [f"{name}-old"]
    done = commands.run("topic", "apply", str(file), "--not-atomic")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "4 changes, made one after the other."
    commands.until(lambda found: [one["name"] for one in found] == [name], "topic", "list", f"{name}*")
    commands.until(lambda told: told["changes"] == [], "topic", "apply", str(file), "--not-atomic", "--dry-run")
    file.write_text(f'[topics.{name}]\npartitions = 4\nconfigs = {{ "cleanup.policy" = "burn" }}\n')
    broken = commands.run("topic", "apply", str(file), "--not-atomic")
    assert (broken.exit_code, "nothing was changed" in broken.stderr) == (1, True), broken.output
    assert len(commands.told("topic", "describe", name)[0]["partitions"]) == 2, "checked before the first was done"


def test_the_metadata_shell_reads_the_directory_of_a_living_kafka(real_kafka: RealKafka, name: str) -> None:
    """Row M6: the same formats, the same tree; and nothing by which a password could be guessed."""
    commands = Commands(real_kafka.address)
    commands.run("topic", "create", name, "-p", "2", "--set", "retention.ms=5000")
    with fencepost.sync.Client(real_kafka.address, default_api_timeout=100) as kafka, kafka.admin() as admin:
        admin.alter_user_scram_credentials(upsert=[ScramUpsertion(name, "a-password", salt=b"0123456789abcdef")])
        quota = {QuotaEntity(user=name): {"producer_byte_rate": 1024.0}}
        admin.alter_client_quotas(quota)

    def shell(*words: str) -> Result:
        return CliRunner().invoke(cli, ["metadata-shell", str(real_kafka.work_dir / "data"), *words])

    until(lambda: shell("cat", f"/quotas/user={name}").exit_code == 0, seconds=PATIENCE_SECONDS)
    told = json.loads(shell("cat", f"/topics/{name}").stdout)
    known = commands.until(lambda found: found[0]["topic_id"], "topic", "describe", name)
    assert told["id"] == known[0]["topic_id"]
    assert (told["configs"], list(told["partitions"])) == ({"retention.ms": "5000"}, ["0", "1"])
    assert json.loads(shell("cat", f"/quotas/user={name}").stdout) == {"producer_byte_rate": 1024.0}
    assert json.loads(shell("cat", f"/scram/{name}").stdout) == {"SCRAM-SHA-512": {"iterations": 8192}}
    assert json.loads(shell("cat", "/brokers/1/registration").stdout)["fenced"] is False
    history = shell("history", f"/scram/{name}").stdout
    assert re.search(rf"^ +\d+  /scram/{name}/SCRAM-SHA-512  iterations 8192$", history, re.MULTILINE), history
    as_json = shell("history", f"/scram/{name}", "--json").stdout
    assert "UserScramCredential" in as_json
    assert not re.search("salt|stored_key|server_key", as_json)
    assert "transaction 'Bootstrap records'" in shell("history", "/features").stdout


def test_commands_log_in_as_a_file_says(start_kafka: StartKafka, tmp_path: Path, name: str) -> None:
    """--command-config with Java's names and with librdkafka's; -X; rights that lack; access rules in a plan."""
    authority = Authority(tmp_path / "pki")
    broker = authority.sign("broker", hosts=["localhost"], addresses=["127.0.0.1"])
    store = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": broker.key.read_text().strip().replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": broker.certificate.read_text().strip().replace("\n", "\\n"),
    }
    listeners = {"GUARDED": "SASL_PLAINTEXT", "TLS": "SSL"}
    kafka = start_kafka(settings={**GUARDED, **store}, listeners=listeners)
    address = kafka.address_of("GUARDED")
    java, librdkafka = tmp_path / "java.properties", tmp_path / "librdkafka.toml"
    java.write_text(
        f"# as kafka-topics takes it\nbootstrap.servers={address}\nsecurity.protocol=SASL_PLAINTEXT\n"
        f'sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} username="admin" password="secret=1";\n'
    )
    librdkafka.write_text(
        f'"metadata.broker.list" = "{address}"\n"security.protocol" = "sasl_plaintext"\n'
        '"sasl.mechanisms" = "PLAIN"\n"sasl.username" = "guest"\n"sasl.password" = "guest"\n'
    )
    admin = Commands(address, "--command-config", str(java))
    rules = f'[[acls]]\nprincipal = "User:guest"\noperations = ["describe"]\ntopic = "{name}"\npattern = "prefixed"\n'
    made = admin.run("topic", "apply", "-", "--not-atomic", typed=f"[topics.{name}]\n{rules}")
    assert made.exit_code == 0, made.output
    assert f"+ acl User:guest DESCRIBE TOPIC {name} (PREFIXED), ALLOW from *" in made.stdout
    guest = Commands(address, "--command-config", str(librdkafka))
    guest.until(lambda found: [one["name"] for one in found] == [name], "topic", "list", f"{name}*")
    denied = guest.run("topic", "delete", name)
    assert (denied.exit_code, "your user is not authorized for this request" in denied.stderr) == (1, True), (
        denied.output
    )
    wrong = guest.run("topic", "list", "-X", "sasl.password=wrong")
    assert (wrong.exit_code, f"the security settings come from {librdkafka}" in wrong.stderr) == (1, True), wrong.output
    from_file = CliRunner().invoke(cli, ["topic", "list", "--command-config", str(java), "--timeout", "100"])
    assert (from_file.exit_code, name in from_file.stdout) == (0, True), "the file names the broker, too"
    over_tls = tmp_path / "tls.properties"
    over_tls.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.ca}\n")
    tls = Commands(kafka.address_of("TLS"), "--command-config", str(over_tls))
    assert tls.told("cluster", "brokers")[0]["port"] == int(kafka.address_of("TLS").rpartition(":")[2])
    untrusted = Commands(kafka.address_of("TLS"), "-X", "security.protocol=ssl").run("cluster", "brokers")
    assert (untrusted.exit_code, "--command-config FILE" in untrusted.stderr) == (1, True), untrusted.output
    gone = admin.run("topic", "apply", "-", "--not-atomic", typed=f'{rules}state = "absent"\n')
    assert re.match(r"- acl User:guest DESCRIBE TOPIC .*\n1 change, made one after the other.\n", gone.stdout), (
        gone.output
    )
