"""Settings: where they come from, which source wins, and what a refusal says."""

from pathlib import Path
from typing import Literal, get_origin, get_type_hints

import pytest

from fencepost.broker.config.broker_config import (
    SETTINGS,
    BrokerConfig,
    ConfigError,
    dynamic_problem,
    load_config,
)
from fencepost.broker.config.fields import Kind, Update
from fencepost.broker.config.listeners import ClientListener, Listener, parse_listener
from fencepost.broker.config.settings import Settings
from fencepost.broker.config.topic_config import NO_DYNAMIC, Dynamic
from fencepost.broker.config.topic_rules import cleaner_settings, group_config, log_config
from fencepost.broker.config.without_effect import WITHOUT_EFFECT
from fencepost.broker.security.security_protocol import SecurityProtocol


def refusal(**sources) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(**sources)
    return str(caught.value)


def test_without_any_source_every_setting_has_its_declared_default() -> None:
    config = load_config()
    for name, setting in SETTINGS.items():
        assert config.value(name) == setting.default, name
    assert not config.given


def test_every_default_fits_its_own_declaration() -> None:
    for setting in SETTINGS.values():
        assert setting.parse(setting.default) == setting.default, setting.name
        assert setting.doc.endswith("."), setting.name


def test_the_type_of_an_attribute_is_that_of_its_setting() -> None:
    """Mypy takes the annotation, a given value is parsed by the row's type, and None is allowed by the default."""
    types = {Kind.BOOLEAN: bool, Kind.DOUBLE: float, Kind.LIST: tuple[str, ...]}
    types |= dict.fromkeys((Kind.STRING, Kind.CLASS, Kind.PASSWORD), str)
    types |= dict.fromkeys((Kind.INT, Kind.SHORT, Kind.LONG), int)
    for attribute, annotation in get_type_hints(Settings).items():
        setting = SETTINGS[attribute.replace("_", ".")]
        expected = Literal[setting.choices] if get_origin(annotation) is Literal else types[setting.kind]
        assert annotation == (expected | None if setting.default is None else expected), attribute


def test_kafkas_names_are_the_attributes_with_dots() -> None:
    assert SETTINGS["num.partitions"].kind is Kind.INT
    assert load_config(assignments=["num.partitions=4"]).num_partitions == 4


def test_an_unknown_name_is_refused_with_origin_value_and_the_nearest_known_one() -> None:
    text = refusal(assignments=["num.partition=4"])
    for part in ("num.partition ", "'4'", "--set", "num.partitions", "int from 1 to 100000"):
        assert part in text


def test_a_value_of_the_wrong_type_is_refused_with_name_origin_value_and_type() -> None:
    text = refusal(environ={"FENCEPOST_NUM_PARTITIONS": "many"})
    for part in ("num.partitions", "environment variable FENCEPOST_NUM_PARTITIONS", "'many'", "int from 1 to 100000"):
        assert part in text


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("num.partitions=0", "int from 1 to 100000"),
        ("auto.create.topics.enable=yes", "boolean (true or false)"),
        ("compression.type=zip", "one of producer, uncompressed, gzip, snappy, lz4, zstd"),
        ("log.cleanup.policy=delete,forget", "a comma-separated list of compact, delete"),
        ("log.cleaner.min.cleanable.ratio=much", "double from 0 to 1"),
        ("log.retention.ms=9999999999999999999", "long"),
        ("default.replication.factor=3", "int from 1 to 1"),
        ("listeners=SSL://:9092", "SSL uses SSL and needs a certificate"),
        ("listeners=PLAINTEXT://:1,PLAINTEXT://:2", "each listener must have a different name"),
        ("listeners=INSIDE://:1", "INSIDE is not in listener.security.protocol.map"),
        ("listener.security.protocol.map=A:TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("listener.security.protocol.map=A:SSL,a:PLAINTEXT", "A has two protocols"),
        ("advertised.listeners=SSL://broker:9092", "listeners has no SSL, only PLAINTEXT"),
        ("inter.broker.listener.name=INSIDE", "is not the name of a listener; listeners has PLAINTEXT"),
        ("security.inter.broker.protocol=SSL", "is not the name of a listener; listeners has PLAINTEXT"),
        ("log.dirs=/a,/b", "exactly one directory"),
        ("compression.gzip.level=0", "-1 or 1 to 9"),
        ("log.retention.hours=0", "-1 (no limit) or more than 0"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", "no address that a client can connect to"),
        ("num.partitions", "name=value"),
    ],
)
def test_what_is_not_right_is_refused_and_says_what_would_be(assignment: str, expected: str) -> None:
    text = refusal(assignments=[assignment])
    assert expected in text
    assert assignment.partition("=")[0] in text


def test_settings_of_security_are_refused_and_never_silently_ignored() -> None:
    assert "unknown setting principal.builder.class" in refusal(assignments=["principal.builder.class=x"])


@pytest.mark.parametrize("name", ["first.user", "node.id"])
def test_a_setting_of_the_whole_broker_is_none_of_a_listener(name: str) -> None:
    assert "unknown setting of a listener" in refusal(assignments=[f"listener.name.plaintext.{name}=x"])


def test_later_sources_win(tmp_path: Path) -> None:
    """Rising: default, file, environment, --set, flags."""
    file = tmp_path / "fencepost.toml"
    file.write_text("num.partitions = 2\nnode.id = 2\nfetch.max.bytes = 2000\nmax.connections = 2\n")
    config = load_config(
        file=file,
        environ={"FENCEPOST_NODE_ID": "3", "FENCEPOST_FETCH_MAX_BYTES": "3000", "FENCEPOST_MAX_CONNECTIONS": "3"},
        assignments=["fetch.max.bytes=4000", "max.connections=4", "max.connections=5"],
        flags={"max.connections": 6, "durability": None},
    )
    assert (config.num_partitions, config.node_id, config.fetch_max_bytes, config.max_connections) == (2, 3, 4000, 6)
    assert config.durability == "fsync", "a flag that was not given changes nothing"
    assert config.given["fetch.max.bytes"] == "4000"


def test_toml_tables_dotted_keys_and_types(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        '"max.connections" = 7\n[log]\ndirs = ["x"]\nretention.ms = -1\n[auto.create]\ntopics.enable = false\n'
    )
    config = load_config(file=file)
    assert (config.max_connections, config.log_dirs, config.log_retention_ms) == (7, ("x",), -1)
    assert config.auto_create_topics_enable is False


def test_toml_types_are_not_bent(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("compression.type = 3\n")
    assert "3 is not a string" in refusal(file=file)


def test_a_stock_server_properties_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# comment\n! comment too\nprocess.roles=broker,controller\nnode.id = 4\nlisteners=PLAINTEXT://h\\\n   :9093\n"
        "num.partitions : 3\nlog.dirs /tmp/x\\u0041\nnum.io.threads=8\n\n"
    )
    config = load_config(file=file)
    assert (config.node_id, config.num_partitions, config.log_dirs) == (4, 3, ("/tmp/xA",))
    assert config.client_listeners == (ClientListener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "h", 9093, None),)
    assert config.without_effect == ("process.roles", "num.io.threads"), "named, so that nobody thinks they act"


SHIPPED = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of the config/server.properties that Apache Kafka 4 ships."""


def test_the_server_properties_that_kafka_ships_is_read_without_its_controller_listener(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SHIPPED)
    config = load_config(file=file)
    advertised = Listener("PLAINTEXT", "localhost", 9092)
    assert config.client_listeners == (ClientListener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "", 9092, advertised),)
    assert config.controller_listeners == ("CONTROLLER://:9093",)
    assert config.given["listeners"] == "PLAINTEXT://:9092"


def test_only_a_listener_that_is_named_for_controllers_is_left_out() -> None:
    text = refusal(assignments=["listeners=PLAINTEXT://:1,CONTROLLER://:2"])
    assert "CONTROLLER is not in listener.security.protocol.map" in text
    named = "controller.listener.names=CONTROLLER"
    text = refusal(assignments=[named, "listeners=CONTROLLER://:2"])
    assert "there is no listener for clients; name one, PLAINTEXT://host:port" in text
    assert load_config(assignments=[named, "listeners=PLAINTEXT://:1"]).controller_listeners == ()


def test_the_cleaners_settings_have_their_effect() -> None:
    config = load_config(assignments=["log.cleaner.enable=false", "log.cleaner.threads=3"])
    assert config.without_effect == ()
    assert cleaner_settings(config)[:2] == (False, 3)


def test_jitter_and_delay_of_deletion_reach_the_log() -> None:
    """segment.jitter.ms and file.delete.delay.ms: the topic's own, or the broker's log.roll.jitter.* and delay."""
    assignments = ["log.roll.jitter.hours=2", "log.segment.delete.delay.ms=5"]
    config = load_config(assignments=assignments)
    of_broker = log_config(config, {}, NO_DYNAMIC)
    assert (of_broker.segment_jitter_ms, of_broker.file_delete_delay_ms) == (7_200_000, 5)
    of_topic = log_config(config, {"segment.jitter.ms": "7", "file.delete.delay.ms": "0"}, NO_DYNAMIC)
    assert (of_topic.segment_jitter_ms, of_topic.file_delete_delay_ms) == (7, 0)
    altered = log_config(config, {}, Dynamic({"log.roll.jitter.ms": "9"}, {"log.segment.delete.delay.ms": "6"}))
    assert (altered.segment_jitter_ms, altered.file_delete_delay_ms) == (9, 6)


def test_a_file_without_an_ending_is_told_by_its_content(tmp_path: Path) -> None:
    toml, properties = tmp_path / "one", tmp_path / "two"
    toml.write_text("num.partitions = 5\n[log]\nretention.hours = 2\n")
    properties.write_text("num.partitions=6\nlog.dirs=/var/lib/x\n")
    assert load_config(file=toml).num_partitions == 5
    assert load_config(file=properties).log_dirs == ("/var/lib/x",)


def test_a_refusal_from_a_properties_file_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnum.partitons=3\n")
    text = refusal(file=file)
    assert "line 2" in text
    assert "num.partitions" in text


def test_a_file_that_cannot_be_read_or_parsed_is_an_error_with_its_path(tmp_path: Path) -> None:
    broken = tmp_path / "x.toml"
    broken.write_text("a = = b")
    assert str(broken) in refusal(file=broken)
    assert "cannot read" in refusal(file=tmp_path / "absent.toml")


def test_older_names_mean_the_newer_ones() -> None:
    config = load_config(assignments=["broker.id=7", "log.dir=/x"])
    assert (config.node_id, config.log_dirs) == (7, ("/x",))


def test_memory_has_no_directory() -> None:
    assert load_config(flags={"storage": "memory"}).data_directory is None
    assert load_config(flags={"log.dirs": "/x"}).data_directory == Path("/x")


@pytest.mark.parametrize("text", ["nonsense", "PLAINTEXT://h", "PLAINTEXT://h:99999", "PLAINTEXT://h:1/x", "://h:1"])
def test_a_listener_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"PLAINTEXT|port"):
        parse_listener(text)


def test_listeners_with_names_of_their_own() -> None:
    """Names count in upper case (KIP-103); the same port may be open for IPv4 and IPv6 only (KIP-797)."""
    names = "listener.security.protocol.map=INSIDE:PLAINTEXT,Outside:PLAINTEXT"
    both = "listeners=INSIDE://:1,OUTSIDE://[::1]:1"
    config = load_config(assignments=[names, both, "advertised.listeners=outside://Broker.example:9093"])
    assert config.client_listeners == (
        ClientListener("INSIDE", SecurityProtocol.PLAINTEXT, "", 1, None),
        ClientListener("OUTSIDE", SecurityProtocol.PLAINTEXT, "::1", 1, Listener("OUTSIDE", "broker.example", 9093)),
    )
    same_port = "listeners=INSIDE://:1,OUTSIDE://127.0.0.1:1"
    assert "another listener has the same port" in refusal(assignments=[names, same_port])


def test_the_listener_of_other_brokers_is_named_once() -> None:
    load_config(assignments=["inter.broker.listener.name=plaintext"])
    both = ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"]
    assert "only one of inter.broker.listener.name and security.inter" in refusal(assignments=both)


def test_a_listener_may_be_ipv6_or_every_interface() -> None:
    assert parse_listener("PLAINTEXT://[::1]:0") == Listener("PLAINTEXT", "::1", 0)
    assert str(Listener("PLAINTEXT", "::1", 9)) == "PLAINTEXT://[::1]:9"
    assert parse_listener("PLAINTEXT://:9092").host == ""


def test_what_was_altered_at_run_time_lies_over_what_was_given() -> None:
    """KIP-226: this broker's own value, then that for all brokers, then what it was started with."""
    config = load_config(assignments=["log.segment.bytes=2000000", "message.max.bytes=5"])
    now = config.with_dynamic({"log.segment.bytes": "3000000", "log.retention.ms": "7"}, {"log.retention.ms": "8"})
    assert (now.log_segment_bytes, now.log_retention_ms, now.message_max_bytes) == (3_000_000, 8, 5)
    assert config.log_segment_bytes == 2_000_000


def test_only_some_settings_may_change_at_run_time() -> None:
    assert "dynamically" in (dynamic_problem("node.id", "4") or "")
    assert "nearest known one is log.retention.ms" in (dynamic_problem("log.retention.mss", "4") or "")
    assert "not a whole number" in (dynamic_problem("log.retention.ms", "soon") or "")
    assert dynamic_problem("log.retention.ms", "4") is None
    assert dynamic_problem("log.retention.ms", None) is None
    assert SETTINGS["log.retention.ms"].update is Update.CLUSTER_WIDE


def test_the_group_coordinator_gets_its_share() -> None:
    config = group_config(load_config(assignments=["group.max.size=3", "offsets.retention.minutes=9"]))
    assert (config.group_max_size, config.offsets_retention_minutes) == (3, 9)


def test_where_assignors_run_is_no_choice_here_kip_1263() -> None:
    """Kafka 4.4's setting is taken, at run time as well, kept to its type, and says of itself that it does nothing."""
    name = "group.consumer.assignor.offload.enable"
    load_config(assignments=[f"{name}=false"])
    assert dynamic_problem(name, "false") is None
    assert dynamic_problem(name, "perhaps") is not None
    assert WITHOUT_EFFECT[name].doc.startswith("No effect here: ")


def test_a_configuration_is_not_changed_by_accident() -> None:
    with pytest.raises(AttributeError):
        BrokerConfig().num_partitions = 3  # type: ignore[misc]
