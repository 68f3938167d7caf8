"""What the registry knows: the fold of the records of `_schemas`. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from fencepost.schema_registry.compatibility import DEFAULT_LEVEL, LEVELS
from fencepost.schema_registry.content import INT_MAX, Content, Reference, identity, whole_number
from fencepost.schema_registry.errors import not_permitted, schema_not_found, subject_not_found, version_not_found
from fencepost.schema_registry.records import (
    IDS_SUBJECT,
    Record,
    SchemaKey,
    SubjectKey,
    Version,
    read_fields,
    read_key,
    read_version,
)

LATEST: Final = -1
READWRITE, READONLY, IMPORT = "READWRITE", "READONLY", "IMPORT"
MODES: Final = (READWRITE, READONLY, IMPORT)
CONTEXT_PREFIX: Final = ":."
"""Subjects of a context other than the default one, in which ids begin again. This registry has none."""


class State:
    """Subjects, ids, levels and modes. `apply` changes it, all else reads it."""

    def __init__(self, max_id: int = 0) -> None:
        self.max_id = max_id
        """The highest id that was ever given away; it does not go down."""
        self.levels: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self._subjects: dict[str, dict[int, Version]] = {}
        self._places: dict[int, dict[SchemaKey, None]] = {}
        """Where each id is used, the oldest place first."""
        self._ids: dict[Content, dict[int, None]] = {}
        """The ids of each schema, by its identity: one, unless another was imported."""

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Fold one record. Raises ValueError, and keeps nothing but its id, if the record is none of a registry."""
        match read_key(key):
            case SchemaKey() as place:
                self._apply_schema(place, None if value is None else read_version(place, key or b"", value))
            case SubjectKey("CONFIG", subject):
                fields = {} if value is None else read_fields(value)
                if fields.get("compatibilityLevel") not in (None, *LEVELS):
                    raise ValueError(f"its level {fields['compatibilityLevel']!r} is unknown")
                _put(self.levels, subject, {name: fields[name] for name in fields if name != "subject"})
            case SubjectKey("MODE", subject):
                mode = None if value is None else read_fields(value).get("mode")
                if mode not in (None, "", *MODES):
                    raise ValueError(f"its mode {mode!r} is unknown")
                _put(self.modes, subject, mode)
            case SubjectKey("DELETE_SUBJECT", str(subject)) if value is not None:
                self._delete_until(subject, whole_number(read_fields(value).get("version"), 0))
            case SubjectKey("NOOP" | "CLEAR_SUBJECT" | "DELETE_SUBJECT" | "CONTEXT" | "ASSOC"):
                pass  # nothing that this registry keeps
            case SubjectKey(kind):
                raise ValueError(f"its keytype {kind!r} is unknown")

    def reserve(self, records: Sequence[Record]) -> None:
        """Give away the ids in these records, whatever becomes of the records."""
        made = State()
        for key, value in records:
            made.apply(key, value)
        self.max_id = max(self.max_id, made.max_id)

    def _apply_schema(self, place: SchemaKey, new: Version | None) -> None:
        if place.subject.startswith(CONTEXT_PREFIX):
            raise ValueError("its subject is of another context, which this registry does not have")
        if new is not None:
            self.max_id = max(self.max_id, new.id)
            known = self.find_content(new.id)
            if known is not None and identity(known) != identity(new.content):
                raise ValueError(f"its id {new.id} belongs to another schema")
        numbers = self._subjects.setdefault(place.subject, {})
        former = numbers.pop(place.number, None)
        self._remove(former)
        if new is not None:
            keys = () if former is None else tuple(key for key in former.keys if key not in new.keys)
            numbers[place.number] = new._replace(keys=keys + new.keys)
            self._places.setdefault(new.id, {})[place] = None
            self._ids.setdefault(identity(new.content), {})[new.id] = None
        if not numbers:
            del self._subjects[place.subject]

    def _remove(self, old: Version | None) -> None:
        if old is None:
            return
        places = self._places[old.id]
        del places[SchemaKey(old.subject, old.number)]
        if not places:
            del self._places[old.id]
            ids = self._ids[identity(old.content)]
            del ids[old.id]
            if not ids:
                del self._ids[identity(old.content)]

    def _delete_until(self, subject: str, last: int) -> None:
        if subject == IDS_SUBJECT:
            self.max_id = max(self.max_id, last)
        numbers = self._subjects.get(subject, {})
        for number in [number for number in numbers if number <= last]:
            numbers[number] = numbers[number]._replace(deleted=True)

    def subjects(self, prefix: str = "", *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """The names with at least one version that counts, in order. `deleted` counts soft-deleted ones, too."""
        return sorted(
            name
            for name, numbers in self._subjects.items()
            if name.startswith(prefix)
            and any(deleted or not one.deleted for one in numbers.values())
            and not (deleted_only and not all(one.deleted for one in numbers.values()))
        )

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, the oldest first; empty if there are none."""
        numbers = self._subjects.get(subject, {})
        return [numbers[number] for number in sorted(numbers) if deleted or not numbers[number].deleted]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """One version of a subject, or its LATEST. Raises RegistryError."""
        found = self.versions(subject, deleted=deleted)
        if not found:
            raise subject_not_found(subject)
        if number == LATEST:
            return found[-1]
        for one in found:
            if one.number == number:
                return one
        raise version_not_found(number)

    def content(self, number: int) -> Content:
        """The schema of an id, also if it is soft-deleted. Raises RegistryError."""
        found = self.find_content(number)
        if found is None:
            raise schema_not_found(number)
        return found

    def find_content(self, number: int) -> Content | None:
        """The schema of an id, None if there is none."""
        place = next(iter(self._places.get(number, ())), None)
        return None if place is None else self._subjects[place.subject][place.number].content

    def places(self, number: int) -> list[Version]:
        """The versions that have an id, also soft-deleted ones. Raises RegistryError if there are none."""
        if number not in self._places:
            raise schema_not_found(number)
        return [self._subjects[place.subject][place.number] for place in self._places[number]]

    def ids_of(self, content: Content) -> list[int]:
        """The ids of this schema, in whatever subject and layout it was registered."""
        return list(self._ids.get(identity(content), ()))

    def all_versions(self) -> Iterator[Version]:
        """Every version, also soft-deleted ones, by subject and number."""
        for subject in sorted(self._subjects):
            yield from self.versions(subject, deleted=True)

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[Version]:
        """The versions that name this one as a reference."""
        place = (subject, number)
        return [
            one
            for one in self.all_versions()
            if (deleted or not one.deleted) and any(ref[1:] == place for ref in one.content.references)
        ]

    def referred(self, reference: Reference) -> Content:
        """The schema that a reference names, also if it is soft-deleted. Raises RegistryError."""
        return self.version(reference.subject, reference.version, deleted=True).content

    def level(self, subject: str) -> str:
        """The level of compatibility that counts for a subject."""
        for scope in (subject, None):
            found = self.levels.get(scope, {}).get("compatibilityLevel")
            if found in LEVELS:
                return str(found)
        return DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        """Whether the subject's schemas are normalized, though the request does not ask for it."""
        return {**self.levels.get(None, {}), **self.levels.get(subject, {})}.get("normalize") is True

    def mode(self, subject: str) -> str:
        """The mode that counts for a subject."""
        return self.modes.get(subject) or self.modes.get(None) or READWRITE

    def current(self, key: bytes) -> Record:
        """What a key should have, after a record that the fold refused took its place."""
        place = read_key(key)
        assert isinstance(place, SchemaKey), "only a schema is ever refused"
        found = self._subjects.get(place.subject, {}).get(place.number)
        return Record(key, None) if found is None else found._replace(keys=(key,)).record

    @property
    def next_id(self) -> int:
        """An id that no schema ever had. Raises RegistryError when there is none left."""
        if self.max_id >= INT_MAX:
            raise not_permitted("There is no id left: the highest one is in use.")
        return self.max_id + 1


def _put(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
    if value:
        table[subject] = value
    else:
        table.pop(subject, None)
