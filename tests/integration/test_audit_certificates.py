"""Refused TLS handshakes in the audit log: those of a login by certificate, and no others."""

import re
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.broker.security.audit import LINES_PER_SECOND
from tests.kit.audit_log import Audit
from tests.kit.broker_process import BrokerProcess
from tests.kit.certificates import Authority, Signed
from tests.kit.waiting import until

pytestmark = pytest.mark.long
REFUSED = "LOGIN_FAILED host=127.0.0.1 listener=MUTUAL cause=login refused mechanism=certificate reason="


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Listener MUTUAL requires a certificate, of a subject that does not begin with CN=nobody."""
    keystore = authority.ca.with_name("keystore.pem")
    keystore.write_text(authority.sign("broker", addresses=["127.0.0.1"]).both)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL",
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.truststore.type": "PEM",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(?!nobody)(.*)$/$1/",
    }
    arguments = ["--listen", "MUTUAL://127.0.0.1:0", "--log-format", "json"]
    with BrokerProcess(tmp_path_factory.mktemp("mutual"), settings=settings, arguments=arguments) as one:
        yield one


@pytest.fixture
def audit(broker: BrokerProcess) -> Audit:
    return Audit(broker)


def connect(broker: BrokerProcess, ca: Path, own: Signed | None = None) -> None:
    """A TLS connection until the broker closes it, or the client does not trust the broker. Raises OSError."""
    context = ssl.create_default_context(cafile=str(ca))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    with (
        socket.create_connection(broker.listeners["MUTUAL"], 30) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as encrypted,
    ):
        until_closed(encrypted)


def until_closed(sock: socket.socket) -> None:
    while sock.recv(100):
        pass


def refuse(broker: BrokerProcess, authority: Authority, own: Signed | None = None) -> None:
    """A handshake that the broker refuses. In TLS 1.3 the client learns of it when it reads."""
    with pytest.raises(OSError, match=r"alert|reset"):
        connect(broker, authority.ca, own)


def test_a_client_without_a_certificate(broker: BrokerProcess, authority: Authority, audit: Audit) -> None:
    refuse(broker, authority)
    until(lambda: audit.lines, lambda lines: lines == [f"{REFUSED}peer did not return a certificate"])


def test_a_certificate_by_an_unknown_authority(
    broker: BrokerProcess, authority: Authority, audit: Audit, tmp_path: Path
) -> None:
    refuse(broker, authority, Authority(tmp_path, "other").sign("mallory"))
    reason = "certificate verify failed: unable to get local issuer certificate"
    until(lambda: audit.lines, lambda lines: lines == [REFUSED + reason])


def test_an_expired_certificate(broker: BrokerProcess, authority: Authority, audit: Audit) -> None:
    refuse(broker, authority, authority.sign("late", expired=True))
    until(lambda: audit.lines, lambda lines: lines == [f"{REFUSED}certificate verify failed: certificate has expired"])


def test_a_certificate_that_no_rule_maps(broker: BrokerProcess, authority: Authority, audit: Audit) -> None:
    connect(broker, authority.ca, authority.sign("nobody"))
    reason = "no rule in ssl.principal.mapping.rules matches the certificate's subject 'CN=nobody'"
    until(lambda: audit.lines, lambda lines: lines == [REFUSED + reason])


def test_many_refusals_are_few_lines(broker: BrokerProcess, authority: Authority, audit: Audit) -> None:
    """The line after a second has the number of those left out."""
    attempts = 3 * LINES_PER_SECOND
    time.sleep(1)
    began = time.monotonic()
    for _ in range(attempts):
        refuse(broker, authority)
    seconds = time.monotonic() - began
    time.sleep(1)
    refuse(broker, authority)

    def accounted(lines: list[str]) -> bool:
        left_out = sum(int(found[1]) for line in lines if (found := re.search(r" left_out_before=(\d+)$", line)))
        return len(lines) + left_out == attempts + 1

    assert len(until(lambda: audit.lines, accounted)) <= LINES_PER_SECOND * (seconds + 1) + 1


def test_what_is_no_login_has_no_line(
    broker: BrokerProcess, authority: Authority, audit: Audit, tmp_path: Path
) -> None:
    """A port scan, and a client that does not trust the broker."""
    before = broker.log().count("closing connection")
    for sent in (b"GET / HTTP/1.1\r\n\r\n", bytes(20), b"\x16\x03\x01\x02\x00" + b"\xff" * 512):
        with socket.create_connection(broker.listeners["MUTUAL"], 30) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            until_closed(sock)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(broker, Authority(tmp_path, "other").ca)
    refuse(broker, authority)
    until(broker.log, lambda log: log.count("closing connection") == before + 5)
    assert audit.lines == [f"{REFUSED}peer did not return a certificate"]
