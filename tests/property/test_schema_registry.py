"""The registry's fold and rules with generated records and requests."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.schema_registry.answers import Request, find_route
from fencepost.schema_registry.changes import Decision
from fencepost.schema_registry.content import Content, canonical, identity
from fencepost.schema_registry.errors import RegistryError
from fencepost.schema_registry.records import Record
from fencepost.schema_registry.state import State

WORDS = st.sampled_from(
    ["keytype", "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "subject", "version", "magic", "id", "schema", "deleted",
     "references", "name", "type", "record", "enum", "fixed", "fields", "symbols", "size", "items", "array", "map",
     "values", "namespace", "a.b", "a", "b", "int", "string", "default", "aliases", "order", "logicalType", "mode",
     "compatibilityLevel"]
)  # fmt: skip
JSON = st.recursive(
    WORDS | st.integers(-2, 5) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=12,
)
AVRO = st.recursive(
    st.sampled_from(["int", "long", "string", "null", "a.R", "R"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(
            lambda name, space, types: {
                "type": "record",
                "name": name,
                **({} if space is None else {"namespace": space}),
                "fields": [{"name": f"f{number}", "type": one} for number, one in enumerate(types)],
            },
            st.sampled_from(["R", "S", "a.R", "a.b.T"]),
            st.sampled_from([None, "", "a", "a.b"]),
            st.lists(inner, max_size=3),
        ),
    ),
    max_leaves=6,
)
SUBJECTS = st.sampled_from(["s", "t"])
TEXTS = st.sampled_from(
    ['"int"', '"long"', '"string"', '{"type":"record","name":"R","fields":[]}',
     '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}']
)  # fmt: skip


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(st.lists(st.tuples(JSON.map(encoded) | st.binary(max_size=5), JSON.map(encoded) | st.none()), max_size=5))
def test_no_record_of_the_topic_breaks_the_fold(records: list[tuple[bytes, bytes | None]]) -> None:
    state = State()
    for key, value in records:
        try:
            state.apply(key, value)
        except ValueError:
            continue
    for one in state.all_versions():
        assert state.content(one.id).as_json()


@given(JSON)
def test_every_body_has_an_answer_or_a_refusal(body: Any) -> None:
    for path in ("/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions"):
        route, names = find_route("POST", path.strip("/").split("/"))
        for fields in (body if isinstance(body, dict) else {}, {"schema": json.dumps(body)}):
            status = 200
            try:
                assert route.answer(State(), Request(names, {}, fields)) is not None
            except RegistryError as error:
                status = error.status
            assert status in (200, 404, 409, 422)


@given(AVRO)
def test_the_canonical_form_of_a_canonical_form_is_itself(schema: Any) -> None:
    once = canonical(Content("AVRO", json.dumps(schema)))
    assert canonical(once) == once
    assert identity(Content("AVRO", json.dumps(schema, indent=3))) == once


def requests() -> st.SearchStrategy[tuple[str, str, dict[str, Any]]]:
    return st.one_of(
        st.tuples(st.just("POST"), SUBJECTS.map("/subjects/{}/versions".format), st.builds(dict, schema=TEXTS)),
        st.tuples(st.just("DELETE"), SUBJECTS.map("/subjects/{}".format), st.just({})),
        st.tuples(st.just("DELETE"), SUBJECTS.map("/subjects/{}/versions/latest".format), st.just({})),
        st.tuples(st.just("DELETE"), SUBJECTS.map("/subjects/{}/versions/1".format), st.just({})),
        st.tuples(
            st.just("PUT"),
            SUBJECTS.map("/config/{}".format),
            st.builds(dict, compatibility=st.sampled_from(["NONE", "FULL_TRANSITIVE"])),
        ),
    )


@settings(max_examples=150)
@given(st.lists(st.tuples(requests(), st.booleans()), max_size=14))
def test_the_topic_alone_tells_all_and_no_id_changes_its_schema(
    steps: list[tuple[tuple[str, str, dict[str, Any]], bool]],
) -> None:
    """After each step a process that reads the compacted topic gives the same answers; an id means one schema only."""
    state, log, meaning = State(), list[Record](), dict[int, str]()
    for (method, path, body), permanent in steps:
        route, names = find_route(method, path.strip("/").split("/"))
        try:
            found = route.answer(state, Request(names, {"permanent": [str(permanent)]}, body))
        except RegistryError:
            continue
        assert isinstance(found, Decision)
        for record in found.records:
            log.append(record)
            state.apply(*record)
        if method == "POST":
            number = found.answer["id"]
            assert meaning.setdefault(number, body["schema"]) == body["schema"], "an id was given again"
            assert state.content(number).text == body["schema"]
        newest = {one.key: offset for offset, one in enumerate(log)}
        other = State()
        for offset, one in enumerate(log):
            if newest[one.key] == offset and one.value is not None:
                other.apply(*one)
        assert [one.as_json() for one in other.all_versions()] == [one.as_json() for one in state.all_versions()]
        assert (other.max_id, other.levels) == (state.max_id, state.levels)


def test_a_generated_body_can_be_a_schema() -> None:
    """So that the test above is not one of refusals only."""
    route, names = find_route("POST", ["subjects", "s", "versions"])
    assert route.answer(State(), Request(names, {}, {"schema": '"int"'})).answer["id"] == 1
    with pytest.raises(RegistryError):
        route.answer(State(), Request(names, {}, {}))
