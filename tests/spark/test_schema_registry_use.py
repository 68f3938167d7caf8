"""When Spark's driver and workers ask the registry, what they do without an answer, and what poison records become."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from fencepost.spark_connector.schemas import PoisonRecordError, RegistryError, SchemaError, from_registry, to_registry
from fencepost.spark_connector.schemas import decoding as decoding_module
from fencepost.spark_connector.schemas.registry import Registry
from tests.kit.schema_registry import SchemaRegistry
from tests.spark.schema_world import SUBJECT, avro_frame, decoder, read, record, register

OLD = record(("id", "long"))
COLOUR = {"type": "enum", "name": "shop.Colour", "symbols": ["RED", "GREEN"]}
NEW = record(("id", "long"), ("item", "string", "none"))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def test_each_schema_is_fetched_once_and_each_record_is_read_by_its_own(registry: SchemaRegistry) -> None:
    old, new = register(registry, OLD), register(registry, NEW)
    found, other = decoder(registry), decoder(registry)
    before = len(registry.requests)
    frames = [avro_frame(OLD, {"id": 1}, old), avro_frame(NEW, {"id": 2, "item": "tea"}, new), None]
    for _ in range(3):
        assert (
            read(found, *frames * 2)
            == [
                ({"id": 1, "item": "none"}, None),
                ({"id": 2, "item": "tea"}, None),
                (None, None),
            ]
            * 2
        )
    assert sorted(registry.requests[before:]) == [f"GET /schemas/ids/{old}", f"GET /schemas/ids/{new}"]
    read(other, *frames)  # of another query in the same process
    assert [one for one in registry.requests[before:] if "ids" in one] == registry.requests[before : before + 2]


def test_poison_records_have_reasons_and_do_no_harm_to_others(registry: SchemaRegistry) -> None:
    good = avro_frame(NEW, {"id": 2, "item": "tea"}, register(registry, NEW))
    register(registry, {"type": "object", "properties": {"a": {}}}, kind="JSON", subject="other")
    poison = {
        b"": "does not begin with magic byte 0",
        b'{"id": 1}': "does not begin with magic byte 0",
        b"\0\0\0": "it has 3 bytes, but magic byte and schema id have 5",
        good[:-1]: "it ends before its last field",
        good + b"x": "1 bytes are left behind its last field",
        b"\0\0\0\x27\x0f" + good[5:]: "the schema registry does not have schema 9999",
        b"\0\0\0\0\2" + good[5:]: "schema 2 is JSON, and AVRO is wanted",
        good[:5] + b"\2\xff": "is poison, whatever the reason",
    }
    frames = [one for frame in poison for one in (frame, good)]
    found = read(decoder(registry), *frames)
    assert [value for value, _ in found] == [None, {"id": 2, "item": "tea"}] * len(poison)
    for (_, reason), expected in zip(found[::2], poison.values(), strict=True):
        assert expected in reason or "whatever" in expected
    assert read(decoder(registry, on_error="null"), *frames) == [value for value, _ in found]
    with pytest.raises(PoisonRecordError) as raised:
        read(decoder(registry, on_error="fail"), good, good + b"x")
    assert str(raised.value) == (
        "a record cannot be read: 1 bytes are left behind its last field (schema id 1; first bytes "
        '00 00 00 00 01 04 06 74 65 61 78). With on_error="null" it is null, '
        'with on_error="keep" its error is in a column'
    )


def test_an_unknown_schema_is_asked_for_again_after_a_while_only(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(registry, OLD)
    found, frame = decoder(registry), avro_frame(NEW, {"id": 2, "item": "tea"}, 2)
    before = len(registry.requests)
    for _ in range(3):
        assert read(found, frame, frame)[1] == (None, "the schema registry does not have schema 2")
    assert registry.requests[before:] == ["GET /schemas/ids/2"]
    register(registry, NEW)
    now = decoding_module.time.monotonic() + 61
    monkeypatch.setattr(decoding_module.time, "monotonic", lambda: now)
    assert read(found, frame) == [({"id": 2}, None)]


@pytest.mark.parametrize("on_error", ["fail", "null", "keep"])
def test_a_registry_that_does_not_answer_makes_no_record_poison(registry: SchemaRegistry, on_error: str) -> None:
    frame = avro_frame(OLD, {"id": 1}, register(registry, OLD))
    found = decoder(registry, on_error=on_error)
    registry.refuse_with = 401
    with pytest.raises(RegistryError, match=r"schema 1: .*HTTP 401"):
        read(found, frame)
    registry.refuse_with = None
    assert read(found, frame)[0] in ({"id": 1}, ({"id": 1}, None))


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"[]", b"{}", b'{"schema": 5}'])
def test_an_answer_of_something_else_makes_no_record_poison(registry: SchemaRegistry, body: bytes) -> None:
    """For example of a proxy in front of the registry."""
    frame = avro_frame(OLD, {"id": 1}, register(registry, OLD))
    found, source = decoder(registry), Registry.of(registry.url)
    registry.answer_with = body
    with pytest.raises(RegistryError, match=rf"schema 1: {registry.url} "):
        read(found, frame)
    with pytest.raises(RegistryError, match=rf"subject {SUBJECT}: {registry.url} "):
        source.latest(SUBJECT)
    registry.answer_with, registry.refuse_with = None, 404
    with pytest.raises(RegistryError, match=r"schema 1: .* answered HTTP 404 .* Check the path of its URL"):
        read(found, frame)
    registry.refuse_with = None
    assert read(found, frame) == [({"id": 1}, None)]


def test_a_session_that_goes_on_sees_the_newest_version(registry: SchemaRegistry) -> None:
    """A notebook, or a stream that is started again, lives longer than a version: else its new fields were lost.

    confluentinc/confluent-kafka-python 1950, confluentinc/schema-registry 4021.
    """
    register(registry, OLD)
    source = Registry.of(registry.url)
    assert "item" not in source.latest(SUBJECT).text
    register(registry, NEW)
    assert "item" in source.latest(SUBJECT).text


def test_a_subject_that_was_deleted_for_good_gets_its_schemas_again(registry: SchemaRegistry) -> None:
    """confluentinc/confluent-kafka-python 1824: records had the id from before, and could be read by nobody."""
    source, text = Registry.of(registry.url), json.dumps(OLD)
    first = source.id_of(SUBJECT, "AVRO", text, register=True)
    assert source.latest(SUBJECT, 1).schema_id == first
    registry.forget(SUBJECT)
    with pytest.raises(SchemaError, match="does not have"):
        source.id_of(SUBJECT, "AVRO", text, register=False)
    second = source.id_of(SUBJECT, "AVRO", json.dumps(NEW), register=True)
    assert second != first
    assert source.latest(SUBJECT, 1).schema_id == source.id_of(SUBJECT, "AVRO", json.dumps(NEW), register=False)
    assert source.id_of(SUBJECT, "AVRO", text, register=True) not in (first, second)


def test_reasons_are_short_and_say_what_is_wrong(registry: SchemaRegistry) -> None:
    """They go into headers: a whole schema there can make a record larger than a topic takes."""
    many = record(*[(f"field{number}", "long") for number in range(100)], ("colour", COLOUR))
    frame = avro_frame(many, dict.fromkeys([one["name"] for one in many["fields"]], 1) | {"colour": "RED"}, 1)
    register(registry, many)
    register(registry, record(("long", "string"), name="shop.Other"), subject="other")
    found = read(decoder(registry), frame[:50], frame[:-1] + b"\4")
    assert [reason for _, reason in found] == [
        "it ends before its last field",
        "it has a number of a union's type, or of an enum's symbol, that its schema does not have",
    ]
    ((_, reason),) = read(decoder(registry, subject="other"), frame)
    assert reason.startswith("SchemaResolutionError: ")
    assert len(reason) < 600


def test_texts_are_no_records(registry: SchemaRegistry) -> None:
    """Not even poison: the query has the wrong column."""
    register(registry, OLD)
    source = Registry.of(registry.url)
    reading = decoding_module.Reading(source, source.latest(SUBJECT), None, "null")
    with pytest.raises(SchemaError, match="is string, but must be binary"):
        decoding_module.decode(reading, pa.array(["text"]))
    assert decoding_module.decode(reading, pa.array([b"poison"])).to_pylist() == [None]


def test_a_guid_is_read_too(registry: SchemaRegistry) -> None:
    register(registry, OLD)
    guid = uuid.UUID(registry.answer("GET", "/schemas/ids/1", {}, None)["guid"])
    body = avro_frame(OLD, {"id": 1})[5:]
    assert read(decoder(registry), b"\1" + guid.bytes + body) == [({"id": 1}, None)]
    unknown = "the schema registry does not have schema " + "00" * 16
    assert read(decoder(registry), b"\1" + bytes(16) + body) == [(None, unknown)]


def test_settings_are_shown_nowhere(registry: SchemaRegistry) -> None:
    address = registry.url.replace("http://", "http://alice:wonder@") + "/"
    found = Registry.of({"url": address, "ssl.key.password": "rabbit"})
    assert repr(found) == f"Registry(url='{registry.url}/')"
    for error in (
        _error_of(found, "nowhere"),
        _error_of(Registry.of({"url": "http://bob:builder@127.0.0.1:1", "max.retries": 0}), "x"),
    ):
        assert not {"wonder", "rabbit", "builder", "alice", "bob"} & set(
            error.replace("@", " ").replace(":", " ").split()
        )


def _error_of(found: Registry, subject: str) -> str:
    with pytest.raises((RegistryError, SchemaError)) as raised:
        found.latest(subject)
    return str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "give either subject"),
        ({"subject": "a", "schema_id": 1}, "give either subject"),
        ({"schema_id": 1, "version": 1}, "version needs subject"),
        ({"subject": "a", "on_error": "skip"}, "on_error is 'skip', but must be one of fail, null, keep"),
        ({"subject": "a", "field": "header"}, "must be key or value"),
    ],
)
def test_wrong_arguments_of_from_registry(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_registry("value", registry="http://127.0.0.1:1", **wrong)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"register": True}, "register=True needs schema"),
        ({"schema": '"long"', "version": 1}, "either schema or version"),
        ({"schema": '"long"', "schema_type": "THRIFT"}, "must be one of AVRO, JSON, PROTOBUF"),
        ({"schema": object(), "schema_type": "JSON"}, "AVRO schema is made"),
    ],
)
def test_wrong_arguments_of_to_registry(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        to_registry("row", registry="http://127.0.0.1:1", subject="s", **wrong)


def test_a_schema_that_is_not_there_is_an_error_on_the_driver(registry: SchemaRegistry) -> None:
    register(registry, OLD)
    with pytest.raises(SchemaError, match="does not have subject nowhere"):
        from_registry("value", registry=registry.url, subject="nowhere")
    with pytest.raises(SchemaError, match=f"does not have subject {SUBJECT}, version 9"):
        from_registry("value", registry=registry.url, subject=SUBJECT, version=9)
    with pytest.raises(SchemaError, match="does not have schema 99"):
        from_registry("value", registry=registry.url, schema_id=99)
    with pytest.raises(SchemaError, match=r"does not have the given schema\. Register it, or set register=True"):
        to_registry("row", registry=registry.url, subject=SUBJECT, schema='"long"')
    with pytest.raises(ValueError, match='registry has no "url"'):
        from_registry("value", registry={}, subject=SUBJECT)


def test_schemas_with_rules_are_refused_as_readers_and_poison_as_writers(registry: SchemaRegistry) -> None:
    """Else fields that are encrypted would be read as they are."""
    register(registry, OLD)
    rule = {"name": "secret", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    body = {"schema": json.dumps(NEW), "ruleSet": {"domainRules": [rule]}}
    registry.answer("POST", "/subjects/ruled/versions", {}, body)
    with pytest.raises(SchemaError, match="has rules"):
        from_registry("value", registry=registry.url, subject="ruled")
    ((value, reason),) = read(decoder(registry), avro_frame(NEW, {"id": 1, "item": "x"}, 2))
    assert value is None
    assert reason == "schema 2 has rules (such as encryption), which Spark does not run"
