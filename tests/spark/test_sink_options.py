"""The sink's options: the anchor's names and meanings, checked before anything is written."""

import pickle

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from fencepost.protocol.compression import Compression
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.sink.options import SinkOptions, parse_sink_options

BASE = {"kafka.bootstrap.servers": "a:1,b:2", "checkpointlocation": "/data/ck"}


def parsed(streaming: bool = True, **more: str) -> SinkOptions:
    return parse_sink_options(
        {**BASE, **{name.replace("__", "."): value for name, value in more.items()}}, streaming=streaming
    )


def test_a_stream_needs_an_address_and_a_name_that_stays() -> None:
    options = parsed(topic="t")
    assert (options.bootstrap, options.topic, options.two_phase) == ("a:1,b:2", "t", False)
    assert options.transactional_id == parsed().transactional_id == options.group
    assert options.transactional_id != parsed(checkpointlocation="/data/other").transactional_id
    assert options.transactional_id == parsed(checkpointlocation="/data/ck/").transactional_id
    assert parsed(kafka__transactional__id="mine").transactional_id == "mine"
    with pytest.raises(OptionError, match="a stable name"):
        parse_sink_options({"kafka.bootstrap.servers": "a:1"}, streaming=True)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_sink_options({"checkpointlocation": "/x"}, streaming=True)


def test_a_batch_write_has_a_name_of_its_own_unless_it_is_to_be_done_once() -> None:
    assert parsed(streaming=False).transactional_id != parsed(streaming=False).transactional_id
    once = parsed(streaming=False, queryId="q", batchId="7", kafka__transactional__id="mine")
    assert (once.query_id, once.batch_id, once.transactional_id) == ("q", 7, "mine")
    for wrong, reason in [
        ({"queryId": "q"}, "set queryId and batchId together"),
        ({"queryId": "q", "batchId": "7"}, r"need kafka\.transactional\.id"),
        ({"queryId": "q", "batchId": "x", "kafka__transactional__id": "m"}, "batchId = 'x': must be a whole number"),
    ]:
        with pytest.raises(OptionError, match=reason):
            parsed(streaming=False, **wrong)
    with pytest.raises(OptionError, match="Id is only for batch writes"):
        parsed(queryId="q", batchId="7")


def test_kafkas_options_go_to_the_client_as_far_as_it_has_them() -> None:
    options = parsed(kafka__compression__type="zstd", kafka__batch__size="1000", kafka__request__timeout__ms="5000")
    assert options.producer_config.compression_type is Compression.ZSTD
    assert options.producer_config.batch_size == 1000
    assert options.client["request_timeout_ms"] == "5000"
    assert parsed().producer_config.batch_size == 512 << 10
    assert (
        parsed(kafka__acks="all", kafka__enable__idempotence="true", kafka__retries="5").producer_config.acks == "all"
    )


def test_tls_and_sasl_options_go_to_the_client_and_passwords_do_not_show() -> None:
    options = parsed(
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="SCRAM-SHA-256",
        kafka__sasl__jaas__config='org.apache.kafka...ScramLoginModule required username="ann" password="secret-42";',
    )
    assert (options.client["sasl_username"], options.client["sasl_mechanism"]) == ("ann", "SCRAM-SHA-256")
    assert "secret-42" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"topik": "t"}, r"did you mean topic\?"),
        ({"kafka__compresion__type": "zstd"}, r"did you mean kafka\.compression\.type\?"),
        ({"kafka__compression__type": "best"}, r"kafka\.compression\.type: 'best' must be one of none"),
        ({"kafka__acks": "1"}, r"kafka\.acks: '1' must be one of all"),
        ({"kafka__enable__idempotence": "false"}, r"kafka\.enable\.idempotence"),
        ({"kafka__key__serializer": "x"}, "strings or binary already"),
        ({"kafka__partitioner__class": "x"}, "a column named partition"),
        ({"kafka__group__id": "x"}, r"has the name of its kafka\.transactional\.id"),
        ({"kafka__sasl__mechanism": "PLAIN"}, "SASL options need"),
        ({"twoPhase": "yes"}, "twoPhase = 'yes': must be true or false"),
        ({"maxTransactionBytes": "0"}, "maxTransactionBytes = '0': must be a whole number above 0"),
        ({"topic": " "}, "topic = ' ': must not be empty"),
    ],
)
def test_wrong_options_are_named_with_the_reason(wrong: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        parsed(**wrong)
