"""Registering, looking up and reading schemas: Confluent's API reference, and its KafkaSchemaRegistry.register."""

import json
from typing import Any

import pytest

from fencepost.schema_registry.errors import RegistryError
from fencepost.schema_registry.state import State
from tests.unit.schema_registry.core import ORDER, ORDER_WITH_DEFAULT, ORDER_WITHOUT_DEFAULT, Core


@pytest.fixture
def core() -> Core:
    return Core()


def refusal(core: Core, *args: Any, **more: Any) -> tuple[int, str]:
    with pytest.raises(RegistryError) as caught:
        core.ask(*args, **more)
    return caught.value.code, str(caught.value)


def test_a_schema_has_one_id_in_all_subjects_and_a_version_in_each(core: Core) -> None:
    """POST /subjects/(subject)/versions: "the same schema registered under a different subject has the same id"."""
    assert core.register("a", ORDER) == 1
    assert core.register("a", ORDER_WITH_DEFAULT) == 2
    assert core.register("b", ORDER_WITH_DEFAULT) == 2
    assert core.register("a", ORDER) == 1, "it is a version of the subject already"
    assert core.ask("GET", "/subjects/a/versions") == [1, 2]
    assert core.ask("GET", "/subjects/b/versions") == [1]
    assert core.ask("GET", "/schemas/ids/2/versions") == [
        {"subject": "a", "version": 2},
        {"subject": "b", "version": 1},
    ]
    assert core.ask("GET", "/schemas/ids/2/subjects") == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(json.loads(ORDER), indent=2),
        '{"fields":[{"type":{"type":"long"},"name":"id"}],"name":"shop.Order","type":"record"}',
        ORDER.replace('"long"', '"long","order":"ascending"'),
    ],
    ids=["layout", "full name and order of attributes", "the default order of fields"],
)
def test_layout_makes_no_other_schema_of_avro(core: Core, text: str) -> None:
    """AvroSchema.canonicalString: what Java's Schema.toString writes."""
    core.register("a", ORDER)
    assert core.register("a", text) == 1
    assert core.ask("POST", "/subjects/a", {"schema": text})["version"] == 1
    assert core.ask("GET", "/schemas/ids/1") == {"schema": ORDER}


def test_what_differs_is_another_schema(core: Core) -> None:
    """Documentation, defaults and properties are part of AvroSchema.canonicalString."""
    core.ask("PUT", "/config", {"compatibility": "NONE"})
    texts = [ORDER, ORDER[:-1] + ',"doc":"an order"}', ORDER[:-1] + ',"owner":"shop"}', ORDER.replace("shop", "store")]
    assert [core.register("a", text) for text in texts] == [1, 2, 3, 4]


def test_records_are_those_of_confluent(core: Core) -> None:
    """SchemaKey, SchemaValue, ConfigKey, ConfigValue, ModeKey, DeleteSubjectKey: orders and names of their fields."""
    core.register("a", ORDER)
    core.ask("PUT", "/config/a", {"compatibility": "full"})
    core.ask("PUT", "/mode", {"mode": "READWRITE"})
    core.ask("DELETE", "/subjects/a")
    assert core.log == [
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            json.dumps(
                {"subject": "a", "version": 1, "id": 1, "schema": ORDER, "deleted": False}, separators=(",", ":")
            ).encode(),
        ),
        (
            b'{"keytype":"CONFIG","subject":"a","magic":0}',
            b'{"subject":"a","compatibilityLevel":"FULL"}',
        ),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"READWRITE"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"subject":"a","version":1}'),
    ]


def test_versions_are_asked_for_by_number_and_as_latest(core: Core) -> None:
    """GET /subjects/(subject)/versions/(version): 40401, 40402, 42202."""
    core.register("a", ORDER)
    core.register("a", ORDER_WITH_DEFAULT)
    latest = core.ask("GET", "/subjects/a/versions/latest")
    guid = latest.pop("guid")
    assert latest == {"subject": "a", "version": 2, "id": 2, "schema": ORDER_WITH_DEFAULT}
    assert core.ask("GET", "/subjects/a/versions/-1")["version"] == 2
    assert core.ask("GET", "/subjects/a/versions/1/schema") == ORDER
    assert core.ask("GET", f"/schemas/guids/{guid}") == {"schema": ORDER_WITH_DEFAULT}
    assert refusal(core, "GET", "/subjects/b/versions/1") == (40401, "Subject 'b' not found.")
    assert refusal(core, "GET", "/subjects/a/versions/3") == (40402, "Version 3 not found.")
    assert {refusal(core, "GET", f"/subjects/a/versions/{name}")[0] for name in ("0", "-2", "x", "2147483648")} == {
        42202
    }
    assert refusal(core, "GET", "/schemas/ids/3") == (40403, "Schema 3 not found")


def test_looking_up_tells_a_subject_from_a_schema_that_is_not_there(core: Core) -> None:
    """POST /subjects/(subject): 40401 and 40403."""
    core.register("a", ORDER)
    assert core.ask("POST", "/subjects/a", {"schema": ORDER})["id"] == 1
    assert refusal(core, "POST", "/subjects/a", {"schema": ORDER_WITH_DEFAULT})[0] == 40403
    assert refusal(core, "POST", "/subjects/b", {"schema": ORDER})[0] == 40401


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schema": 5},
        {"schema": ""},
        {"schema": "{"},
        {"schema": "[" * 100_000},
        {"schema": '{"type":"record","name":"R","fields":[{"name":"x","type":"Unknown"}]}'},
        {"schema": '{"type":"record","fields":[]}'},
        {"schema": "NaN"},
        {"schema": '{"maximum": 1e999}', "schemaType": "JSON"},
        {"schema": "[]", "schemaType": "JSON"},
        {"schema": "{}", "schemaType": "XML"},
        {"schema": ORDER, "references": [{"name": "x"}]},
        {"schema": ORDER, "references": "x"},
        {"schema": ORDER, "id": "7"},
        {"schema": ORDER, "version": 2},
    ],
    ids=str,
)
def test_what_is_no_schema_is_refused_with_the_cause(core: Core, body: dict[str, Any]) -> None:
    """42201: "Invalid schema", and "Version is not one more than previous version"."""
    code, text = refusal(core, "POST", "/subjects/a/versions", body)
    assert code == 42201
    assert len(text) > len("Invalid schema: ")
    assert core.log == []


@pytest.mark.parametrize("subject", [" ", ":.other:a", "__fencepost_max_id", "a\tb"])
def test_a_subject_of_another_context_is_refused(core: Core, subject: str) -> None:
    """QualifiedSubject.isValidSubject, 42208; this registry has the default context only."""
    assert refusal(core, "POST", f"/subjects/{subject}/versions", {"schema": ORDER})[0] == 42208


def test_the_default_context_may_be_named(core: Core) -> None:
    """QualifiedSubject: ":.:a" is "a"."""
    assert core.register(":.:a", ORDER) == 1
    assert core.ask("GET", "/subjects", subjectPrefix=[":*:"]) == ["a"]


def test_references_are_resolved_and_protect_what_they_name(core: Core) -> None:
    """Schema references: 42201 if the version is not there, 42206 if a schema that is named shall be deleted."""
    cart = '{"type":"record","name":"Cart","namespace":"shop","fields":[{"name":"order","type":"Order"}]}'
    to_order = [{"name": "shop.Order", "subject": "order", "version": 1}]
    assert refusal(core, "POST", "/subjects/cart/versions", {"schema": cart, "references": to_order})[0] == 40401
    core.register("order", ORDER)
    assert refusal(core, "POST", "/subjects/cart/versions", {"schema": cart})[0] == 42201
    assert core.register("cart", cart, references=to_order) == 2
    assert core.ask("GET", "/schemas/ids/2")["references"] == to_order
    assert core.ask("GET", "/subjects/order/versions/1/referencedby") == [2]
    assert refusal(core, "DELETE", "/subjects/order") == (
        42206,
        "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=order,version=1}.",
    )
    assert refusal(core, "DELETE", "/subjects/order/versions/1")[0] == 42206
    core.ask("DELETE", "/subjects/cart")
    assert core.ask("DELETE", "/subjects/order") == [1]
    assert refusal(core, "DELETE", "/subjects/order", permanent=True)[0] == 42206, "a soft-deleted one may come back"


def test_of_references_with_one_name_the_first_counts(core: Core) -> None:
    """AbstractSchemaProvider.resolveReferences: two schemas may each name another version of a third one."""
    for schema in (ORDER, ORDER_WITH_DEFAULT):
        core.register("order", schema)
    for number in (1, 2):
        holder = f'{{"type":"record","name":"H{number}","namespace":"shop","fields":[{{"name":"o","type":"Order"}}]}}'
        order = {"name": "shop.Order", "subject": "order", "version": number}
        core.register(f"h{number}", holder, references=[order])
    both = '{"type":"record","name":"shop.Both","fields":[{"name":"a","type":"H1"},{"name":"b","type":"H2"}]}'
    references = [{"name": f"shop.H{number}", "subject": f"h{number}", "version": 1} for number in (1, 2)]
    assert core.register("both", both, references=references) == 5
    others = [{"name": f"order{number}", "subject": "order", "version": number} for number in (1, 2)]
    assert refusal(core, "POST", "/subjects/x/versions", {"schema": both, "references": others})[0] == 42201


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (
            '{"type":"record","name":"shop.Order","doc":"d","aliases":["X"],"fields":[{"name":"id","type":"long"}]}',
            True,
        ),
        ('{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"long","order":"ignore"}]}', False),
        ('{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"long","default":0}]}', False),
        (ORDER_WITH_DEFAULT, False),
    ],
)
def test_a_type_may_be_defined_again_if_it_is_alike(core: Core, other: str, alike: bool) -> None:
    """ParseContext.put and Schema.equals of Avro 1.12: "Can't redefine", unless they differ in doc or aliases only."""
    pair = f'{{"type":"record","name":"Pair","fields":[{{"name":"a","type":{ORDER}}},{{"name":"b","type":{other}}}]}}'
    if alike:
        assert core.register("pair", pair) == 1
        return
    code, text = refusal(core, "POST", "/subjects/pair/versions", {"schema": pair})
    assert (code, "shop.Order is defined twice" in text) == (42201, True)


def test_a_reference_to_the_latest_version_is_kept_with_its_number(core: Core) -> None:
    """AbstractSchemaProvider.resolveReferences: -1 becomes the latest version."""
    core.register("order", ORDER)
    core.register("order", ORDER_WITH_DEFAULT)
    cart = '{"type":"record","name":"Cart","namespace":"shop","fields":[{"name":"order","type":"Order"}]}'
    found = core.register("cart", cart, references=[{"name": "shop.Order", "subject": "order", "version": -1}])
    assert core.ask("GET", f"/schemas/ids/{found}")["references"][0]["version"] == 2


def test_lists_are_cut_by_prefix_and_page(core: Core) -> None:
    """GET /subjects and /schemas: subjectPrefix, deleted, deletedOnly, latestOnly, offset, limit."""
    for subject in ("a-1", "a-2", "b-1"):
        core.register(subject, ORDER)
    core.register("a-1", ORDER_WITH_DEFAULT)
    core.ask("DELETE", "/subjects/a-2")
    assert core.ask("GET", "/subjects", subjectPrefix="a-") == ["a-1"]
    assert core.ask("GET", "/subjects", deleted=True) == ["a-1", "a-2", "b-1"]
    assert core.ask("GET", "/subjects", deletedOnly=True) == ["a-2"]
    assert core.ask("GET", "/subjects", deleted=True, offset=1, limit=1) == ["a-2"]
    found = core.ask("GET", "/schemas", latestOnly=True)
    assert [(one["subject"], one["version"]) for one in found] == [("a-1", 2), ("b-1", 1)]
    assert len(core.ask("GET", "/schemas", deleted=True)) == 4


def test_metadata_finds_a_version(core: Core) -> None:
    """GET /subjects/(subject)/metadata: the newest version whose properties include those that are asked for."""
    core.register("a", ORDER, metadata={"properties": {"owner": "shop"}})
    core.register("a", ORDER, metadata={"properties": {"owner": "store"}})
    assert core.ask("GET", "/subjects/a/metadata", key=["owner"], value=["shop"])["version"] == 1
    assert refusal(core, "GET", "/subjects/a/metadata", key=["owner"], value=["nobody"])[0] == 40403


def test_text_that_is_no_json_needs_the_format_in_which_it_was_registered(core: Core) -> None:
    """`format=serialized`: Python registers Protobuf as the bytes of a descriptor; text needs a compiler."""
    core.register("text", 'syntax = "proto3";', schemaType="PROTOBUF")
    core.register("bytes", "CgVhLnByb3Rv", schemaType="PROTOBUF")
    assert refusal(core, "GET", "/schemas/ids/1", format=["serialized"])[0] == 42201
    assert core.ask("GET", "/schemas/ids/2", format=["serialized"])["schema"] == "CgVhLnByb3Rv"
    assert core.ask("GET", "/schemas/ids/1") == {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'}


def test_paths_that_are_unknown(core: Core) -> None:
    """404 and 405, as every server of HTTP has them."""
    assert refusal(core, "GET", "/nothing")[0] == 404
    assert refusal(core, "PATCH", "/subjects")[0] == 405
    assert refusal(core, "GET", "/schemas/ids/x")[0] == 404
    assert core.ask("GET", "/contexts") == ["."]
    assert core.ask("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]


def test_a_change_that_readers_could_not_read_is_not_recorded(core: Core) -> None:
    """409, 40901: "Schema being registered is incompatible with an earlier schema"."""
    core.register("a", ORDER)
    code, text = refusal(core, "POST", "/subjects/a/versions", {"schema": ORDER_WITHOUT_DEFAULT})
    assert code == 40901
    assert "note" in text
    assert "compatibility: 'BACKWARD'" in text
    assert len(core.log) == 1


@pytest.mark.parametrize("name", ["content-type", "a.b", "1", "a b"])
def test_a_field_whose_name_java_refuses_is_refused(core: Core, name: str) -> None:
    """Avro's specification: a name matches [A-Za-z_][A-Za-z0-9_]*. Apache's package for Python accepts any field's."""
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]}
    code, text = refusal(core, "POST", "/subjects/a/versions", {"schema": json.dumps(schema)})
    assert (code, f"{name!r} is no name of Avro" in text) == (42201, True)


def test_a_namespace_may_be_any_text_as_in_java(core: Core) -> None:
    """schema_registry_converter 100: such schemas are in Confluent's registries; Java checks no namespace."""
    schema = {"type": "record", "name": "Envelope", "namespace": "abc-123.u_table", "fields": []}
    assert core.register("a", json.dumps(schema)) == 1
    changed = {**schema, "fields": [{"name": "id", "type": "int", "default": 0}]}
    assert core.register("a", json.dumps(changed)) == 2


def test_an_id_that_was_given_away_is_not_given_again_though_its_record_is_lost() -> None:
    """As when the topic is deleted behind the append and before the registry has read it back."""
    core = Core()
    core.register("a", ORDER)
    state = State()
    state.reserve(core.log)
    assert (state.next_id, state.subjects()) == (2, [])
