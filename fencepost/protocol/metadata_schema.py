"""Declarations of the metadata log's records: as those of messages, but their values are immutable tuples.

The constructor requires a field that is declared by a plain type. A field that is declared as a Field is optional,
unless a required one follows it.
"""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any, ClassVar

from construct import Renamed

from fencepost.protocol.schema import Field, Message, StructType, Value, declare


class MetadataValue(tuple[Any, ...]):
    """A record, or a struct in one; it equals only values of its own class, not every tuple with the same items."""

    __slots__ = ()
    wire: ClassVar[StructType]
    """The declaration for the codecs."""
    unknown_tags: ClassVar[None] = None

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@dataclass(frozen=True, slots=True)
class Form:
    """How one record type is written: its number, its class, its wire form, and the version written."""

    number: int
    made: type[Any]
    message: Any
    version: int


FORMS: dict[int, Form] = {}
"""The forms of the declared record types, by number."""
FORM_OF: dict[type[Any], Form] = {}
_MADE: dict[type[Any], type[Any]] = {}


def Part(name: str, *fields: Renamed) -> type[Any]:
    """Declare a struct that is a field of records."""
    return _made(declare(Value, name, fields), fields)


def Record(number: int, name: str, *fields: Renamed, versions: tuple[int, int] = (0, 0), written: int = 0) -> type[Any]:
    """Declare a record type: its number, the versions to read, and the version to write."""
    message = Message(name, versions, 0, *fields)
    made = _made(message, fields)
    FORMS[number] = FORM_OF[made] = Form(number, made, message, written)
    return made


def _made(wire: StructType, fields: tuple[Renamed, ...]) -> type[Any]:
    """The class of the values of `wire`."""
    defaults: list[Any] = []
    for renamed in reversed(fields):
        if not isinstance(renamed.subcon, Field):
            break
        default = renamed.subcon.default
        defaults.insert(0, () if default is list else default)
    names = namedtuple(wire.__name__, list(wire.fields), defaults=defaults)  # type: ignore[misc]
    space = {"__slots__": (), "__module__": "fencepost.protocol.metadata_record_types", "wire": wire}
    made = _MADE[wire] = type(wire.__name__, (MetadataValue, names), space)
    return made


def kept(value: Any) -> Any:
    """Convert a decoded value to the form in a record: arrays to tuples, structs to their values."""
    if isinstance(value, list):
        return tuple(map(kept, value))
    made = _MADE.get(type(value))
    return value if made is None else made(*(kept(getattr(value, name)) for name in value._fields))
