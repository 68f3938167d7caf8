"""Options: Kafka's names, short names, and what happens to a name that does not exist."""

import pytest

import fencepost
from fencepost import ConfigError, IsolationLevel
from fencepost.client.config import (
    ROLES,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    TransactionalProducerConfig,
    from_dotted,
    names_of,
    parse,
)
from fencepost.client.config_names import SYNONYMS, WITHOUT_MEANING
from fencepost.protocol.compression import Compression
from tests.architecture.project_files import ROOT


def test_kafkas_names_and_short_ones() -> None:
    short = parse(ProducerConfig, {"linger": 0.005, "compression": "zstd"})
    assert (short.linger_ms, short.compression_type) == (5, Compression.ZSTD)
    assert short == parse(ProducerConfig, {"linger_ms": 5, "compression_type": "zstd"})
    assert parse(TransactionalProducerConfig, {"timeout": 30}).transaction_timeout_ms == 30_000
    consumer = parse(ConsumerConfig, {"group": "g", "isolation": "read_uncommitted"})
    assert (consumer.group_id, consumer.isolation_level) == ("g", IsolationLevel.READ_UNCOMMITTED)


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (ProducerConfig, {"linger_msec": 5}, "'linger_msec'; the nearest is 'linger_ms'"),
        (ProducerConfig, {"compresion": "zstd"}, "the nearest is 'compression'"),
        (ConsumerConfig, {"isolation_levle": "read_committed"}, "the nearest is 'isolation_level'"),
        (
            ConsumerConfig,
            {"qwertz": 1},
            r"unknown option 'qwertz'; see docs/client\.md#options or help\(.*ConsumerConfig\)$",
        ),
        (ConsumerConfig, {"bootstrap_servers": "a:1"}, "'bootstrap_servers' is an option of fencepost.Client$"),
        (ProducerConfig, {"group_id": "g"}, "'group_id'; 'group_id' is an option of consumers$"),
        (ClientConfig, {"acks": "all"}, "'acks' is an option of producers$"),
        (ProducerConfig, {"message_timeout_ms": 5}, "its name here is 'delivery_timeout_ms'$"),
        (ProducerConfig, {"transactional_id": "x"}, r"first argument of Client\.transactional_producer$"),
        (ProducerConfig, {"linger": 1, "linger_ms": 2}, "given twice"),
        (ProducerConfig, {"linger_ms": -1}, "from 0 to"),
        (ProducerConfig, {"linger_ms": True}, "whole number"),
        (ProducerConfig, {"linger_ms": 1.5}, "whole number"),
        (ProducerConfig, {"max_in_flight_requests_per_connection": 6}, "from 1 to 5"),
        (ProducerConfig, {"acks": "1"}, "one of all, -1: producers are always idempotent here"),
        (ProducerConfig, {"enable_idempotence": "false"}, "must be true: producers"),
        (ProducerConfig, {"compression": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        (ConsumerConfig, {"enable_auto_commit": "yes"}, "true or false"),
        (ConsumerConfig, {"auto_offset_reset": "smallest"}, "earliest, latest, none"),
        (ClientConfig, {"bootstrap_servers": "localhost"}, "host:port"),
        (ClientConfig, {}, "must be given"),
    ],
)
def test_what_can_not_be_is_refused_with_a_hint(kind: type, options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(kind, options)


def test_dotted_names_serve_migrants() -> None:
    config = from_dotted({"bootstrap.servers": "a:1,b:2", "linger.ms": "5", "isolation.level": "read_committed"})
    assert parse(ClientConfig, {}, defaults=config).bootstrap_servers == (("a", 1), ("b", 2))
    assert parse(ProducerConfig, {}, defaults=config).linger_ms == 5
    assert parse(ProducerConfig, {"linger": 0.1}, defaults=config).linger_ms == 100
    with pytest.raises(ConfigError, match=r"'linger\.mss'; the nearest is 'linger\.ms'"):
        from_dotted({"linger.mss": "5"})


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"acks": "1"}, "option 'acks': '1' must be one of all, -1: producers are always idempotent here"),
        ({"enable.idempotence": False}, "option 'enable_idempotence': False must be true: producers are"),
        ({"max.in.flight": 1_000_000}, "from 1 to 5"),
        ({"partitioner": "consistent"}, "option 'partitioner': 'consistent' must be a function"),
        ({"transactional.id": "x"}, r"first argument of Client\.transactional_producer"),
        ({"sasl.kerberos.service.name": "kafka"}, r"'sasl\.kerberos\.service\.name'; see docs/client\.md#options"),
    ],
)
def test_what_no_producer_or_consumer_takes_is_refused_at_once(option: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        fencepost.Client.from_config({"bootstrap.servers": "a:1", **option})


def test_a_dictionary_for_confluent_kafka_carries_over(caplog: pytest.LogCaptureFixture) -> None:
    fencepost.Client.from_config(
        {
            "bootstrap.servers": "a:1",
            "client.id": "billing",
            "group.id": "billing",
            "auto.offset.reset": "smallest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.idempotence": True,
            "acks": -1,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 100_000,
            "statistics.interval.ms": 60_000,
            "error_cb": print,
        }
    )
    assert [record.getMessage() for record in caplog.records] == [
        "options that have no meaning for this client were left out:"
        " enable.auto.offset.store, queue.buffering.max.messages, statistics.interval.ms, error_cb"
    ]


def test_a_dictionary_with_nothing_to_leave_out_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert from_dotted({"bootstrap.servers": "a:1", "auto.offset.reset": "end"})["auto_offset_reset"] == "latest"
    assert caplog.records == []


def test_every_option_stands_in_the_guide() -> None:
    """Errors send the reader there."""
    guide = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    assert [
        name for role in ROLES for name in names_of(role) if f"`{name}`" not in guide and f"{name}=" not in guide
    ] == []


def test_every_name_without_a_meaning_has_none() -> None:
    known = {name for role in ROLES for name in names_of(role)}
    assert not WITHOUT_MEANING & (known | SYNONYMS.keys())


def test_the_client_refuses_its_own_unknown_options() -> None:
    with pytest.raises(ConfigError, match="nearest is 'client_id'"):
        fencepost.Client("localhost:9092", client_idd="x")


def test_ipv6_addresses() -> None:
    assert parse(ClientConfig, {"bootstrap_servers": ["[::1]:9092"]}).bootstrap_servers == (("::1", 9092),)


def test_importing_the_package_alone_loads_no_client() -> None:
    """The broker's start must not pay for the client."""
    import subprocess
    import sys

    code = "import sys, fencepost; print([m for m in sys.modules if m.startswith(('fencepost.', 'trio'))])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['fencepost.version']"
