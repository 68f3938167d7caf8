"""OAUTHBEARER with signed tokens on a real broker: the issuer's keys come from a file and from https."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from fencepost.client.core.sasl import OAuthExchange, OAuthToken
from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.certificates import Authority
from tests.kit.sasl_broker import authenticate, connect, handshake
from tests.kit.waiting import until

KEY = ECKey.generate_key("P-256", {"kid": "one"}, private=True)
KEYS = json.dumps(KeySet([KEY]).as_dict(private=False))
URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The listener SASL reads the keys from a file, RENEWED from an https server."""
    where = tmp_path_factory.mktemp("oauth")
    (where / "keys.json").write_text(KEYS)
    authority = Authority(where / "pki")
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    server.socket = authority.server_context().wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,RENEWED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "sasl.oauthbearer.expected.audience": "kafka,other",
        f"listener.name.sasl.{URL}": (where / "keys.json").as_uri(),
        f"listener.name.renewed.{URL}": f"https://127.0.0.1:{server.server_port}/keys",
    }
    listen = ["--listen", "SASL://127.0.0.1:0", "--listen", "RENEWED://127.0.0.1:0"]
    trust = {"SSL_CERT_FILE": str(authority.ca)}
    with BrokerProcess(where / "broker", settings=settings, arguments=listen, environment=trust) as process:
        yield process
        assert "Traceback" not in process.log()
    server.shutdown()
    server.server_close()


class Issuer(BaseHTTPRequestHandler):
    """Serves the keys."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/keys" else 404)
        self.end_headers()
        self.wfile.write(KEYS.encode())

    def log_message(self, *_words: Any) -> None:
        """Keep standard error clean."""


def answer(broker: BrokerProcess, listener: str, key: ECKey = KEY, *, acknowledge: bool = True, **changed: Any) -> Any:
    """The last answer to a login with such a token."""
    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + 60, "aud": "kafka", **changed}
    exchange = OAuthExchange(OAuthToken(jwt.encode({"alg": "ES256", "kid": "one"}, claims, key)))
    with connect(broker, listener) as wire:
        assert handshake(wire, "OAUTHBEARER").error_code == 0
        found = authenticate(wire, exchange.first())
        if acknowledge and (more := exchange.step(found.auth_bytes)) is not None:
            found = authenticate(wire, more)
        return found


@pytest.mark.parametrize("listener", ["SASL", "RENEWED"])
def test_a_signed_token_logs_in_for_as_long_as_it_is_valid(broker: BrokerProcess, listener: str) -> None:
    """KIP-368: a session ends with its token."""
    found = until(lambda: answer(broker, listener), lambda found: not found.error_code)  # once the keys are read
    assert 50_000 < found.session_lifetime_ms <= 60_000


@pytest.mark.parametrize("listener", ["SASL", "RENEWED"])
def test_other_tokens_are_refused(broker: BrokerProcess, listener: str) -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "one"}, private=True)
    for refused in (
        answer(broker, listener, stranger),
        answer(broker, listener, aud="somebody"),
        answer(broker, listener, exp=int(time.time()) - 60),
    ):
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message == '{"status":"invalid_token"}'


@pytest.mark.parametrize("acknowledged", [True, False])
def test_the_log_says_once_why_a_token_was_refused(broker: BrokerProcess, acknowledged: bool) -> None:
    """Also if the client closes the connection, or continues as if it had logged in: most clients do."""
    line = "LOGIN_FAILED host=127.0.0.1 listener=SASL cause=login refused mechanism=OAUTHBEARER reason="
    line += "the token was rejected: the token is for another audience"
    before = broker.log().count(line)
    answer(broker, "SASL", acknowledge=acknowledged, aud="somebody")
    until(broker.log, lambda log: log.count(line) > before)
    time.sleep(0.1)
    assert broker.log().count(line) == before + 1
