"""A writer's Avro schema beside a reader's: which of the reader's types a writer's becomes, and in which unit."""

from collections.abc import Sequence
from typing import Any

from fencepost.spark_connector.schemas.avro_schema import NAMED, TIME, branches, definitions, is_member, kind_of, member
from fencepost.spark_connector.schemas.errors import SchemaError

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What a reader may make of a type, by Avro's rules of resolution."""
_LOGICAL = ("logicalType", "precision", "scale", TIME)
_UNITS = ("millis", "micros", "nanos")


def aligned(writer: Any, reader: Any) -> Any:
    """The writer's schema with the logical types with which the reader can use its numbers.

    `reader` has members (see `with_members`), and the writer's types get those that they become. A timestamp keeps the
    unit in which it was written. A number that got or lost a logical type is what the reader says. Raises SchemaError
    where that would give wrong values.
    """
    return _Aligned(dict(definitions(writer)), dict(definitions(reader))).of(writer, reader)


class _Aligned:
    def __init__(self, writers: dict[str, Any], readers: dict[str, Any]) -> None:
        self._writers, self._readers = writers, readers
        self._by_short_name = {_short(name): one for name, one in readers.items()}
        self._members = 0

    def of(self, writer: Any, reader: Any) -> Any:
        """`reader` is None where the reader leaves out what is written."""
        if isinstance(writer, list):
            return [self._branch(one, reader) for one in writer]
        if isinstance(reader, list) and any(map(is_member, reader)):
            return self._branch(writer, reader)
        reader = self._beside(writer, reader)
        if isinstance(writer, str):
            logical = (
                isinstance(reader, dict) and writer not in self._writers and any(key in reader for key in _LOGICAL)
            )
            return _given({"type": writer}, reader) if logical else writer
        kind = writer["type"]
        if kind in NAMED and kind_of(reader) != kind:
            # The reader may use the type elsewhere, and there the writer has only its name.
            reader = self._by_short_name.get(_short(writer["name"]))
        if kind == "record":
            return writer | {"fields": [self._field(one, reader) for one in writer["fields"]]}
        for key in ("items", "values"):
            if key in writer:
                return writer | {key: self.of(writer[key], reader.get(key) if isinstance(reader, dict) else None)}
        return writer if reader is None else _given(writer, reader if isinstance(reader, dict) else {"type": reader})

    def _field(self, field: Any, reader: Any) -> Any:
        for one in reader["fields"] if kind_of(reader) == "record" else ():
            if field["name"] == one["name"] or field["name"] in one.get("aliases", ()):
                return field | {"type": self.of(field["type"], one["type"])}
        return field | {"type": self.of(field["type"], None)}

    def _branch(self, writer: Any, reader: Any) -> Any:
        """One type of a writer's union, or a writer's type that becomes one of a reader's union with members."""
        if not isinstance(reader, list) or not any(map(is_member, reader)):
            return self.of(writer, self._beside(writer, reader))
        if kind_of(writer) == "null":
            return writer
        members = branches(reader)
        inner = [one["fields"][0]["type"] for one in members]
        number = self._match(writer, inner)
        if number is None:
            return self.of(writer, None)
        # Names match by their last part. So two types of the writer can become the same member.
        self._members += 1
        space = f"fencepost.written{self._members}.{_short(members[number]['name']).rpartition('_')[0]}"
        return member(space, number, self.of(writer, inner[number]))

    def _beside(self, writer: Any, reader: Any) -> Any:
        """The reader's type that a value of the writer's type becomes; None if there is none."""
        if isinstance(reader, list):
            number = self._match(writer, reader)
            reader = None if number is None else reader[number]
        return self._readers.get(reader, reader) if isinstance(reader, str) else reader

    def _match(self, writer: Any, readers: Sequence[Any]) -> int | None:
        """Which of these types it becomes: the same type, else the first wider one."""
        written = self._writers.get(writer, writer) if isinstance(writer, str) else writer
        found = [self._readers.get(one, one) if isinstance(one, str) else one for one in readers]
        kinds, kind = [kind_of(one) for one in found], kind_of(written)
        same = [number for number, one in enumerate(kinds) if one == kind]
        if kind in NAMED:
            name = _short(written["name"])
            same = [
                number
                for number in same
                if name in (_short(one) for one in (found[number]["name"], *found[number].get("aliases", ())))
            ]
        wider = [number for number, one in enumerate(kinds) if one in _WIDER.get(kind, ())]
        return next(iter((*same, *wider)), None)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _given(made: dict[str, Any], reader: dict[str, Any]) -> Any:
    """A number, or bytes, of the writer with the logical type that fits the reader's."""
    written, read = (one.get("logicalType") or one.get(TIME) for one in (made, reader))
    if written == read:
        return made
    kept = {key: value for key, value in made.items() if key not in _LOGICAL}
    if read is None:
        return kept
    if written is None:
        if made["type"] != reader["type"]:
            raise SchemaError(f"it was written as {made['type']}, which is no {read}")
        return kept | {key: reader[key] for key in _LOGICAL if key in reader}
    family, unit = _family(read), _unit(written)
    if not family.endswith("timestamp") or not _family(written).endswith("timestamp") or "nanos" in (unit, _unit(read)):
        raise SchemaError(f"it was written as {written}, and {read} is wanted: their numbers differ")
    return kept | {"logicalType": f"{family}-{unit}"}


def _family(logical: str) -> str:
    return logical.rpartition("-")[0] if _unit(logical) in _UNITS else logical


def _unit(logical: str) -> str:
    return logical.rpartition("-")[2]
