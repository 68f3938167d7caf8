"""Sessions that are renewed, and brokers that hang up without a word: which of them are a wrong setting."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import AuthenticationError, ErrorCode, RetriableError
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeResponse
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateResponse
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

Script = Callable[..., Any]
SECONDS = 100
PLAIN = {
    "security_protocol": "sasl_plaintext",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "hunter2",
}
AUTHENTICATION = ("SaslHandshake", "SaslAuthenticate")


class SaslBroker(ScriptedBroker):
    """A scripted broker that takes anybody, for `lifetime_ms`; `refuses` are codes to use up first."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        super().__init__()
        self.lifetime_ms = lifetime_ms
        self.refuses: list[ErrorCode] = []

    def on_SaslHandshake(self, request: Any, version: int) -> Any:
        return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])

    def on_SaslAuthenticate(self, request: Any, version: int) -> Any:
        if self.refuses:
            return SaslAuthenticateResponse(error_code=self.refuses.pop(0), error_message="no", auth_bytes=b"")
        return SaslAuthenticateResponse(error_code=0, auth_bytes=b"", session_lifetime_ms=self.lifetime_ms)


@pytest.fixture
async def sasl(nursery: trio.Nursery) -> SaslBroker:
    broker = SaslBroker()
    await nursery.start(broker.serve)
    return broker


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{**PLAIN, **options})


async def test_the_first_requests_of_a_connection(sasl: SaslBroker) -> None:
    """Versions, who we are, and versions again: a broker may tell strangers less."""
    async with client(sasl) as kafka:
        await kafka._cluster.refresh(["t"])
    assert sasl.names() == ["ApiVersions", *AUTHENTICATION, "ApiVersions", "Metadata"]
    [(_, version, message)] = [one for one in sasl.requests if one[0] == "SaslAuthenticate"]
    assert (version, bytes(message.auth_bytes)) == (2, b"\0alice\0hunter2")


async def test_nothing_else_is_sent_while_a_session_is_renewed(sasl: SaslBroker) -> None:
    """KIP-368: a broker takes any other request between the two for an attack, and hangs up."""
    sasl.lifetime_ms = 100
    with trio.fail_after(SECONDS):
        async with client(sasl) as kafka:
            began = trio.current_time()
            while sasl.names().count("SaslHandshake") < 10:
                await kafka._cluster.refresh(["t"])
            took = trio.current_time() - began
            connections = sasl.names().count("ApiVersions") // 2
    assert connections == 1
    names = sasl.names()
    renewals = [index for index, name in enumerate(names) if name == "SaslHandshake"]
    assert took > 9 * 0.08, "no sooner than its time is nearly over"
    assert all(names[index + 1] == "SaslAuthenticate" for index in renewals[:9])


async def test_a_session_that_can_not_be_renewed(sasl: SaslBroker) -> None:
    """Its requests fail by that error, and so do later ones: the password has changed."""
    sasl.lifetime_ms = 100
    with trio.fail_after(SECONDS):
        async with client(sasl) as kafka:
            await kafka._cluster.refresh(["t"])
            sasl.scripts["Metadata"] = [SILENCE]
            sasl.refuses = [ErrorCode.SASL_AUTHENTICATION_FAILED] * 9
            with pytest.raises(AuthenticationError, match="PLAIN: no") as lost:
                await kafka._cluster.refresh(["t"])
            assert lost.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises(AuthenticationError):
                await kafka._cluster.policy.run(kafka._cluster.refresh)


async def test_a_broker_that_is_starting_may_be_asked_again(sasl: SaslBroker) -> None:
    """A retriable code is no verdict on the password."""
    sasl.refuses = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    with trio.fail_after(SECONDS):
        async with client(sasl) as kafka:
            await kafka._cluster.policy.run(kafka._cluster.refresh)


@pytest.mark.parametrize("protocol", ["plaintext", "ssl", "sasl_plaintext"])
async def test_a_proxy_whose_broker_is_away_is_no_wrong_setting(
    nursery: trio.Nursery, patient_clock: trio.testing.MockClock, protocol: str
) -> None:
    """It takes connections and ends them at once. That is tried until the deadline, as a port with nobody behind is."""
    taken: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        taken.append(1)
        await stream.aclose()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, listeners)
    port = listeners[0].socket.getsockname()[1]
    options = {**(PLAIN if protocol == "sasl_plaintext" else {}), "security_protocol": protocol}
    async with fencepost.Client(
        f"127.0.0.1:{port}", default_api_timeout=1, reconnect_backoff_max=0.05, **options
    ) as kafka:
        with pytest.raises(RetriableError, match="gave up"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)
    assert len(taken) > 5


@pytest.mark.parametrize("protocol", ["ssl", "sasl_ssl"])
async def test_tls_to_a_listener_without(script: Script, protocol: str) -> None:
    broker: ScriptedBroker = await script()
    broker.scripts["SaslHandshake"] = [SaslHandshakeResponse(error_code=34, mechanisms=[])]
    options = {**(PLAIN if protocol == "sasl_ssl" else {}), "security_protocol": protocol}
    with trio.fail_after(SECONDS):
        async with fencepost.Client(broker.address, **options) as kafka:
            with pytest.raises(AuthenticationError, match="uses PLAINTEXT"):
                await kafka._cluster.policy.run(kafka._cluster.refresh)


async def test_a_listener_that_wants_sasl(script: Script) -> None:
    """Kafka answers ApiVersions there, and hangs up at the first request that is not SASL."""
    broker: ScriptedBroker = await script()
    broker.scripts["Metadata"] = [HANG_UP] * 9
    broker.scripts["SaslHandshake"] = [SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])]
    with trio.fail_after(SECONDS):
        async with fencepost.Client(broker.address) as kafka:
            with pytest.raises(AuthenticationError, match="uses SASL_PLAINTEXT"):
                await kafka._cluster.policy.run(kafka._cluster.refresh)
    assert broker.names("Metadata") == ["Metadata"] * 2


async def test_a_broker_that_once_answered_is_never_suspected(
    script: Script, patient_clock: trio.testing.MockClock
) -> None:
    broker: ScriptedBroker = await script()
    async with fencepost.Client(broker.address, default_api_timeout=1) as kafka:
        await kafka._cluster.refresh(["t"])
        broker.scripts["Metadata"] = [HANG_UP] * 99
        broker.scripts["SaslHandshake"] = [SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])] * 99
        with pytest.raises(RetriableError):
            await kafka._cluster.policy.run(kafka._cluster.refresh)
    assert "SaslHandshake" not in broker.names()
