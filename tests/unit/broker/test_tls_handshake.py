"""TLS in a broker of this process: the principal of a client's certificate, and clients that never finish."""

import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.network import tls
from fencepost.broker.node import Node
from fencepost.broker.security.principal import ANONYMOUS, Principal
from fencepost.broker.security.security_protocol import SecurityProtocol
from fencepost.protocol.messages.api03_metadata import MetadataRequest
from tests.kit.certificates import Authority, Signed
from tests.kit.waiting import until
from tests.kit.wire import ConnectionEnded, Wire

RULES = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U,RULE:^CN=[^,]*$/$0/"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def for_servers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "servers", for_servers=True)


@pytest.fixture
async def node(
    authority: Authority, for_servers: Authority, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[Node]:
    keystore, trusted = tmp_path / "keystore.pem", tmp_path / "trusted.pem"
    keystore.write_text(authority.sign("server", addresses=["127.0.0.1"]).both)
    trusted.write_text(authority.ca.read_text() + for_servers.ca.read_text())
    given = [
        "storage=memory",
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        f"ssl.keystore.location={keystore}",
        f"ssl.truststore.location={trusted}",
        "ssl.client.auth=requested",
        f"ssl.principal.mapping.rules={RULES}",
    ]
    made = Node(load_config(assignments=given))
    await nursery.start(made.run)
    yield made
    made.stop()
    await made.stopped.wait()


def connect(node: Node, authority: Authority, own: Signed | None) -> Any:
    context = ssl.create_default_context(cafile=str(authority.ca))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    sock = socket.create_connection(node.endpoints["SSL"], 10)
    return context.wrap_socket(sock, server_hostname="127.0.0.1")


def ask(node: Node, authority: Authority, own: Signed | None) -> Wire:
    wire = Wire(connect(node, authority, own))
    try:
        wire.call(3, 9, MetadataRequest(topics=[]))
    except BaseException:
        wire.close()
        raise
    return wire


@pytest.mark.parametrize(
    ("name", "unit", "principal"),
    [
        ("alice", "ServiceUsers", Principal("User", "ALICE")),
        ("bob", None, Principal("User", "CN=bob")),
        (None, None, ANONYMOUS),
    ],
)
async def test_the_certificate_names_the_principal(
    node: Node, authority: Authority, name: str | None, unit: str | None, principal: Principal
) -> None:
    """KIP-371; without a certificate the principal is User:ANONYMOUS, as in Kafka."""
    own = None if name is None else authority.sign(name, unit=unit)
    with await trio.to_thread.run_sync(partial(ask, node, authority, own)):
        assert node.server is not None
        (session,) = (one.session for one in node.server.connections)
        assert session.principal == principal
        assert (session.listener_name, session.security_protocol) == ("SSL", SecurityProtocol.SSL)


async def test_a_certificate_that_no_rule_maps_is_refused(
    node: Node, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    own = authority.sign("eve", unit="Guests")
    with pytest.raises((OSError, ConnectionEnded)):
        await trio.to_thread.run_sync(partial(ask, node, authority, own))
    assert "no rule in ssl.principal.mapping.rules matches the certificate's subject 'CN=eve,OU=Guests'" in caplog.text


async def test_a_client_of_an_authority_for_servers_is_refused(
    node: Node, authority: Authority, for_servers: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenSSL asks for clientAuth in an authority's extended key usage, too; Java does not (troubleshooting.md)."""
    with pytest.raises((OSError, ConnectionEnded), match="unsupported certificate"):
        await trio.to_thread.run_sync(partial(ask, node, authority, for_servers.sign("alice")))
    assert "unsuitable certificate purpose" in caplog.text


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
async def test_a_silent_client_is_closed_at_the_deadline(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.2)
    with socket.create_connection(node.endpoints["SSL"], 10) as sock:
        sock.sendall(sent)
        assert await trio.to_thread.run_sync(sock.recv, 1) == b""
    assert "the client did not finish the TLS handshake within 0.2 s" in caplog.text


async def test_many_handshakes_at_once_leave_the_loop_to_others(node: Node, authority: Authority) -> None:
    """100 clients finish their handshakes while another client is served."""
    with await trio.to_thread.run_sync(lambda: Wire(socket.create_connection(node.endpoints["PLAINTEXT"], 10))) as wire:
        made: list[Wire] = []
        served = 0

        async def shake() -> None:
            made.append(await trio.to_thread.run_sync(partial(ask, node, authority, None)))

        async with trio.open_nursery() as clients:
            for _ in range(100):
                clients.start_soon(shake)
            while len(made) < 100:
                await trio.to_thread.run_sync(wire.call, 3, 9, MetadataRequest(topics=[]))
                served += 1
        for one in made:
            one.close()
    assert served > 3, "mostly 10; a count, because a time would depend on what else runs"
    assert node.server is not None
    await trio.to_thread.run_sync(until, lambda: not node.server.connections)
