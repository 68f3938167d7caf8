"""Options: keywords, Kafka's names, and what happens to a name that does not exist."""

import inspect
import pydoc
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Literal, Unpack, get_origin, get_type_hints

import pytest

import fencepost
from fencepost import ConfigError, IsolationLevel, sync
from fencepost.client.config import (
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    QueueConfig,
    TransactionalProducerConfig,
)
from fencepost.client.config_names import IGNORED, SYNONYMS, keyword_of
from fencepost.client.config_parsing import ROLES, defaults_of, from_dotted, meanings_of, names_of, parse, parse_kafka
from fencepost.client.keywords import (
    AssignorName,
    BlockingConsumerOptions,
    ClientOptions,
    CompressionName,
    ConsumerOptions,
    Duration,
    Isolation,
    ProducerOptions,
    QueueOptions,
    RebalanceCallback,
    SaslMechanism,
    SecurityProtocol,
    TransactionalProducerOptions,
)
from fencepost.protocol.compression import Compression
from tests.architecture.project_files import ROOT


def test_keywords_and_kafkas_names_say_the_same() -> None:
    keywords = parse(ProducerConfig, {"linger": 0.005, "compression": "zstd"})
    assert (keywords.linger_ms, keywords.compression_type) == (5, Compression.ZSTD)
    assert keywords == parse_kafka(ProducerConfig, {"linger_ms": 5, "compression_type": "zstd"})
    consumer = parse(ConsumerConfig, {"group": "g", "isolation": IsolationLevel.READ_UNCOMMITTED})
    assert consumer == parse(ConsumerConfig, {"group": "g", "isolation": "read_uncommitted"})
    assert (consumer.group_id, consumer.isolation_level) == ("g", IsolationLevel.READ_UNCOMMITTED)


@pytest.mark.parametrize("duration", [90, 90.0, timedelta(minutes=1.5)])
def test_a_duration_is_seconds_or_a_timedelta(duration: object) -> None:
    assert parse(TransactionalProducerConfig, {"transaction_timeout": duration}).transaction_timeout_ms == 90_000


KEYWORD_TYPES = {
    ClientConfig: ClientOptions,
    ProducerConfig: ProducerOptions,
    TransactionalProducerConfig: TransactionalProducerOptions,
    ConsumerConfig: ConsumerOptions,
    QueueConfig: QueueOptions,
}
NO_KEYWORD_OPTION = {
    "bootstrap_servers",
    "key_serializer",
    "value_serializer",
    "key_deserializer",
    "value_deserializer",
}
"""Arguments that stand in the signatures themselves."""
OTHER_TYPES = {
    "acks": Literal["all", "-1", -1],
    "auto_offset_reset": str,
    "client_dns_lookup": Literal["use_all_dns_ips"],
    "compression": CompressionName,
    "enable_idempotence": Literal[True],
    "group_protocol": Literal["classic", "consumer"],
    "isolation": Isolation,
    "metadata_recovery_strategy": Literal["rebootstrap", "none"],
    "on_assigned": RebalanceCallback | None,
    "on_lost": RebalanceCallback | None,
    "on_revoked": RebalanceCallback | None,
    "partition_assignment_strategy": AssignorName | Iterable[AssignorName],
    "sasl_mechanism": SaslMechanism | None,
    "security_protocol": SecurityProtocol,
    "ssl_enabled_protocols": str | Iterable[str],
    "ssl_key_password": str | None,
    "ssl_key_pem": str | None,
    "sasl_password": str | None,
}
"""Keywords that take more, or less, than the type under which the configuration keeps their value."""


@pytest.mark.parametrize("kind", KEYWORD_TYPES, ids=lambda kind: kind.__name__)
def test_keywords_have_the_names_and_types_of_the_configuration(kind: type) -> None:
    types = get_type_hints(kind)
    expected = {
        keyword: OTHER_TYPES.get(keyword, Duration if name.endswith("_ms") else types[name])
        for name in names_of(kind)
        if (keyword := keyword_of(name)) not in NO_KEYWORD_OPTION
    }
    assert get_type_hints(KEYWORD_TYPES[kind]) == expected


@pytest.mark.parametrize("kind", KEYWORD_TYPES, ids=lambda kind: kind.__name__)
def test_help_lists_every_keyword_with_its_default(kind: type) -> None:
    """The guide and errors send the reader there."""
    options = KEYWORD_TYPES[kind]
    assert getattr(fencepost, options.__name__) is options
    text = pydoc.plain(pydoc.render_doc(options))
    assert all(f"    {name} (default {defaults_of(kind)[name]})" in text for name in get_type_hints(options))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
def test_every_option_has_a_meaning_of_one_line(role: type) -> None:
    meanings = meanings_of(role)
    assert list(meanings) == [keyword_of(name) for name in names_of(role)]
    for name, meaning in meanings.items():
        assert re.fullmatch(r"[A-Z\"].{15,115}\.", meaning), f"{name}: {meaning!r}"
        assert all(len(sentence.split()) <= 25 for sentence in meaning.split(". ")), f"{name}: {meaning!r}"
    if role in KEYWORD_TYPES:
        text = pydoc.plain(pydoc.render_doc(KEYWORD_TYPES[role]))
        assert [name for name in get_type_hints(KEYWORD_TYPES[role]) if meanings[name] not in text] == []


def test_defaults_are_shown_with_their_unit() -> None:
    assert defaults_of(ProducerConfig)["batch_size"] == "128 KiB"
    assert defaults_of(ProducerConfig)["buffer_memory"] == "32 MiB"
    shown = defaults_of(ConsumerConfig)
    assert (shown["session_timeout"], shown["isolation"], shown["check_crcs"]) == ("45 s", "'read_committed'", "True")
    assert defaults_of(ClientConfig)["bootstrap_servers"] == "must be given"


def test_blocking_consumers_have_the_same_keywords() -> None:
    blocking, other = get_type_hints(BlockingConsumerOptions), get_type_hints(ConsumerOptions)
    assert blocking.keys() == other.keys()
    assert {name for name in blocking if blocking[name] != other[name]} == {"on_assigned", "on_revoked", "on_lost"}


@pytest.mark.parametrize("opened", [fencepost.Client, sync.Client])
def test_no_signature_hides_its_options(opened: type) -> None:
    for name in ("__init__", "producer", "transactional_producer", "two_phase_producer", "consumer"):
        rest = [p for p in inspect.signature(getattr(opened, name)).parameters.values() if p.kind is p.VAR_KEYWORD]
        assert [get_origin(p.annotation) for p in rest] == [Unpack], name


OLD_NAMES = sorted({name for role in ROLES for name in names_of(role) if keyword_of(name) != name})


@pytest.mark.parametrize("name", OLD_NAMES)
def test_kafkas_name_for_a_keyword_is_refused_with_the_keyword(name: str) -> None:
    kind = next(role for role in ROLES if name in names_of(role))
    unit = ", in seconds or as a timedelta" if name.endswith("_ms") else ""
    with pytest.raises(ConfigError, match=f"unknown option '{name}'; its name here is '{keyword_of(name)}'{unit}$"):
        parse(kind, {name: 1})


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (ProducerConfig, {"lingr": 5}, "'lingr'; the nearest is 'linger'"),
        (ProducerConfig, {"compresion": "zstd"}, "the nearest is 'compression'"),
        (ConsumerConfig, {"isolaton": "read_committed"}, "the nearest is 'isolation'"),
        (
            ConsumerConfig,
            {"qwertz": 1},
            r"unknown option 'qwertz'; see docs/client\.md#options or help\(fencepost\.ConsumerOptions\)$",
        ),
        (ConsumerConfig, {"bootstrap_servers": "a:1"}, "'bootstrap_servers' is an option of fencepost.Client$"),
        (ProducerConfig, {"group_id": "g"}, "'group_id'; 'group' is an option of consumers and queues$"),
        (ClientConfig, {"acks": "all"}, "'acks' is an option of producers$"),
        (ProducerConfig, {"message_timeout_ms": 5}, "its name here is 'delivery_timeout', in seconds or as"),
        (ProducerConfig, {"transactional_id": "x"}, r"first argument of Client\.transactional_producer$"),
        (ProducerConfig, {"linger": -1}, "'linger': -1 must be seconds, or a timedelta, from 0 to 2147484 s$"),
        (ProducerConfig, {"delivery_timeout": 0.0001}, "or a timedelta, from 0.001 to"),
        (ProducerConfig, {"linger": True}, "True must be seconds, or a timedelta"),
        (ProducerConfig, {"linger": "5"}, "'5' must be seconds, or a timedelta"),
        (ProducerConfig, {"linger": float("inf")}, "inf must be seconds, or a timedelta"),
        (ProducerConfig, {"batch_size": 1.5}, "whole number"),
        (TransactionalProducerConfig, {"timeout": 30}, "transaction_timeout bounds a transaction"),
        (ClientConfig, {"sasl_plain_username": "ann"}, "its name here is 'sasl_username'$"),
        (ProducerConfig, {"max_in_flight_requests_per_connection": 6}, "from 1 to 5"),
        (ProducerConfig, {"acks": "1"}, "one of all, -1: fencepost's producers are always idempotent"),
        (ProducerConfig, {"enable_idempotence": "false"}, "must be true: fencepost's producers"),
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
        ({"acks": "1"}, "option 'acks': '1' must be one of all, -1: fencepost's producers are always idempotent"),
        ({"enable.idempotence": False}, "option 'enable.idempotence': False must be true: fencepost's producers are"),
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
        "ignored options that this client does not have:"
        " enable.auto.offset.store, queue.buffering.max.messages, statistics.interval.ms, error_cb"
    ]


def test_a_dictionary_with_nothing_to_leave_out_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert from_dotted({"bootstrap.servers": "a:1", "auto.offset.reset": "end"})["auto_offset_reset"] == "latest"
    assert caplog.records == []


def test_every_option_stands_in_the_guide() -> None:
    """Errors send the reader there; queues have their own."""
    guide = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("docs/client.md", "docs/queues.md"))
    assert [
        name
        for role in ROLES
        for name in map(keyword_of, names_of(role))
        if f"`{name}`" not in guide and f"{name}=" not in guide
    ] == []


def test_every_name_without_a_meaning_has_none() -> None:
    known = {name for role in ROLES for name in names_of(role)}
    assert not IGNORED & (known | SYNONYMS.keys())


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
