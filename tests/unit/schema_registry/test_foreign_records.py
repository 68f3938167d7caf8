"""What other programs wrote into `_schemas`: another registry's records count, and nothing else does harm."""

import json

import pytest

from fencepost.schema_registry.records import Record, compact
from fencepost.schema_registry.state import State
from tests.unit.schema_registry.core import ORDER, ORDER_WITH_DEFAULT, Core

KEY = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
VALUE = {"subject": "a", "version": 1, "id": 5, "schema": ORDER, "deleted": False}


def test_records_of_confluents_registry_are_understood() -> None:
    """SchemaValue with what newer versions add: `md5`, `offset`, `ts`; Avro as Java writes it; NOOP and CONFIG."""
    noop = Record(b'{"keytype":"NOOP","magic":0}', None)
    config = Record(
        b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"subject":null,"compatibilityLevel":"FORWARD"}'
    )
    core = Core([noop, Record(KEY, compact({**VALUE, "md5": "x", "ts": 1, "ruleSet": None})), config])
    assert core.ask("GET", "/subjects/a/versions/1")["id"] == 5
    assert core.ask("GET", "/config") == {"compatibilityLevel": "FORWARD"}
    assert core.register("b", json.dumps(json.loads(ORDER), indent=1)) == 5, "the same schema in another layout"
    assert core.register("b", ORDER_WITH_DEFAULT) == 6


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"\xff\xfe", b"{}"),
        (b"[" * 100_000, b"{}"),
        (b"7", b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype":"NEWS","magic":0}', b"{}"),
        (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"BOGUS"}'),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"mode":["READONLY"]}'),
        (b'{"keytype":"CONFIG","subject":"a","magic":0}', b'{"compatibilityLevel":["NONE"]}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":9}', compact(VALUE)),
        (b'{"keytype":"SCHEMA","subject":"a","version":true,"magic":1}', compact(VALUE)),
        (b'{"keytype":"SCHEMA","subject":"a","magic":1}', compact(VALUE)),
        (b'{"keytype":"SCHEMA","subject":":.x:a","version":1,"magic":1}', compact(VALUE)),
        (KEY, b"not JSON"),
        (KEY, b"null"),
        (KEY, compact({**VALUE, "id": None})),
        (KEY, compact({**VALUE, "schema": 7})),
        (KEY, compact({**VALUE, "references": [{"name": "x"}]})),
        (b'{"keytype":"CONFIG","magic":0}', b"7"),
        (b'{"keytype":"MODE","magic":0}', b"{"),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"version":"all"}'),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_record_of_no_registry_is_refused_and_changes_nothing(key: bytes | None, value: bytes) -> None:
    state = State()
    state.apply(KEY, compact(VALUE))
    with pytest.raises(ValueError, match=r"\w"):
        state.apply(key, value)
    assert [one.as_json() for one in state.all_versions()] == [
        {"subject": "a", "version": 1, "id": 5, "guid": state.version("a", 1).content.guid, "schema": ORDER}
    ]
    assert (state.levels, state.modes) == ({}, {})


def test_an_id_stays_with_the_schema_that_had_it_first() -> None:
    """KafkaStoreMessageHandler: "Found a schema with duplicate ID"; so two registries that write at once agree."""
    state = State()
    state.apply(KEY, compact(VALUE))
    other = b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}'
    with pytest.raises(ValueError, match="its id 5 belongs to another schema"):
        state.apply(other, compact({**VALUE, "subject": "b", "schema": ORDER_WITH_DEFAULT}))
    assert state.subjects() == ["a"]
    assert state.current(other) == Record(other, None)
    assert state.current(KEY).key == KEY
    assert json.loads(state.current(KEY).value or b"") == VALUE


def test_a_schema_that_cannot_be_parsed_is_still_served() -> None:
    core = Core([Record(KEY, compact({**VALUE, "schema": "not a schema"}))])
    assert core.ask("GET", "/schemas/ids/5") == {"schema": "not a schema"}
