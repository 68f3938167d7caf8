"""Connections over TLS, quotas, limits of what is on its way, and what a cancellation leaves behind: nothing."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import fencepost
from fencepost import AuthenticationError, RetriableError
from fencepost.client.core.throttle import pause_ms
from fencepost.client.network import connection as connection_module
from fencepost.protocol.messages.api03_metadata import MetadataResponse
from fencepost.protocol.messages.api17_sasl_handshake import SaslHandshakeResponse
from fencepost.protocol.messages.api36_sasl_authenticate import SaslAuthenticateResponse
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.certificates import Authority
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.kit.waiting import soon

Script = Callable[..., Any]
METADATA = API_BY_KEY[3]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
async def tls_broker(authority: Authority, nursery: trio.Nursery) -> ScriptedBroker:
    """A scripted broker behind TLS."""
    broker = ScriptedBroker(partitions=3)
    await nursery.start(partial(broker.serve, tls=authority.server_context()))
    return broker


def secure(broker: ScriptedBroker, authority: Authority, **options: Any) -> fencepost.Client:
    options = {"security_protocol": "ssl", "ssl_cafile": str(authority.ca), **options}
    return fencepost.Client(options.pop("bootstrap_servers", broker.address), **options)


async def test_large_and_many_frames_both_ways(tls_broker: ScriptedBroker, authority: Authority) -> None:
    """Frames larger than any buffer on the way, and many small ones in one TLS record."""
    tls_broker.partitions = 20_000
    values = [os.urandom(200_000) for _ in range(20)] + [b"%d" % n for n in range(500)]
    async with secure(tls_broker, authority, request_timeout=20) as kafka:
        await kafka._cluster.refresh(["t"])
        assert len(kafka._cluster.topics["t"].partitions) == 20_000
        async with kafka.producer(batch_size=1 << 20) as producer, producer.batch() as batch:
            for value in values:
                await batch.send("t", value, partition=0)
    assert tls_broker.logs[0] == values


@pytest.mark.parametrize(
    ("host", "options", "what_to_do"),
    [
        ("localhost", {}, "; connect to a name or address of its subjectAltName"),
        (
            "127.0.0.1",
            {"ssl_cafile": None},
            r"; ssl_cafile \(ssl\.ca\.location\) must name its authority's certificate",
        ),
    ],
)
async def test_a_certificate_that_is_not_trusted(
    tls_broker: ScriptedBroker, authority: Authority, host: str, options: dict[str, Any], what_to_do: str
) -> None:
    with pytest.raises(AuthenticationError, match=f"certificate is not trusted: .*[^.]{what_to_do}$"):
        async with secure(tls_broker, authority, bootstrap_servers=f"{host}:{tls_broker.port}", **options) as kafka:
            await kafka._cluster.refresh(["t"])


async def test_the_good_bye_of_tls_is_an_end_like_any_other(tls_broker: ScriptedBroker, authority: Authority) -> None:
    tls_broker.scripts["Metadata"] = [HANG_UP]
    async with secure(tls_broker, authority) as kafka:
        await kafka._cluster.policy.run(lambda: kafka._cluster.refresh(["t"]))
    assert tls_broker.names("Metadata") == ["Metadata"] * 2


class Cancelling(trio.abc.Instrument):
    """Cancels a scope at the nth step that any task makes."""

    def __init__(self, scope: trio.CancelScope, steps: int) -> None:
        self._scope = scope
        self.left = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if not self.left:
            self._scope.cancel()


def sockets() -> int:
    """How many sockets this process has open."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
        except OSError:
            continue  # the listing's own
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts sockets in /proc")
async def test_a_cancellation_at_any_step_leaves_no_connection(
    tls_broker: ScriptedBroker, authority: Authority
) -> None:
    """At every single step of connecting, of TLS's and of SASL's handshake, and of the first requests."""
    sasl = {
        "SaslHandshake": SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
        "SaslAuthenticate": SaslAuthenticateResponse(error_code=0, auth_bytes=b"", session_lifetime_ms=60_000),
    }
    options = {"security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    before = sockets()
    for steps in range(1, 400):
        for name, answer in sasl.items():
            tls_broker.scripts[name] = [answer] * 9
        with trio.CancelScope() as scope:
            instrument = Cancelling(scope, steps)
            trio.lowlevel.add_instrument(instrument)
            try:
                async with secure(tls_broker, authority, **options) as kafka:
                    await kafka._cluster.refresh(["t"])
                    await kafka._cluster.connection(1, "another")
            finally:
                trio.lowlevel.remove_instrument(instrument)
        with trio.move_on_after(100):
            while sockets() > before:  # noqa: ASYNC110 - the other side's end closes a moment later
                await trio.sleep(0.001)
        assert sockets() == before, f"after a cancellation at step {steps}"
        if instrument.left > 0:
            assert steps > 20, "the whole of it is more than a few steps"
            return
    pytest.fail("it never came to its end")


# -- quotas


async def test_a_throttled_client_sends_nothing_for_so_long(
    script: Script, patient_clock: trio.testing.MockClock
) -> None:
    """KIP-219: the broker answers at once and reads nothing meanwhile; so nothing is sent, and no time-out counts."""
    broker: ScriptedBroker = await script()
    arrived: list[float] = []

    def note(request: Any, version: int) -> Any:
        arrived.append(trio.current_time())
        answer = broker.on_Metadata(request, version)
        answer.throttle_time_ms = 500 if len(arrived) == 1 else 0
        return answer

    broker.scripts["Metadata"] = [note, note, note]
    async with fencepost.Client(broker.address, request_timeout=0.2) as kafka:
        await kafka._cluster.refresh(["t"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kafka._cluster.refresh, ["t"])
            nursery.start_soon(kafka._cluster.refresh, ["t"])
    first, second, third = arrived
    assert second - first >= 0.5
    assert third - second < 0.4


async def test_an_answer_that_is_not_waited_for_any_more_throttles_as_well(script: Script) -> None:
    broker: ScriptedBroker = await script()

    def late(request: Any, version: int) -> Any:
        answer = broker.on_Metadata(request, version)
        answer.throttle_time_ms = 60_000
        return answer

    broker.scripts["Metadata"] = [late]
    async with fencepost.Client(broker.address) as kafka:
        connection = await kafka._cluster.any_connection()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kafka._cluster.refresh, ["t"])
            await trio.lowlevel.checkpoint()  # enough to have asked, not enough to be answered
            nursery.cancel_scope.cancel()
        await soon(lambda: connection.session.responses == 2)  # the versions, and then this one
        assert connection.throttled_until > trio.current_time() + 50


def test_old_versions_were_throttled_by_the_broker_already() -> None:
    """KIP-219: Produce before 6 and Fetch before 8 were answered only after the time they tell."""
    assert [pause_ms(0, version, 100) for version in (5, 6)] == [0, 100]
    assert [pause_ms(1, version, 100) for version in (7, 8)] == [0, 100]
    assert pause_ms(68, 0, 100) == 100, "younger than the rule"
    assert pause_ms(0, 9, -1) == 0


async def test_a_request_that_was_never_sent_says_so(script: Script) -> None:
    broker: ScriptedBroker = await script()
    async with fencepost.Client(broker.address) as kafka:
        connection = await kafka._cluster.any_connection()
        connection.rest(60)
        pending = connection.post(9, METADATA.request(topics=[]))
        connection.close("on purpose")
        with pytest.raises(fencepost.RetriableError) as lost:
            await pending.wait(1)
        assert lost.value.sent is False  # type: ignore[attr-defined]


# -- limits


async def test_only_so_much_is_on_its_way(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    broker: ScriptedBroker = await script()
    broker.scripts["Metadata"] = [SILENCE] * 99
    async with fencepost.Client(broker.address) as kafka:
        connection = await kafka._cluster.any_connection()
        monkeypatch.setattr(connection_module, "MOST_PENDING", 5)
        for _ in range(5):
            connection.post(9, METADATA.request(topics=[]))
        with pytest.raises(RetriableError, match="too many requests"):
            connection.post(9, METADATA.request(topics=[]))
        monkeypatch.setattr(connection_module, "MOST_PENDING", 1000)
        monkeypatch.setattr(connection_module, "MOST_UNSENT_BYTES", 100)
        connection.rest(60)
        for _ in range(9):
            if connection._unsent_bytes <= 100:
                connection.post(9, METADATA.request(topics=[]))
        with pytest.raises(RetriableError, match="too many requests"):
            connection.post(9, METADATA.request(topics=[]))


async def test_a_stranger_may_not_make_us_take_much_memory(
    nursery: trio.Nursery, patient_clock: trio.testing.MockClock
) -> None:
    """Before it has proved who it is a broker's answer is limited to 1 MiB."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all((2 << 20).to_bytes(4, "big"))
        await trio.sleep_forever()

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, serve, listeners)
    port = listeners[0].socket.getsockname()[1]
    async with fencepost.Client(f"127.0.0.1:{port}", default_api_timeout=0.3) as kafka:
        with pytest.raises(RetriableError, match="a frame of 2097152 bytes"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)


async def test_an_old_broker_is_asked_again_in_v0(script: Script) -> None:
    """KIP-511: UNSUPPORTED_VERSION comes in v0, whatever was asked; and the client says who it is in v3."""
    broker: ScriptedBroker = await script()
    broker.scripts["ApiVersions"] = [b"\0\x23" + bytes(4)]
    async with fencepost.Client(broker.address) as kafka:
        await kafka._cluster.refresh(["t"])
    [(_, first, told), (_, second, _)] = [one for one in broker.requests if one[0] == "ApiVersions"]
    assert (first, second) == (3, 0)
    assert told.client_software_name == "fencepost"
    assert told.client_software_version == fencepost.__version__


async def test_a_newer_leader_is_not_forgotten_for_older_metadata(script: Script) -> None:
    """Brokers learn at different times: metadata with an older epoch does not take a KIP-951 hint back."""
    broker: ScriptedBroker = await script()

    def told(epoch: int) -> Callable[[Any, int], Any]:
        def script_(request: Any, version: int) -> Any:
            answer: MetadataResponse = broker.on_Metadata(request, version)
            answer.topics[0].partitions[0].leader_epoch = epoch  # type: ignore[attr-defined]
            return answer

        return script_

    place = fencepost.TopicPartition("t", 0)
    async with fencepost.Client(broker.address) as kafka:
        broker.scripts["Metadata"] = [told(5), told(6), told(8)]
        await kafka._cluster.refresh(["t"])
        assert kafka._cluster.leader_hint(place, 1, 7)
        await kafka._cluster.refresh(["t"])
        assert kafka._cluster.leader_epoch(place) == 7
        await kafka._cluster.refresh(["t"])
        assert kafka._cluster.leader_epoch(place) == 8


async def test_a_token_provider_that_fails(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """What it raises is the cause; a RetriableError is tried again; what is no token is refused."""
    broker: ScriptedBroker = await script()
    turns: list[int] = []

    async def provide() -> Any:
        turns.append(1)
        if len(turns) < 3:
            raise RetriableError("the identity provider is away")
        raise ZeroDivisionError

    for provider, match in ((provide, "ZeroDivisionError"), (lambda: 7, "str or an OAuthToken")):
        async with fencepost.Client(
            broker.address,
            security_protocol="sasl_plaintext",
            sasl_mechanism="oauthbearer",
            sasl_oauth_token_provider=provider,
        ) as kafka:
            with pytest.raises(AuthenticationError, match=match):
                await kafka._cluster.policy.run(kafka._cluster.refresh)
    assert len(turns) == 3
