"""`from_registry` and `to_registry` in a real Spark, up to dead letters that are written exactly once."""

import datetime
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fencepost.spark_connector import write_exactly_once
from fencepost.spark_connector.schemas import avro_schema_of, from_registry, route_dead_letters, to_registry
from tests.kit.schema_registry import SchemaRegistry
from tests.kit.schemas import FORMATS, open_format
from tests.spark.conftest import new_producer, new_topic
from tests.spark.killed import patiently
from tests.spark.schema_world import SUBJECT, avro_frame, record, register

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
VALUE = SerializationContext("orders", MessageField.VALUE)
ORDER = record(
    ("id", "long"),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("tags", {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}),
    ("either", ["null", "int", "string"], None),
)
NOON = datetime.datetime(2026, 5, 4, 12, tzinfo=datetime.UTC)
FIRST = {"id": 1, "at": NOON, "tags": {"a": [1, None]}, "either": ("string", "x")}
SECOND = {"id": 2, "at": NOON + datetime.timedelta(microseconds=1), "tags": {}, "either": None}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as made:
        yield made


def frames(spark: Any, *values: bytes | None) -> Any:
    return spark.createDataFrame([(number, value) for number, value in enumerate(values)], "n INT, value BINARY")


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_goes_to_a_struct_and_back(spark: Any, registry: SchemaRegistry, name: str) -> None:
    with open_format(name, registry.url) as form:
        frame = form.serializer(form.order, VALUE)
    named = {"registry": registry.url, "subject": SUBJECT}
    if name == "protobuf-nested":
        named["message"] = "shop.Shop.Line"
    read = frames(spark, frame, None).select("n", from_registry("value", **named).alias("order"))
    again = read.select("n", "order", "order.item", to_registry("order", **named).alias("again"))
    first, second = patiently(lambda: again.orderBy("n").collect())
    assert (first.order.asDict(), first.item, bytes(first.again)) == (
        {"id": 7, "item": "green tea"},
        "green tea",
        frame,
    )
    assert (second.order, second.item, second.again) == (None, None, None)


@pytest.mark.parametrize("way", ["arrow", "rows"])
def test_nested_values_and_instants_are_exact_in_any_time_zone(
    spark: Any, registry: SchemaRegistry, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rows as with Spark 4.0, which has no Arrow UDFs."""
    if way == "rows":
        monkeypatch.delattr("pyspark.sql.functions.arrow_udf")
    schema_id = register(registry, ORDER)
    found = [avro_frame(ORDER, one, schema_id) for one in (FIRST, SECOND)]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        named = {"registry": {"url": registry.url}, "subject": SUBJECT}
        read = frames(spark, *found).select("n", from_registry("value", **named).alias("order"))
        rows = patiently(
            lambda: (
                read.withColumn("again", to_registry("order", **named))
                .selectExpr("order.*", "unix_micros(order.at) AS micros", "again")
                .orderBy("id")
                .collect()
            )
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [bytes(row.again) for row in rows] == found
    assert [row.micros for row in rows] == [1777896000000000, 1777896000000001]
    assert rows[0].tags == {"a": [1, None]}
    assert rows[0].either.asDict() == {"member0": None, "member1": "x"}
    assert rows[1].either is None


def test_a_poison_record_ends_the_query_or_is_null_or_keeps_its_error(spark: Any, registry: SchemaRegistry) -> None:
    good = avro_frame(ORDER, FIRST, register(registry, ORDER))
    given = frames(spark, good, b"poison", None)
    named: dict[str, Any] = {"registry": registry.url, "subject": SUBJECT}
    with pytest.raises(Exception, match=r"a record cannot be read: it does not begin with magic byte 0.*70 6f 69 73"):
        patiently(lambda: given.select(from_registry("value", **named)).collect())
    nulls = given.select("n", from_registry("value", on_error="null", **named).alias("v")).orderBy("n")
    assert [row.v and row.v.id for row in nulls.collect()] == [1, None, None]
    kept = given.select("n", from_registry("value", on_error="keep", **named).alias("r")).select("n", "r.*")
    rows = kept.orderBy("n").collect()
    assert [(row.value is None, row.error is None) for row in rows] == [(False, True), (True, False), (True, True)]
    assert rows[1].error.schema_id is None
    assert kept.where("error IS NOT NULL").count() == 1


def test_settings_are_in_no_plan_and_in_no_error(spark: Any, registry: SchemaRegistry) -> None:
    register(registry, ORDER)
    settings = {"url": registry.url, "basic.auth.user.info": "alice:wonderland"}
    frame = frames(spark, b"poison").select(from_registry("value", registry=settings, subject=SUBJECT).alias("v"))
    plan = frame._jdf.queryExecution().toString()
    assert "from_registry(value" in plan
    with pytest.raises(Exception, match="a record cannot be read") as raised:
        patiently(frame.collect)
    assert "wonderland" not in f"{plan} {raised.value!r} {frame!r}"


@pytest.mark.parametrize("writer", [prefix_schema_id_serializer, header_schema_id_serializer])
def test_schema_ids_are_found_in_headers_and_in_front(spark: Any, registry: SchemaRegistry, writer: Any) -> None:
    headers: list[Any] = []
    with SchemaRegistryClient({"url": registry.url}) as client:
        serializer = AvroSerializer(client, json.dumps(ORDER), conf={"schema.id.serializer": writer})
        value = serializer(FIRST, SerializationContext("orders", MessageField.VALUE, headers))
    rows = spark.createDataFrame(
        [(value, [("trace", b"1"), *headers]), (None, None)],
        "value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>",
    )
    read = from_registry("value", registry=registry.url, subject=SUBJECT, headers="headers").alias("v")
    assert [row.v and row.v.id for row in patiently(lambda: rows.select(read).collect())] == [1, None]


def test_columns_are_registered_when_that_is_wanted_and_must_fit(spark: Any, registry: SchemaRegistry) -> None:
    rows = spark.sql("SELECT struct(id, timestamp '2026-05-04' AS day, array('a') AS tags) AS row FROM range(2)")
    kind = rows.schema["row"].dataType
    named: dict[str, Any] = {"registry": registry.url, "subject": SUBJECT}
    written = to_registry("row", schema=avro_schema_of(kind, "shop.Row"), register=True, **named)
    again = rows.select(from_registry(written, **named).alias("again"), "row")
    assert all(row.again == row.row for row in patiently(again.collect))
    other = spark.sql("SELECT struct(id, 'x' AS day) AS row FROM range(1)").select(to_registry("row", **named))
    with pytest.raises(Exception, match=r"subject orders-value: value\.day is string.*Cast the column"):
        patiently(other.collect)
    assert registry.requests.count(f"POST /subjects/{SUBJECT}/versions") == 1


def test_each_record_or_dead_letter_is_written_once(spark: Any, bootstrap: str, registry: SchemaRegistry) -> None:
    """Both topics are written in one transaction of the sink, which skips a batch that Spark repeats."""
    name = os.urandom(4).hex()
    incoming, clean, dead = (new_topic(bootstrap, f"{kind}-{name}", 2) for kind in ("in", "clean", "dead"))
    schema = record(("id", "long"))
    schema_id = register(registry, schema)
    producer = new_producer(bootstrap)
    producer.begin_transaction()
    for number in range(20):
        poison = number % 4 == 0
        value = b"poison %d" % number if poison else avro_frame(schema, {"id": number}, schema_id)
        producer.produce(
            incoming, value, b"%d" % number, number % 2, timestamp=number + 1, headers=[("n", b"%d" % number)]
        )
    producer.commit_transaction(100)
    kafka = {"kafka.bootstrap.servers": bootstrap}
    named: dict[str, Any] = {"registry": registry.url, "subject": SUBJECT}

    def rows_of(topic: str) -> Any:
        return spark.read.format("fencepost").options(**kafka, subscribe=topic, includeHeaders="true").load()

    read = rows_of(incoming).withColumn("read", from_registry("value", on_error="keep", **named))
    value = to_registry("read.value", **named)
    with pytest.raises(ValueError, match=r'column value has no errors: make it with .*on_error="keep"'):
        route_dead_letters(read, read="value", value=value, topic=clean, dead_letter_topic=dead)
    read = read.withColumn("again", value)  # a name is a name here, too, and not the text to write
    routed = route_dead_letters(read, read="read", value="again", topic=clean, dead_letter_topic=dead)

    for _ in range(2):
        patiently(lambda: write_exactly_once(routed, 0, transactional_id=f"tx-{name}", options=kafka, query_id=name))
    found = rows_of(f"{clean},{dead}").collect()
    records = {int(row.key): row for row in found if row.topic == clean}
    assert sorted(records) == [number for number in range(20) if number % 4]
    for number, row in records.items():
        assert bytes(row.value) == avro_frame(schema, {"id": number}, schema_id)
        assert (row.timestamp.microsecond, [one.key for one in row.headers]) == ((number + 1) * 1000, ["n"])
    letters = sorted((row for row in found if row.topic == dead), key=lambda row: int(row.key))
    assert [(bytes(row.value), row.timestamp.microsecond) for row in letters] == [
        (b"poison %d" % number, (number + 1) * 1000) for number in range(0, 20, 4)
    ]
    facts = {one.key.removeprefix("fencepost.error."): bytes(one.value).decode() for one in letters[2].headers}
    reason = "it does not begin with magic byte 0, so it was not written with a schema registry"
    assert facts == {"n": "8", "reason": reason, "topic": incoming, "partition": "0", "offset": "4"}


def test_a_dead_letter_that_is_read_again_has_its_newest_reason_only(spark: Any, registry: SchemaRegistry) -> None:
    """spring-projects/spring-kafka 1994: with each pass the headers grew, until the record was too large."""
    good = avro_frame(ORDER, FIRST, register(registry, ORDER))
    old = [("n", b"1"), ("fencepost.error.reason", b"old"), ("fencepost.error.offset", b"3")]
    rows = spark.createDataFrame(
        [(None, good, "dead", 0, 1, old), (None, b"poison", "dead", 0, 2, old), (None, b"poison", "dead", 0, 3, None)],
        "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, "
        "headers ARRAY<STRUCT<key STRING, value BINARY>>",
    )
    named: dict[str, Any] = {"registry": registry.url, "subject": SUBJECT}
    read = rows.withColumn("read", from_registry("value", on_error="keep", **named))
    routed = route_dead_letters(read, read="read", value="value", topic="clean", dead_letter_topic="dead")
    clean, *dead = patiently(routed.collect)
    assert [one.key for one in clean.headers] == ["n"]
    facts = [f"fencepost.error.{name}" for name in ("reason", "topic", "partition", "offset")]
    assert [[one.key for one in row.headers] for row in dead] == [["n", *facts], facts]
    assert [bytes(row.headers[-1].value) for row in dead] == [b"2", b"3"]
