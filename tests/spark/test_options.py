"""The options: spelled as Spark's Kafka source spells them, refused with a reason where they make no sense."""

import pickle
import platform

import pytest

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.wire import Address
from fencepost.spark_connector.offsets import EARLIEST, LATEST
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.source.options import (
    ALL_COLUMNS,
    DEFAULT_COLUMNS,
    Bound,
    Mode,
    SourceOptions,
    Subscription,
    parse_options,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(mode: Mode | None = Mode.BATCH, *, subscribe: str | None = "t", **options: str) -> SourceOptions:
    """Names with _ for . and in lower case, as Spark hands them over."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    given.setdefault("kafka.bootstrap.servers", "localhost:9092")
    if subscribe is not None:
        given["subscribe"] = subscribe
    return parse_options({name.lower(): value for name, value in given.items()}, mode)


def test_the_defaults_are_those_of_sparks_kafka_source_but_for_the_isolation() -> None:
    batch, stream = parse(Mode.BATCH), parse(Mode.STREAM)
    assert (batch.starting, batch.ending) == (Bound(mark=EARLIEST), Bound(mark=LATEST))
    assert stream.starting == Bound(mark=LATEST)
    assert batch.isolation is IsolationLevel.READ_COMMITTED
    assert batch.fail_on_data_loss
    assert (
        batch.columns
        == DEFAULT_COLUMNS
        == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    )


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("subscribepatern", "subscribePattern"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("isolation.level", "kafka.isolation.level"),
        ("isolationLevel", "kafka.isolation.level"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("maxRecordPerTrigger", "maxRecordsPerTrigger"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"option {name.lower()} is not known; did you mean {nearest}\\?"):
        parse(**{name: "x"})


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(OptionError, match=r"option zzz is not known$"):
        parse(zzz="x")


def test_exactly_one_subscription_is_needed() -> None:
    with pytest.raises(OptionError, match="exactly one of subscribe, subscribePattern, assign; none is given"):
        parse(subscribe=None)
    with pytest.raises(OptionError, match="given are subscribe and assign"):
        parse(assign='{"t": [0]}')


def test_the_three_subscriptions() -> None:
    assert parse(subscribe=" b, a ,b").subscription == Subscription(topics=("b", "a"))
    assert parse(subscribe=None, subscribePattern="fl.*").subscription == Subscription(pattern="fl.*")
    assert parse(subscribe=None, assign='{"t": [1, 0, 1]}').subscription == Subscription(partitions=(T0, T1))


@pytest.mark.parametrize("text", ["", "[]", "{}", "t", '{"t": 0}', '{"t": [-1]}', '{"t": ["0"]}', '{"t": [true]}'])
def test_an_assignment_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="option assign"):
        parse(subscribe=None, assign=text)


@pytest.mark.parametrize(("name", "text"), [("subscribe", " , "), ("subscribePattern", "("), ("subscribePattern", "")])
def test_topics_and_patterns_that_name_nothing_are_refused(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}"):
        parse(**{"subscribe": None, name: text})


def test_offsets_may_be_named_for_each_partition() -> None:
    options = parse(startingOffsets='{"t": {"0": 23, "1": -2}}', endingOffsets='{"t": {"0": 50, "1": -1}}')
    assert options.starting == Bound(offsets={T0: 23, T1: EARLIEST})
    assert options.ending == Bound(offsets={T0: 50, T1: LATEST})
    assert parse(startingOffsets="Earliest").starting == Bound(mark=EARLIEST)
    assert parse(Mode.STREAM, startingOffsets='{"t": {"0": -1}}').starting == Bound(offsets={T0: LATEST})


@pytest.mark.parametrize(
    "text",
    ["23", "oldest", "[]", '{"t": 5}', '{"t": {"x": 5}}', '{"t": {"0": -3}}', '{"t": {"0": 1.5}}', '{"t": {"0": "5"}}',
     '{"t": {"0": true}}', '{"t": {"-1": 5}}', '{"t": {"0": 1, "0": 2}}', '{"t": {"0": 1}, "t": {"1": 2}}'],
)  # fmt: skip
def test_offsets_of_another_shape_are_refused(text: str) -> None:
    with pytest.raises(
        OptionError, match=r"option startingOffsets = .*must be earliest, latest, or it must be JSON such"
    ):
        parse(startingOffsets=text)


def test_times_may_be_one_for_all_or_one_for_each() -> None:
    assert parse(startingTimestamp="1700000000000").starting == Bound(timestamp_ms=1_700_000_000_000)
    times = parse(startingOffsetsByTimestamp='{"t": {"0": 5}}', endingOffsetsByTimestamp='{"t": {"0": 9}}')
    assert (times.starting, times.ending) == (Bound(timestamps_ms={T0: 5}), Bound(timestamps_ms={T0: 9}))
    assert parse(endingTimestamp="7").ending == Bound(timestamp_ms=7)
    for wrong in ("-1", "soon", "1.5", "²"):
        with pytest.raises(OptionError, match="option startingTimestamp"):
            parse(startingTimestamp=wrong)


def test_the_strategy_says_what_becomes_of_a_time_without_a_record() -> None:
    assert parse(startingTimestamp="1", startingOffsetsByTimestampStrategy="LATEST").latest_if_no_timestamp
    assert not parse(startingTimestamp="1", startingOffsetsByTimestampStrategy="error").latest_if_no_timestamp
    with pytest.raises(OptionError, match="must be one of error, latest"):
        parse(startingTimestamp="1", startingOffsetsByTimestampStrategy="newest")


def test_a_time_for_all_goes_before_times_and_those_before_offsets(caplog: pytest.LogCaptureFixture) -> None:
    """The order of Spark's Kafka source. A warning names the option without effect."""
    each = {"startingOffsetsByTimestamp": '{"t": {"0": 7}}', "startingOffsets": "latest"}
    assert parse(**each).starting == Bound(timestamps_ms={T0: 7})
    assert "startingOffsetsByTimestamp overrides startingOffsets" in caplog.text
    assert parse(startingTimestamp="5", **each).starting == Bound(timestamp_ms=5)
    ends = {"endingOffsets": '{"t": {"0": 9}}', "endingOffsetsByTimestamp": '{"t": {"0": 7}}'}
    assert parse(**ends).ending == Bound(timestamps_ms={T0: 7})
    assert parse(endingTimestamp="5", **ends).ending == Bound(timestamp_ms=5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "5"),
        ("minOffsetsPerTrigger", "5"),
        ("maxTriggerDelay", "1m"),
        ("maxRecordsPerTrigger", "5"),
        ("maxBytesPerTrigger", "1m"),
        ("commitGroup", "g"),
    ],
)
def test_what_steers_micro_batches_has_no_effect_in_a_batch_query_which_is_told(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    parse(Mode.BATCH, **{name: value})
    assert f"option {name} has no effect in a batch query" in caplog.text
    caplog.clear()
    parse(Mode.STREAM, **{name: value})
    assert not caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffsets": "latest"}, "a batch query cannot start at latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "a batch query cannot start at latest"),
        ({"endingOffsets": "earliest"}, "a query cannot end at earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "a query cannot end at earliest"),
        ({"columns": "value", "includeHeaders": "true"}, "includeHeaders is true, but columns is value"),
        ({"columns": "headers", "includeHeaders": "false"}, "includeHeaders is false, but columns is headers"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse(**options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name} is not allowed in a streaming query"):
        parse(Mode.STREAM, **{name: "latest"})


def test_before_the_mode_is_known_both_kinds_are_let_through() -> None:
    assert parse(None, endingOffsets="latest", maxOffsetsPerTrigger="5").max_offsets_per_trigger == 5


def test_limits_of_a_trigger() -> None:
    options = parse(Mode.STREAM, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="30s")
    assert (options.min_offsets_per_trigger, options.max_offsets_per_trigger) == (5, 9)
    assert options.max_trigger_delay_ms == 30_000
    assert parse(Mode.STREAM, maxTriggerDelay="2m").max_trigger_delay_ms == 120_000
    with pytest.raises(OptionError, match="minOffsetsPerTrigger 9 is larger"):
        parse(Mode.STREAM, minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5")
    for name, wrong in [("maxOffsetsPerTrigger", "0"), ("minPartitions", "-1"), ("maxTriggerDelay", "soon")]:
        with pytest.raises(OptionError, match=f"option {name}"):
            parse(Mode.STREAM, **{name: wrong})


def test_the_isolation_level_has_the_name_of_kafkas_consumer() -> None:
    assert parse(kafka_isolation_level="read_uncommitted").isolation is IsolationLevel.READ_UNCOMMITTED
    assert parse(kafka_isolation_level="READ_COMMITTED").isolation is IsolationLevel.READ_COMMITTED
    with pytest.raises(OptionError, match="must be one of read_committed, read_uncommitted"):
        parse(kafka_isolation_level="serializable")
    with pytest.raises(OptionError, match=r"option isolation cannot be set: its name is kafka\.isolation\.level"):
        parse(isolation="read_committed")


def test_columns_and_headers() -> None:
    assert parse(includeHeaders="true").columns == ALL_COLUMNS
    assert parse(columns="Value, OFFSET,value").columns == ("value", "offset")
    assert parse(columns="headers", includeHeaders="true").columns == ("headers",)
    with pytest.raises(OptionError, match="there is no column 'vlue'"):
        parse(columns="vlue")


def test_addresses() -> None:
    found = parse(kafka_bootstrap_servers="a:1, [::1]:9092,").connection.bootstrap
    assert found == (Address("a", 1), Address("::1", 9092))
    for wrong in ("", "localhost", "a:b", "a:0", "a:70000", ":5"):
        with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers"):
            parse(kafka_bootstrap_servers=wrong)
    with pytest.raises(OptionError, match=r"option kafka\.bootstrap\.servers is missing"):
        parse_options({"subscribe": "t"})


@pytest.mark.parametrize("name", ["kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.key.deserializer"])
def test_what_sparks_kafka_source_refuses_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} cannot be set: "):
        parse(**{name: "x"})


def test_sizes_are_bytes_with_or_without_a_unit() -> None:
    for text, size in [("7", 7), ("512k", 512 << 10), ("64M", 64 << 20), ("1 gb", 1 << 30)]:
        assert parse(Mode.STREAM, maxBytesPerTrigger=text).max_bytes_per_trigger == size
    for wrong in ("0", "-1", "much", "1.5m"):
        with pytest.raises(OptionError, match=r"option maxBytesPerTrigger = .* must be a size above 0 such as"):
            parse(Mode.STREAM, maxBytesPerTrigger=wrong)


def test_a_plain_connection_has_no_security_and_costs_none() -> None:
    assert parse(kafka_security_protocol="plaintext").connection.security is None
    assert parse().connection.client_id == "fencepost-spark"


@pytest.mark.parametrize(
    "names",
    [
        {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.username": "me", "kafka.sasl.password": "sesame"},
        {"kafka.sasl.mechanisms": "scram-sha-512", "kafka.sasl.username": "me", "kafka.sasl.password": "sesame"},
        {
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="me" password="sesame";',
        },
    ],
)
def test_security_is_said_in_the_words_of_java_or_of_librdkafka(names: dict[str, str]) -> None:
    found = parse(**{"kafka.security.protocol": "SASL_SSL", **names}).connection.security
    assert found is not None
    assert (found.tls, found.sasl, found.sasl_mechanism) == (True, True, "SCRAM-SHA-512")
    assert (found.sasl_username, found.sasl_password) == ("me", "sesame")
    assert "sesame" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found, "tasks get it by pickle"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kafka.security.protocol": "TLS"}, r"option kafka\.security\.protocol: 'TLS' must be one of plaintext, ssl"),
        ({"kafka.security.protocol": "SASL_SSL"}, r"needs kafka\.sasl\.mechanism"),
        ({"kafka.sasl.mechanism": "GSSAPI"}, r"option kafka\.sasl\.mechanism: 'GSSAPI' must be one of PLAIN, SCRAM"),
        ({"kafka.sasl.username": "me"}, r"SASL options need kafka\.security\.protocol"),
        ({"kafka.ssl.truststore.type": "JKS"}, "must be PEM"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/nowhere"}, "cannot be used: No such file"),
        ({"kafka.sasl.kerberos.service.name": "kafka"}, "GSSAPI is not supported"),
        ({"kafka.sasl.oauthbearer.token.endpoint.url": "https://x"}, "a function that returns a token"),
        (
            {"kafka.sasl.oauth.token.provider": "nowhere:token"},
            "must name a function that every worker can import, module:function",
        ),
    ],
)
def test_security_that_can_not_be_is_refused_by_the_options_name(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parse(**options)


def test_a_function_that_gives_tokens_goes_to_the_tasks_by_its_name() -> None:
    found = parse(
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauth.token.provider": "platform:node",
        }
    ).connection.security
    assert found is not None
    copied = pickle.loads(pickle.dumps(found))
    assert copied == found
    assert copied.sasl_oauth_token_provider() == platform.node()


def test_settings_of_a_consumer_that_is_not_there_are_accepted() -> None:
    assert parse(kafka_group_id="g", groupIdPrefix="p", kafka_max_poll_records="5") == parse()
