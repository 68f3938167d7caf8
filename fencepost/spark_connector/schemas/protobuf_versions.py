"""A writer's Protobuf message beside a reader's, whose fields have the same numbers but perhaps other types.

Protobuf's parsers read such a field as another number, or leave it out, and say nothing.
"""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from fencepost.spark_connector.schemas.errors import PoisonRecordError, SchemaError

Check = Callable[[Any, Any], None]
"""Takes a record as the writer's message and as the reader's. Raises PoisonRecordError if a value differs."""
_VARINTS = {
    Field.TYPE_BOOL: (0, 1),
    Field.TYPE_ENUM: (-(2**31), 2**31 - 1),
    Field.TYPE_INT32: (-(2**31), 2**31 - 1),
    Field.TYPE_INT64: (-(2**63), 2**63 - 1),
    Field.TYPE_UINT32: (0, 2**32 - 1),
    Field.TYPE_UINT64: (0, 2**64 - 1),
}
"""Types whose bytes are one another's, and their ranges."""
_SAME_BYTES = [
    {Field.TYPE_SINT32, Field.TYPE_SINT64},
    {Field.TYPE_FIXED32, Field.TYPE_SFIXED32},
    {Field.TYPE_FIXED64, Field.TYPE_SFIXED64},
    {Field.TYPE_STRING, Field.TYPE_BYTES},
    {Field.TYPE_MESSAGE, Field.TYPE_BYTES},
]
_CHECKED = {Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE}
"""What a parser refuses if the bytes are none."""
_NAMES = {getattr(Field, name): name.removeprefix("TYPE_").lower() for name in dir(Field) if name.startswith("TYPE_")}


def check_of(writer: Any, reader: Any) -> Check | None:
    """What a record must pass; None if each value is read as it was written. Raises SchemaError if none would be."""
    return _Messages().check(writer, reader)


class _Messages:
    def __init__(self) -> None:
        self._above: set[tuple[str, str]] = set()

    def check(self, writer: Any, reader: Any) -> Check | None:
        pair = (writer.full_name, reader.full_name)
        if pair in self._above:
            return None  # the reader has no recursive types, so nothing of it is read
        self._above.add(pair)
        checks = []
        for field in reader.fields:
            written = writer.fields_by_number.get(field.number)
            found = None if written is None else self._field(written, field)
            if found is not None:
                checks.append(found)
        self._above.discard(pair)
        if not checks:
            return None

        def all_of(one: Any, other: Any) -> None:
            for check in checks:
                check(one, other)

        return all_of

    def _field(self, written: Any, read: Any) -> Check | None:
        if written.is_repeated and not read.is_repeated:
            raise _mismatch(written, read)
        maps = _is_map(written), _is_map(read)
        if any(maps):
            return self._map(written, read) if all(maps) else None
        same = self._values(written, read)
        if same is None:
            return None

        def check(one: Any, other: Any) -> None:
            before, after = getattr(one, written.name), getattr(other, read.name)
            if not written.is_repeated:
                if written.has_presence and not one.HasField(written.name):
                    return
                before = [before]
            for first, second in zip(before, after if read.is_repeated else [after], strict=False):
                same(first, second)

        return check

    def _map(self, written: Any, read: Any) -> Check | None:
        keys, values = (
            self._values(*(field.message_type.fields_by_name[name] for field in (written, read)))
            for name in ("key", "value")
        )

        def check(one: Any, other: Any) -> None:
            before, after = getattr(one, written.name), getattr(other, read.name)
            for first in before:
                if keys is not None:
                    keys(first, first if first in after else None)
                if values is not None:
                    values(before[first], after[first])

        return check if keys or values else None

    def _values(self, written: Any, read: Any) -> Check | None:
        """The check of one value, or of one item."""
        if written.type == read.type:
            return None if read.message_type is None else self.check(written.message_type, read.message_type)
        if not _same_bytes(written, read):
            raise _mismatch(written, read)
        if _holds(read, written):
            return None

        def same(first: Any, second: Any) -> None:
            if first != second:
                raise PoisonRecordError(f"{read.full_name} is {first}, which no {_NAMES[read.type]} can hold")

        return same


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _same_bytes(written: Any, read: Any) -> bool:
    kinds = {written.type, read.type}
    return kinds <= _VARINTS.keys() or any(kinds <= these for these in _SAME_BYTES)


def _holds(read: Any, written: Any) -> bool:
    """Whether the reader's type has all values of the writer's."""
    if {written.type, read.type} <= _CHECKED or (written.type, read.type) == (Field.TYPE_SINT32, Field.TYPE_SINT64):
        return True
    if written.type not in _VARINTS:
        return False
    low, high = _VARINTS[written.type]
    return _VARINTS[read.type][0] <= low and high <= _VARINTS[read.type][1]


def _mismatch(written: Any, read: Any) -> SchemaError:
    before, after = (f"{'repeated ' if one.is_repeated else ''}{_type(one)}" for one in (written, read))
    return SchemaError(f"{read.full_name} was written as {before}, and {after} is wanted: their bytes differ")


def _type(field: Any) -> str:
    return field.message_type.full_name if field.message_type is not None else _NAMES[field.type]
