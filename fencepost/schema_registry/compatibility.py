"""Whether one schema can follow another: Avro's own checker decides it. Pure, but for importing that package."""

from collections.abc import Sequence
from typing import Final

from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)
from avro.schema import Schema

from fencepost.schema_registry.avro_schemas import Find, check_new, parse
from fencepost.schema_registry.content import AVRO, JSON, KINDS, Content, canonical, read_json
from fencepost.schema_registry.errors import TOO_LARGE, RegistryError, invalid_schema, level_not_checked

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
DEFAULT_LEVEL: Final = "BACKWARD"
COMPARISONS_MAX: Final = 50_000
"""Of two types, for one request. Two unions of n records need n * n: a request must not keep the process busy."""


def checked(content: Content, find: Find) -> Content:
    """The schema in its canonical form. Raises RegistryError if it is none, or names what does not exist.

    The text of Protobuf is not parsed, and JSON Schema is only known to be a JSON object or a boolean.
    """
    if content.kind not in KINDS:
        raise invalid_schema(f"schemaType {content.kind!r} is none of {', '.join(KINDS)}")
    if not content.text.strip():
        raise invalid_schema("it is empty")
    try:
        found = canonical(content)
    except ValueError as error:
        raise invalid_schema(f"{error}, type {content.kind}") from None
    if content.kind == JSON and not isinstance(read_json(content.text), dict | bool):
        raise invalid_schema("a JSON Schema is an object, true or false")
    for one in content.references:
        if find(one).kind != content.kind:
            raise invalid_schema(f"the reference {one.name!r} is not to a schema of type {content.kind}")
    if content.kind == AVRO:
        check_new(parse(found, find))
    return found


def problems(level: str, subject: str, new: Content, earlier: Sequence[tuple[int, Content]], find: Find) -> list[str]:
    """Why `new` cannot follow the earlier versions, oldest first; empty if it can.

    Raises RegistryError for a type whose compatibility this registry cannot check.
    """
    if level == "NONE" or not earlier:
        return []
    found = []
    checker = _Checker()
    for number, old in reversed(earlier if level.endswith("_TRANSITIVE") else earlier[-1:]):
        if old.kind != new.kind:
            found.append(f"version {number} is of the type {old.kind}, this schema of the type {new.kind}")
        elif new.kind != AVRO:
            raise level_not_checked(subject, new.kind, level)
        else:
            ours, theirs = parse(new, find), parse(old, find)
            if level.startswith(("BACKWARD", "FULL")):
                found += [f"{text} (data of version {number})" for text in checker.unreadable(ours, theirs)]
            if level.startswith(("FORWARD", "FULL")):
                found += [f"{text} (a reader with version {number})" for text in checker.unreadable(theirs, ours)]
    return [*found, f"{{compatibility: '{level}'}}"] if found else []


class _Checker(ReaderWriterCompatibilityChecker):
    """Apache's check, for all comparisons of one request."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = COMPARISONS_MAX

    def get_compatibility(
        self, reader: Schema, writer: Schema, reference_token: str = "/", location: list[str] | None = None
    ) -> SchemaCompatibilityResult:
        """Called for each pair of types. Raises RegistryError when there were too many."""
        self._left -= 1
        if self._left < 0:
            raise RegistryError(
                TOO_LARGE, f"The schemas are too large to compare: they need more than {COMPARISONS_MAX} comparisons."
            )
        return super().get_compatibility(reader, writer, reference_token, location)

    def unreadable(self, reader: Schema, writer: Schema) -> list[str]:
        """Why a reader with one schema cannot read what the other wrote. Raises RegistryError."""
        try:
            result = self.get_compatibility(reader, writer)
        except RecursionError:
            raise RegistryError(TOO_LARGE, "The schemas are nested too deeply to compare them.") from None
        if result.compatibility is SchemaCompatibilityType.compatible:
            return []
        kinds = " and ".join(dict.fromkeys(one.name for one in result.incompatibilities))
        return [f"{kinds}: {'; '.join(sorted(result.messages))} at {', '.join(sorted(result.locations))}"]
