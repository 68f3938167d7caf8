"""Deleting, levels and modes: KafkaSchemaRegistry.deleteSubject, deleteSchemaVersion, setMode and updateConfig."""

import pytest

from fencepost.schema_registry.errors import RegistryError
from tests.unit.schema_registry.core import ORDER, ORDER_WITH_DEFAULT, Core, keys_of


@pytest.fixture
def core() -> Core:
    made = Core()
    made.register("a", ORDER)
    made.register("a", ORDER_WITH_DEFAULT)
    return made


def code_of(core: Core, *args: object, **more: object) -> int:
    with pytest.raises(RegistryError) as caught:
        core.ask(*args, **more)  # type: ignore[arg-type]
    return caught.value.code


def test_a_version_is_deleted_softly_then_for_good(core: Core) -> None:
    """40406, 40407, 40402: the order in which a version may go."""
    assert code_of(core, "DELETE", "/subjects/a/versions/1", permanent=True) == 40407
    assert core.ask("DELETE", "/subjects/a/versions/1") == 1
    assert code_of(core, "DELETE", "/subjects/a/versions/1") == 40406
    assert code_of(core, "GET", "/subjects/a/versions/1") == 40402
    assert core.ask("GET", "/subjects/a/versions/1", deleted=True)["id"] == 1
    assert core.ask("GET", "/schemas/ids/1")["schema"] == ORDER, "consumers may still have its data"
    assert core.ask("DELETE", "/subjects/a/versions/1", permanent=True) == 1
    assert code_of(core, "GET", "/schemas/ids/1") == 40403
    assert core.ask("DELETE", "/subjects/a/versions/latest") == 2


def test_a_subject_is_deleted_softly_then_for_good(core: Core) -> None:
    """40404, 40405, 40401."""
    core.ask("PUT", "/config/a", {"compatibility": "NONE"})
    assert code_of(core, "DELETE", "/subjects/a", permanent=True) == 40405
    assert core.ask("DELETE", "/subjects/a") == [1, 2]
    assert code_of(core, "DELETE", "/subjects/a") == 40404
    assert core.ask("GET", "/subjects") == []
    assert core.ask("GET", "/subjects/a/versions", deleted=True) == [1, 2]
    assert core.ask("DELETE", "/subjects/a", permanent=True) == [1, 2]
    assert code_of(core, "DELETE", "/subjects/a", permanent=True) == 40401
    assert code_of(core, "GET", "/config/a") == 40408, "its level went with it"


def test_a_schema_that_comes_back_has_its_id_and_a_new_version(core: Core) -> None:
    """register(): "see if the schema to be registered already exists", soft-deleted ones included."""
    core.ask("DELETE", "/subjects/a")
    assert core.register("a", ORDER) == 1
    assert core.ask("GET", "/subjects/a/versions") == [3]


def test_numbers_are_not_given_again(core: Core) -> None:
    """Ids of records in topics would become those of other schemas: after a restart and after compaction, too."""
    core.ask("DELETE", "/subjects/a")
    core.ask("DELETE", "/subjects/a", permanent=True)
    for later in (core, core.restarted(), core.compacted()):
        assert later.register("b", ORDER) == 3


def test_a_restart_finds_everything_again(core: Core) -> None:
    core.ask("PUT", "/config/a", {"compatibility": "FULL"})
    core.ask("PUT", "/mode/a", {"mode": "READONLY"})
    for path in ("/schemas", "/config/a", "/mode/a", "/subjects/a/versions/latest"):
        assert core.restarted().ask("GET", path) == core.compacted().ask("GET", path) == core.ask("GET", path)


def test_levels_are_of_a_subject_or_of_all(core: Core) -> None:
    """GET, PUT, DELETE /config: 40408, 42203, defaultToGlobal; the default is BACKWARD."""
    assert core.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert core.ask("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert code_of(core, "GET", "/config/a") == 40408
    assert core.ask("GET", "/config/a", defaultToGlobal=True) == {"compatibilityLevel": "FULL"}
    core.ask("PUT", "/config/a", {"compatibility": "NONE"})
    assert core.ask("GET", "/config/a") == {"compatibilityLevel": "NONE"}
    assert core.ask("DELETE", "/config/a") == {"compatibilityLevel": "NONE"}
    assert code_of(core, "DELETE", "/config/a") == 40401
    assert {
        code_of(core, "PUT", "/config", body) for body in ({"compatibility": "SOME"}, {}, {"compatibility": 1})
    } == {42203}
    assert code_of(core, "PUT", "/config", {"alias": "b"}) == 42205, "what it would not do, it does not accept"
    assert core.ask("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert core.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_a_subject_that_is_readonly_does_not_change(core: Core) -> None:
    """checkRegisterMode and isReadOnlyMode, 42205; 40409, 42204."""
    assert code_of(core, "GET", "/mode/a") == 40409
    assert core.ask("GET", "/mode/a", defaultToGlobal=True) == {"mode": "READWRITE"}
    assert code_of(core, "PUT", "/mode", {"mode": "SOMETIMES"}) == 42204
    assert core.ask("PUT", "/mode/a", {"mode": "READONLY"}) == {"mode": "READONLY"}
    body = {"schema": ORDER}
    for asked in (
        ("POST", "/subjects/a/versions", body),
        ("DELETE", "/subjects/a"),
        ("DELETE", "/subjects/a/versions/1"),
        ("PUT", "/config/a", {"compatibility": "NONE"}),
    ):
        assert code_of(core, *asked) == 42205
    assert core.ask("POST", "/subjects/a", body)["id"] == 1
    assert core.register("b", ORDER) == 1
    assert core.ask("DELETE", "/mode/a") == {"mode": "READONLY"}
    assert core.register("a", ORDER) == 1


def test_an_import_keeps_ids_and_versions(core: Core) -> None:
    """Mode IMPORT: ids and versions are the client's, no level counts, and the next id is beyond the highest."""
    assert code_of(core, "POST", "/subjects/b/versions", {"schema": ORDER, "id": 7}) == 42205
    assert code_of(core, "PUT", "/mode", {"mode": "IMPORT"}) == 42205, "there are subjects"
    core.ask("PUT", "/mode/b", {"mode": "import"})
    assert core.register("b", '"string"', id=70, version=5) == 70
    assert core.register("b", '"long"', id=60, version=4) == 60
    assert code_of(core, "POST", "/subjects/b/versions", {"schema": '"bytes"', "id": 70}) == 42205
    assert code_of(core, "POST", "/subjects/b/versions", {"schema": '"bytes"'}) == 42205, "without an id"
    assert core.ask("GET", "/subjects/b/versions") == [4, 5]
    assert core.ask("PUT", "/mode/b", {"mode": "READWRITE"}) == {"mode": "READWRITE"}
    assert core.register("c", '"bytes"') == 71


def test_an_import_of_all_begins_without_what_was_deleted(core: Core) -> None:
    """setMode: "Hard delete any remaining versions"; a reference from elsewhere forbids it."""
    core.ask("DELETE", "/subjects/a")
    core.ask("PUT", "/mode", {"mode": "IMPORT"})
    assert core.ask("GET", "/subjects", deleted=True) == []
    assert core.register("a", ORDER, id=1, version=1) == 1


def test_the_highest_id_is_the_last(core: Core) -> None:
    """Ids have four bytes in front of each record."""
    core.ask("PUT", "/mode/b", {"mode": "IMPORT"})
    core.register("b", '"string"', id=2**31 - 1)
    assert code_of(core, "POST", "/subjects/a/versions", {"schema": ORDER.replace('"long"', '["long","int"]')}) == 42205


def test_nothing_is_written_for_what_is_there(core: Core) -> None:
    """Confluent's issue 1080: each new registration wrote all old versions again."""
    core.ask("DELETE", "/subjects/a")
    core.register("a", ORDER)
    before = len(core.log)
    core.register("a", ORDER)
    assert len(core.log) == before
    assert [key.get("version") for key in keys_of(core)] == [1, 2, None, 3]
