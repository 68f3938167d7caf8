"""The records of `_schemas` in Confluent's own form: keys and values are JSON. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fencepost.schema_registry.content import Content, content_of, whole_number

TOPIC: Final = "_schemas"
IDS_SUBJECT: Final = "__fencepost_max_id"
"""No subject: what is deleted "up to version n" of it means that ids up to n were given away.

Confluent's registry finds nothing to delete there, and compaction keeps the record.
"""


class Record(NamedTuple):
    """A record to append. `value` None deletes the key."""

    key: bytes
    value: bytes | None


class Version(NamedTuple):
    """A schema as one version of a subject.

    `keys` are those of its records, the newest last. Programs write the same key with other bytes, and compaction
    compares bytes: a deletion must delete each of them, or the oldest record brings the schema back.
    """

    subject: str
    number: int
    id: int
    content: Content
    deleted: bool
    keys: tuple[bytes, ...]

    def as_json(self) -> dict[str, Any]:
        """The response that describes it."""
        return {
            "subject": self.subject,
            "version": self.number,
            "id": self.id,
            "guid": self.content.guid,
            **self.content.as_json(),
        }

    @property
    def record(self) -> Record:
        fields = {"subject": self.subject, "version": self.number, "id": self.id}
        return Record(self.keys[-1], compact({**fields, **self.content.as_json(), "deleted": self.deleted}))

    @property
    def deletions(self) -> list[Record]:
        """The records that delete it for good."""
        return [Record(key, None) for key in self.keys]


class SchemaKey(NamedTuple):
    """The key of a version's record."""

    subject: str
    number: int


class SubjectKey(NamedTuple):
    """The key of another record: CONFIG, MODE, DELETE_SUBJECT, NOOP or CLEAR_SUBJECT; without a subject for all."""

    kind: str
    subject: str | None


def compact(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def schema_key(subject: str, number: int) -> bytes:
    return compact({"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1})


def subject_key(kind: str, subject: str | None) -> bytes:
    """The key of a CONFIG, MODE or DELETE_SUBJECT record."""
    named = {} if subject is None else {"subject": subject}
    return compact({"keytype": kind, **named, "magic": 0})


def subject_record(kind: str, subject: str | None, fields: Mapping[str, Any] | None) -> Record:
    """The record that sets a subject's (None: everyone's) level or mode, or (None) removes it."""
    named = {} if subject is None else {"subject": subject}
    return Record(subject_key(kind, subject), None if fields is None else compact({**named, **fields}))


def deleted_until(subject: str, version: int) -> Record:
    """All versions of the subject up to this one are deleted."""
    return subject_record("DELETE_SUBJECT", subject, {"version": version})


def read_key(key: bytes | None) -> SchemaKey | SubjectKey:
    """Raises ValueError for a key that no registry writes."""
    fields = _object(key)
    kind, subject = fields.get("keytype"), fields.get("subject")
    if not isinstance(kind, str) or not isinstance(subject, str | None):
        raise ValueError("its key has no keytype")
    if kind != "SCHEMA":
        return SubjectKey(kind, subject)
    if subject is None or fields.get("magic") not in (0, 1):
        raise ValueError("its key names no subject, or has another magic")
    return SchemaKey(subject, whole_number(fields.get("version"), 1))


def read_version(key: SchemaKey, raw_key: bytes, value: bytes) -> Version:
    """Raises ValueError for a value that no registry writes."""
    fields = _object(value)
    number = whole_number(fields.get("id"), 0)
    if number < 0 or key.number < 0:
        raise ValueError("it has no id, or no version")
    return Version(key.subject, key.number, number, content_of(fields), fields.get("deleted") is True, (raw_key,))


def read_fields(value: bytes) -> dict[str, Any]:
    """The value of another record. Raises ValueError."""
    return _object(value)


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"null")
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
