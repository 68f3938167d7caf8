"""Which address is tried when, and for how long: back-off, time-outs, names with several addresses, beginning again."""

import itertools
import random
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
import trio

import fencepost
from fencepost import ConfigError, ErrorCode, RetriableError
from fencepost.client.errors import ConnectionLostError
from fencepost.client.network.wire import open_socket
from fencepost.protocol.messages.api03_metadata import MetadataResponse
from tests.kit.scripted_broker import SILENCE, ScriptedBroker

Script = Callable[..., Any]
FIRST, SECOND = ("one.example", 9092), ("two.example", 9092)


class Dialled:
    """Notes who is called and when, and refuses, or hangs; or connects to a scripted broker in its place."""

    def __init__(self, hang: bool = False) -> None:
        self.calls: list[tuple[str, float]] = []
        self.hang = hang
        self.brokers: dict[tuple[str, int], ScriptedBroker] = {}

    async def __call__(self, host: str, port: int, timeout_s: float) -> socket.socket:
        self.calls.append((host, trio.current_time()))
        if self.hang:
            await trio.sleep_forever()
        broker = self.brokers.get((host, port))
        if broker is None:
            raise ConnectionLostError(f"{host}:{port}: refused", sent=False)
        return await open_socket("127.0.0.1", broker.port, timeout_s)

    def pauses(self, host: str) -> list[float]:
        times = [when for called, when in self.calls if called == host]
        return [after - before for before, after in itertools.pairwise(times)]


def client(dial: Dialled, *addresses: tuple[str, int], **options: Any) -> fencepost.Client:
    names = [f"{host}:{port}" for host, port in addresses or (FIRST,)]
    return fencepost.Client(names, dial=dial, random=random.Random(1), **options)


async def test_pauses_between_attempts_grow_to_a_limit(autojump_clock: trio.testing.MockClock) -> None:
    """KIP-144: reconnect.backoff.ms doubles up to reconnect.backoff.max.ms, a fifth more or less; for all callers."""
    dial = Dialled()
    options = {"reconnect_backoff": 0.05, "reconnect_backoff_max": 1.6, "default_api_timeout": 20}
    async with client(dial, retry_backoff_max=0.02, **options) as kafka, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(give_up, kafka)
    pauses = dial.pauses("one.example")
    for step, pause in enumerate(pauses):
        plain = min(0.05 * 2**step, 1.6)
        assert 0.8 * plain <= pause <= 1.2 * plain + 0.3, (step, pauses)
    assert len(pauses) < 22
    assert len(set(pauses)) > 5, "with jitter"


async def give_up(kafka: fencepost.Client) -> None:
    with pytest.raises(RetriableError, match=r"gave up .*refused"):
        await kafka._cluster.policy.run(kafka._cluster.refresh)


async def test_time_to_set_up_grows_with_each_failure(autojump_clock: trio.testing.MockClock) -> None:
    """KIP-601: socket.connection.setup.timeout.ms, doubled after each failure up to its maximum."""
    dial = Dialled(hang=True)
    options = {"socket_connection_setup_timeout": 1, "socket_connection_setup_timeout_max": 5}
    async with client(dial, default_api_timeout=20, reconnect_backoff_max=0.05, **options) as kafka:
        with pytest.raises(RetriableError, match="not set up within 5 s"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)
    assert [round(pause) for pause in dial.pauses("one.example")][:4] == [1, 2, 4, 5]


async def test_a_broker_that_accepts_and_says_nothing_is_given_up_in_time(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await script()
    broker.scripts["ApiVersions"] = [SILENCE] * 9
    dial = Dialled()
    dial.brokers[FIRST] = broker
    async with client(dial, socket_connection_setup_timeout=0.15, default_api_timeout=0.5) as kafka:
        with pytest.raises(RetriableError, match=r"no response within|not set up within"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)
        assert all(one.closed for one in kafka._cluster._connections._open.values())


async def test_every_address_of_a_name_is_tried(script: Script) -> None:
    """client.dns.lookup=use_all_dns_ips, IPv6 first where a name has it."""
    broker = await script()

    class Resolver(trio.abc.HostnameResolver):
        async def getaddrinfo(self, host: Any, port: Any, *more: Any, **named: Any) -> Any:
            assert host == b"cluster.example"
            return [
                (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", broker.port, 0, 0)),
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.9", broker.port)),
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", broker.port)),
            ]

        async def getnameinfo(self, *more: Any) -> Any:
            raise NotImplementedError

    trio.socket.set_custom_hostname_resolver(Resolver())
    async with fencepost.Client(f"cluster.example:{broker.port}", default_api_timeout=3) as kafka:
        assert await kafka._cluster.refresh(["t"]) == {}


async def test_ipv6_addresses(nursery: trio.Nursery) -> None:
    broker = ScriptedBroker()
    try:
        await nursery.start(partial(broker.serve, host="::1"))
    except OSError:
        pytest.skip("this machine has no IPv6")
    broker_client = fencepost.Client(f"[::1]:{broker.port}")
    async with broker_client as kafka:
        assert await kafka._cluster.refresh(["t"]) == {}


async def test_a_name_that_does_not_exist_is_told_until_the_deadline(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(host: str, port: int, **options: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(anyio, "getaddrinfo", unknown)
    began = trio.current_time()
    async with fencepost.Client("nobody.invalid:9092", default_api_timeout=2) as kafka:
        with pytest.raises(RetriableError, match=r"nobody\.invalid:9092: .*Name or service not known"):
            await kafka._cluster.policy.run(kafka._cluster.refresh)
    assert 1.5 < trio.current_time() - began < 4, "and not given up before"


async def test_a_lookup_in_vain_names_the_server() -> None:
    """A busy machine needs a moment to find that out: the lookup is a thread's."""
    with pytest.raises(ConnectionLostError, match=r"^nobody\.invalid:9092: (?!no connection within)") as lost:
        await open_socket("nobody.invalid", 9092, 60)
    assert not lost.value.sent


def moved(first: ScriptedBroker, second: ScriptedBroker) -> Dialled:
    """The name of the bootstrap server leads to `first`, whose Metadata names itself."""
    dial = Dialled()
    dial.brokers[FIRST] = first
    for broker in (first, second):
        dial.brokers["127.0.0.1", broker.port] = broker
    return dial


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_known_brokers_that_are_gone(
    script: Script, strategy: str, autojump_clock: trio.testing.MockClock
) -> None:
    """KIP-899: with `rebootstrap` the configured servers are asked again; with `none` nobody but those once known."""
    first, second = await script(), await script()
    dial = moved(first, second)
    options = {"metadata_recovery_strategy": strategy, "default_api_timeout": 1}
    async with client(dial, **options) as kafka:  # type: ignore[arg-type]
        await kafka._cluster.refresh(["t"])
        assert kafka._cluster.brokers == {1: ("127.0.0.1", first.port)}
        del dial.brokers["127.0.0.1", first.port]
        dial.brokers[FIRST] = second
        kafka._cluster._connections.close()
        if strategy == "none":
            with pytest.raises(RetriableError, match="refused"):
                await kafka._cluster.policy.run(kafka._cluster.refresh)
        else:
            await kafka._cluster.policy.run(kafka._cluster.refresh)
            assert kafka._cluster.brokers == {1: ("127.0.0.1", second.port)}


async def test_a_broker_says_that_the_cluster_is_another_one(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """KIP-1102: REBOOTSTRAP_REQUIRED."""
    first, second = await script(), await script()
    dial = moved(first, second)
    async with client(dial) as kafka:
        await kafka._cluster.refresh(["t"])
        dial.brokers[FIRST] = second
        first.scripts["Metadata"] = [MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)]
        await kafka._cluster.policy.run(kafka._cluster.refresh)
        assert kafka._cluster.brokers == {1: ("127.0.0.1", second.port)}
    assert "bootstrap servers again" in caplog.text


async def test_brokers_that_answer_nothing_for_too_long(script: Script, autojump_clock: trio.testing.MockClock) -> None:
    """KIP-1102: metadata.recovery.rebootstrap.trigger.ms."""
    first, second = await script(), await script()
    dial = moved(first, second)
    options = {"metadata_recovery_rebootstrap_trigger": 0.2, "request_timeout": 0.1}
    async with client(dial, **options) as kafka:  # type: ignore[arg-type]
        await kafka._cluster.refresh(["t"])
        dial.brokers[FIRST] = second
        first.scripts["Metadata"] = [SILENCE] * 50
        with trio.fail_after(100):
            await kafka._cluster.policy.run(kafka._cluster.refresh)
        assert kafka._cluster.brokers == {1: ("127.0.0.1", second.port)}


async def test_what_is_known_of_topics_in_use_stays_fresh(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """metadata.max.age.ms: new partitions are seen without an error or a call that would ask for them."""
    broker = await script(partitions=1)
    async with client(Dialled(), FIRST) as unused:
        assert not unused._cluster.topics
    async with fencepost.Client(broker.address, metadata_max_age=0.1) as kafka:
        await kafka._cluster.refresh(["t"])
        broker.partitions = 5
        with trio.fail_after(100):
            while len(kafka._cluster.topics["t"].partitions) < 5:  # noqa: ASYNC110 - nothing tells
                await trio.sleep(0.02)


@pytest.mark.parametrize("learned_at", [1.2, 1.7, 3.0, 4.1])
async def test_what_is_woken_up_for_is_old_then(
    script: Script, mock_clock: trio.testing.MockClock, learned_at: float
) -> None:
    """(learned + age) - learned is less than the age for these. A clock that stands still meanwhile, as simulated ones
    do, would have the task that keeps topics fresh wake up for ever."""
    broker = await script()
    async with fencepost.Client(broker.address, metadata_max_age=1.1) as kafka:
        await kafka._cluster.refresh(["t"])
        kafka._cluster._learned_at["t"] = learned_at
        mock_clock.jump(learned_at + 1.1 - trio.current_time())
        assert trio.current_time() == learned_at + 1.1
        assert kafka._cluster.is_stale("t")


async def test_a_connection_without_use_is_closed(script: Script, autojump_clock: trio.testing.MockClock) -> None:
    """connections.max.idle.ms; the next request makes another one."""
    broker = await script()
    async with fencepost.Client(broker.address, connections_max_idle=0.1) as kafka:
        await kafka._cluster.refresh(["t"])
        connection = kafka._cluster._connections.find("")
        assert connection is not None
        with trio.fail_after(100):
            await connection.ended.wait()
        assert connection.closed_because == "the connection was idle"
        await kafka._cluster.refresh(["t"])


def test_bootstrap_servers_in_every_form() -> None:
    config = fencepost.Client("a:1, PLAINTEXT://b.example:2,[::1]:3")._config
    assert config.bootstrap_servers == (("a", 1), ("b.example", 2), ("::1", 3))
    for wrong in ("", "a", "a:b", ":1", "a:1,,"):
        with pytest.raises(ConfigError, match="host:port"):
            fencepost.Client(wrong)
