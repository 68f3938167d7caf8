"""Levels of compatibility: Confluent's CompatibilityLevel and Avro's rules of schema resolution."""

import json
import time
from typing import Any

import pytest

from fencepost.schema_registry.errors import RegistryError
from tests.unit.schema_registry.core import ORDER, ORDER_WITH_DEFAULT, ORDER_WITHOUT_DEFAULT, Core

GROWS = (ORDER, ORDER_WITHOUT_DEFAULT)
SHRINKS = (ORDER_WITHOUT_DEFAULT, ORDER)
EITHER = (ORDER, ORDER_WITH_DEFAULT)


def accepts(level: str, *texts: str) -> bool:
    """Whether the last of these versions may follow the others."""
    core = Core()
    core.ask("PUT", "/config", {"compatibility": "NONE"})
    for text in texts[:-1]:
        core.register("a", text)
    core.ask("PUT", "/config/a", {"compatibility": level})
    found: bool = core.ask("POST", "/compatibility/subjects/a/versions", {"schema": texts[-1]})["is_compatible"]
    code = 0
    try:
        core.register("a", texts[-1])
    except RegistryError as error:
        code = error.code
    assert code == (0 if found else 40901), "the check and the registration disagree"
    return found


@pytest.mark.parametrize(
    ("level", "grows", "shrinks"),
    [("NONE", True, True), ("BACKWARD", False, True), ("FORWARD", True, False), ("FULL", False, False)],
)
def test_a_field_without_a_default_comes_or_goes(level: str, grows: bool, shrinks: bool) -> None:
    """BACKWARD: new readers read old data. FORWARD: old readers read new data. FULL: both."""
    assert accepts(level, *GROWS) is accepts(f"{level}_TRANSITIVE" if level != "NONE" else level, *GROWS) is grows
    assert accepts(level, *SHRINKS) is shrinks
    assert accepts(level, *EITHER)


@pytest.mark.parametrize(("level", "expected"), [("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)])
def test_only_the_transitive_levels_look_beyond_the_latest(level: str, expected: bool) -> None:
    """The third version reads data of the second, which wrote `note`, and not that of the first."""
    assert accepts(level, ORDER, ORDER_WITH_DEFAULT, ORDER_WITHOUT_DEFAULT) is expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"int"', '"long"', True),
        ('"long"', '"int"', False),
        ('"string"', '"bytes"', True),
        ('"int"', '["null","int"]', True),
        ('["null","int"]', '"int"', False),
        ('{"type":"enum","name":"E","symbols":["A","B"]}', '{"type":"enum","name":"E","symbols":["A"]}', False),
        (
            '{"type":"enum","name":"E","symbols":["A","B"]}',
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}',
            True,
        ),
        ('{"type":"fixed","name":"F","size":2}', '{"type":"fixed","name":"F","size":3}', False),
        ('{"type":"array","items":"int"}', '{"type":"array","items":"string"}', False),
        ('{"type":"map","values":"int"}', '{"type":"map","values":"double"}', True),
        ('{"type":"long","logicalType":"timestamp-millis"}', '{"type":"long","logicalType":"unheard-of"}', True),
    ],
)
def test_rules_of_avro(old: str, new: str, expected: bool) -> None:
    """Avro's specification, "Schema Resolution"; logical types do not count there."""
    assert accepts("BACKWARD", old, new) is expected


def named(name: str, *aliases: str, namespace: str = "shop") -> str:
    field = {"name": "id", "type": "long"}
    fields = {"type": "record", "name": name, "namespace": namespace, "aliases": list(aliases), "fields": [field]}
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (named("Order"), False),
        (named("Order", "Purchase"), True),
        (named("Order", "shop.Purchase"), True),
        (named("Order", "store.Purchase"), False),
        (named("Order", "Purchase", namespace="store"), False),
    ],
)
def test_an_alias_without_a_namespace_has_that_of_its_schema(new: str, expected: bool) -> None:
    """Avro's specification, "Aliases"; Apache's package for Python takes each alias for a full name."""
    assert accepts("BACKWARD", named("Purchase"), new) is expected


def test_errors_are_compared_as_records() -> None:
    """Apache's package for Python fails with "Unknown schema type: error"."""
    error = '{"type":"error","name":"E","fields":[{"name":"code","type":"int"}]}'
    assert accepts("BACKWARD", error, error.replace('"int"', '"long"'))
    assert not accepts("BACKWARD", error, error.replace('"int"', '"string"'))


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("int", 1, True),
        ("int", "1", False),
        ("int", True, False),
        ("int", 2**31, False),
        ("long", 2**31, True),
        ("double", 1, True),
        ("string", None, False),
        ("bytes", "\u00ff", True),
        ("boolean", False, True),
        (["null", "string"], None, True),
        (["string", "null"], None, True),
        (["null", "string"], 5, False),
        ({"type": "array", "items": "int"}, [1], True),
        ({"type": "array", "items": "int"}, ["a"], False),
        ({"type": "map", "values": "int"}, {"a": 1}, True),
        ({"type": "map", "values": "int"}, {}, True),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", True),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}, True),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {}, False),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 1}]}, {}, True),
        ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "R", "default": {}}]}, {}, False),
        ({"type": "array", "items": {"type": "record", "name": "I", "fields": [
            {"name": "x", "type": "int", "default": "a"}]}}, [], False),
    ],
)  # fmt: skip
def test_a_default_that_is_not_of_its_type_is_no_schema(kind: Any, default: Any, expected: bool) -> None:
    """RestApiTest.testRegisterBadDefault: Java's parser refuses it (42201), Apache's package for Python does not."""
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, "default": default}]})
    if expected:
        assert Core().register("a", text) == 1
        return
    with pytest.raises(RegistryError, match="default of the field") as caught:
        Core().register("a", text)
    assert caught.value.code == 42201


def test_schemas_that_contain_themselves() -> None:
    tree = '{"type":"record","name":"T","fields":[{"name":"next","type":["null","T"]}]}'
    assert accepts("FULL", tree, tree.replace('["null","T"]', '["null","T"],"default":null'))


def test_references_are_read_as_what_they_name() -> None:
    core = Core()
    core.register("order", ORDER)
    core.ask("PUT", "/config/order", {"compatibility": "NONE"})
    core.register("order", ORDER.replace('"long"', '"string"'))
    cart = '{"type":"record","name":"Cart","fields":[{"name":"order","type":"shop.Order"}]}'
    named = [{"name": "shop.Order", "subject": "order", "version": 1}]
    core.register("cart", cart, references=named)
    other = {"schema": cart, "references": [{**named[0], "version": 2}]}
    found = core.ask("POST", "/compatibility/subjects/cart/versions/latest", other, verbose=True)
    assert found["is_compatible"] is False
    assert "string" in found["messages"][0]


def test_a_check_says_why_if_it_is_asked_to() -> None:
    """POST /compatibility/...?verbose=true: messages, for a text that is no schema, too; without: 42201."""
    core = Core()
    core.register("a", ORDER)
    assert core.ask("POST", "/compatibility/subjects/a/versions/1", {"schema": ORDER}, verbose=True) == {
        "is_compatible": True,
        "messages": [],
    }
    found = core.ask("POST", "/compatibility/subjects/a/versions", {"schema": "{"}, verbose=True)
    assert found["is_compatible"] is False
    assert found["messages"][0].startswith("Invalid schema")
    with pytest.raises(RegistryError) as caught:
        core.ask("POST", "/compatibility/subjects/a/versions", {"schema": "{"})
    assert caught.value.code == 42201
    assert core.ask("POST", "/compatibility/subjects/new/versions/latest", {"schema": ORDER}) == {"is_compatible": True}


@pytest.mark.parametrize(("kind", "first", "second"), [("JSON", "{}", "true"), ("PROTOBUF", "a", "b")])
def test_types_without_a_check_are_refused_at_every_level_but_none(kind: str, first: str, second: str) -> None:
    """A registry that let them through would pass a test that production refuses: decision 0082."""
    core = Core()
    assert core.register("a", first, schemaType=kind) == 1
    assert core.register("a", f" {first} ", schemaType=kind) == 1, "the same schema is no change"
    for path in ("/subjects/a/versions", "/compatibility/subjects/a/versions"):
        with pytest.raises(RegistryError, match=r'PUT /config/a \{"compatibility": "NONE"\}') as caught:
            core.ask("POST", path, {"schema": second, "schemaType": kind})
        assert caught.value.code == 42203
    with pytest.raises(RegistryError, match="NONE"):
        core.ask("PUT", "/config/a", {"compatibility": "FULL"})
    core.ask("PUT", "/config/a", {"compatibility": "NONE"})
    assert core.register("a", second, schemaType=kind) == 2


def test_another_type_is_incompatible() -> None:
    core = Core()
    core.register("a", ORDER)
    with pytest.raises(RegistryError, match="of the type AVRO, this schema of the type JSON") as caught:
        core.register("a", "{}", schemaType="JSON")
    assert caught.value.code == 40901


def test_normalize_makes_one_schema_of_two_texts() -> None:
    core = Core()
    core.register("a", '{"type":"object","title":"T"}', schemaType="JSON", normalize=False)
    body = {"schema": '{"title":"T","type":"object"}', "schemaType": "JSON"}
    core.ask("PUT", "/config/b", {"compatibility": "NONE", "normalize": True})
    core.ask("PUT", "/config", {"normalize": True})
    core.ask("PUT", "/config/c", {"compatibility": "NONE"})
    core.ask("PUT", "/config/d", {"compatibility": "NONE", "normalize": False})
    for subject in "bcd":
        for text in ('{"type":"object","title":"T"}', body["schema"]):
            core.register(subject, text, schemaType="JSON")
    versions = {subject: core.ask("GET", f"/subjects/{subject}/versions") for subject in "bcd"}
    assert versions == {"b": [1], "c": [1], "d": [1, 2]}, "a subject's own setting counts before that of all"
    assert core.ask("POST", "/subjects/b", body, normalize=True)["version"] == 1


def test_a_comparison_that_would_take_minutes_is_refused() -> None:
    """Two unions of 1,000 records took Apache's package a minute, and the broker shares the process."""
    core = Core()

    def union(kind: str) -> str:
        named = [{"type": "record", "name": f"R{n}", "fields": [{"name": "x", "type": kind}]} for n in range(1000)]
        return json.dumps(named)

    core.register("a", union("int"))
    began = time.monotonic()
    with pytest.raises(RegistryError, match="too large to compare") as caught:
        core.register("a", union("string"))
    assert caught.value.code == 42209
    assert time.monotonic() - began < 30
