"""The ten commands of docs/security.md, run as a reader runs them: by bash, in an empty directory."""

import os
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.protocol.errors import ErrorCode
from fencepost.testing import Broker
from tests.architecture.project_files import ROOT
from tests.kit.shell import run, shell
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of

pytestmark = pytest.mark.long
DOCUMENT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
SECTION = DOCUMENT.partition("\n## A broker that only alice may write to\n")[2].partition("\n## ")[0]
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


READ = """
from confluent_kafka import Consumer

config = dict(line.strip().split("=", 1) for line in open("bob.properties"))
consumer = Consumer({**config, "group.id": "billing", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
print(*(one.error() or one.value() for one in consumer.consume(1, 60)))
consumer.close()
"""


@pytest.mark.parametrize(
    ("host", "san", "interface"),
    [("localhost", "DNS:localhost", "127.0.0.1"), ("127.0.0.2", "IP:127.0.0.2", "0.0.0.0")],
)
def test_the_ten_commands_work_as_printed(tmp_path: Path, host: str, san: str, interface: str) -> None:
    """For this machine, and for clients on others: with the two changes that the page names."""
    with socket.socket() as free:
        free.bind((interface, 0))
        port = str(free.getsockname()[1])

    def adapted(text: str) -> str:
        named = text.replace("host=localhost san=DNS:localhost", f"host={host} san={san}")
        return (
            named.replace("localhost:9093", f"{host}:9093").replace("127.0.0.1:", f"{interface}:").replace("9093", port)
        )

    prepare, start, write, explain, later = map(adapted, blocks("sh"))
    (settings,), (program,), (printed, explained) = blocks("properties"), blocks("python"), blocks("text")
    (tmp_path / "broker.properties").write_text(adapted(settings))
    (tmp_path / "write.py").write_text(program)
    (tmp_path / "read.py").write_text(READ)
    with shell(tmp_path) as bash:
        before = run(bash, prepare)
        started = run(bash, start)
        assert run(bash, write) == printed, before + started + (tmp_path / "broker.log").read_text()
        assert run(bash, explain) == adapted(explained)
        assert run(bash, "python read.py") == "b'one order'\n"
        changed = run(bash, later)
        until(lambda: (tmp_path / "broker.log").read_text(), lambda log: "new certificate in use" in log)
        assert run(bash, "python write.py alice.properties") == "alice wrote to orders\n", changed
        assert "SASL_AUTHENTICATION_FAILED" in run(bash, "python write.py bob.properties")
        assert "User:bob" not in run(bash, "fencepost acl list")
        certificate = f"openssl s_client -connect {host}:{port} -CAfile new-ca.pem < /dev/null 2>&1"
        assert "Verify return code: 0 (ok)" in run(bash, certificate)
        passwords = [path.read_bytes().strip() for path in tmp_path.glob("*.password")]
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert len(passwords) == 3
        assert b"alice" in stored
        assert not any(password in stored for password in passwords)


def test_other_users_of_the_machine_cannot_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with Broker(directory=tmp_path / "data") as broker:
            broker.create_topic("orders")
    finally:
        os.umask(before)
    found = {path for path in (tmp_path / "data").rglob("*") if path.is_file() and path.stat().st_mode & 0o077}
    assert {path.name for path in found} == {"meta.properties", "meta.properties.twin"}


def test_a_secret_that_is_set_at_run_time_is_in_the_metadata_log_as_it_is(tmp_path: Path) -> None:
    """What docs/security.md warns of."""
    with Broker(directory=tmp_path) as broker:
        words = ["config", "set", "broker", "1", "ssl.key.password=a-secret", "--bootstrap", broker.bootstrap]
        shown = CliRunner().invoke(cli, words)
        assert (shown.exit_code, "a-secret" in shown.output) == (0, False), shown.output
    assert any(b"a-secret" in path.read_bytes() for path in (tmp_path / "__cluster_metadata-0").glob("*.log"))


def test_a_producer_id_belongs_to_no_user() -> None:
    """What docs/security.md warns of: another client can write with it, and its producer is refused."""
    with Broker() as broker:
        broker.create_topic("orders")
        with (
            Wire(socket.create_connection(("127.0.0.1", broker.port))) as own,
            Wire(socket.create_connection(("127.0.0.1", broker.port))) as other,
        ):
            batches = [batch_of(b"1", producer_id=7, producer_epoch=epoch, base_sequence=0) for epoch in (0, 1, 0)]
            codes = [
                wire.produce("orders", batch).error_code for wire, batch in zip((own, other, own), batches, strict=True)
            ]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
