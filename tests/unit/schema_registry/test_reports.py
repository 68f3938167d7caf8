"""What went wrong in other registries, by their public reports, replayed here."""

import json

import pytest

from fencepost.schema_registry.errors import RegistryError
from fencepost.schema_registry.records import Record, compact
from tests.unit.schema_registry.core import ORDER, Core

LEGACY_KEY = b'{"magic":0,"version":1,"subject":"a","keytype":"SCHEMA"}'


def test_a_key_in_other_bytes_does_not_bring_a_deleted_schema_back() -> None:
    """confluentinc/schema-registry#4420: only a key's newest bytes were deleted; compaction kept the others."""
    old = {"subject": "a", "version": 1, "id": 1, "schema": ORDER, "deleted": False}
    written_again = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    for log in ([Record(LEGACY_KEY, compact(old))], [Record(key, compact(old)) for key in (LEGACY_KEY, written_again)]):
        core = Core(log)
        core.ask("DELETE", "/subjects/a/versions/1")
        core.ask("DELETE", "/subjects/a/versions/1", permanent=True)
        assert core.compacted().ask("GET", "/subjects", deleted=True) == []


def test_a_schema_that_comes_back_does_not_take_away_what_others_name() -> None:
    """confluentinc/schema-registry#4277: a new version with the id of an old one removed the old one for good."""
    core = Core()
    core.register("order", ORDER)
    cart = '{"type":"record","name":"Cart","fields":[{"name":"order","type":"shop.Order"}]}'
    named = [{"name": "shop.Order", "subject": "order", "version": 1}]
    core.register("cart", cart, references=named)
    core.ask("DELETE", "/subjects/cart")
    core.ask("DELETE", "/subjects/order")
    assert core.register("order", ORDER) == 1
    assert core.ask("GET", "/subjects/order/versions", deleted=True) == [1, 2]
    assert core.register("cart", cart, references=named) == 2


def test_an_id_that_a_deleted_schema_shares_with_a_living_one_is_no_conflict() -> None:
    """confluentinc/schema-registry#2430: after a restore, registering failed with 42205, "Overwrite new schema"."""
    core = Core()
    core.register("mine", ORDER)
    core.register("other", ORDER)
    core.ask("DELETE", "/subjects/mine")
    again = core.restarted()
    assert again.register("mine", ORDER) == 1
    assert again.ask("GET", "/subjects/mine/versions") == [2]


def test_a_full_name_is_a_name_and_a_namespace() -> None:
    """Aiven-Open/karapace#422: a program that writes full names was refused as incompatible with one that does not."""
    core = Core()
    apart = {"type": "record", "name": "baz", "namespace": "foo.bar", "fields": [{"name": "d", "type": "string"}]}
    joined = {"type": "record", "name": "foo.bar.baz", "fields": [{"name": "d", "type": "string"}]}
    assert core.register("test-value", json.dumps(apart)) == core.register("test-value", json.dumps(joined))


def test_a_version_has_the_documented_fields_and_no_others() -> None:
    """Aiven-Open/karapace#435: a field "compatibility" broke Java's client, for subjects with a level of their own."""
    core = Core()
    core.register("ourtopic-key", ORDER)
    core.ask("PUT", "/config/ourtopic-key", {"compatibility": "FULL"})
    found = core.ask("GET", "/subjects/ourtopic-key/versions/latest")
    assert set(found) == {"subject", "version", "id", "guid", "schema"}


def test_a_record_may_be_called_record() -> None:
    """Aiven-Open/karapace#326: Python's Avro refused the names that Flink generates."""
    assert Core().register("flink", '{"type":"record","name":"record","fields":[]}') == 1


def test_a_change_within_a_union_is_seen() -> None:
    """confluentinc/schema-registry#253: a field without a default in a record in a union passed as compatible."""
    core = Core()
    old = '[{"type":"record","name":"myrecord","fields":[{"name":"f1","type":"string"}]}]'
    core.register("a", old)
    core.register("a", old.replace("}]}]", '},{"name":"f2","type":"string","default":""}]}]'))
    core.ask("DELETE", "/subjects/a/versions/2")
    with pytest.raises(RegistryError) as caught:
        core.register("a", old.replace("}]}]", '},{"name":"f2","type":"string"}]}]'))
    assert caught.value.code == 40901
