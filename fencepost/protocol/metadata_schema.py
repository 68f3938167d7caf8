"""Declarations of the metadata log's records: in the words of messages, but their values are immutable named tuples.

A field without a default is required by the constructor, whatever versions have it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fencepost.protocol.fields import Field, field
from fencepost.protocol.schema import MessageValue, StructType, Value

T = TypeVar("T", bound=tuple[Any, ...])


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


def part(made: type[T]) -> type[T]:
    """Declare a struct that is a field of records."""
    _declare(made, Value)
    return made


def record(number: int, *, versions: tuple[int, int] = (0, 0), written: int = 0) -> Callable[[type[T]], type[T]]:
    """Declare a record type: its number, the versions to read, and the version to write."""

    def declare(made: type[T]) -> type[T]:
        message = _declare(made, MessageValue, versions=versions, flexible=0)
        FORMS[number] = FORM_OF[made] = Form(number, made, message, written)
        return made

    return declare


def _declare(made: Any, base: type[Value], **facts: Any) -> StructType:
    """Make the declaration for the codecs from a named tuple's fields, and the tuple a record's.

    Equal are only values of one class, not any tuples with the same items.
    """
    annotations, defaults = made.__annotations__, made._field_defaults
    given = {name: defaults.get(name, _required(annotation)) for name, annotation in annotations.items()}
    wire = StructType(made.__name__, (base,), {"__annotations__": annotations, **given}, **facts)
    for name in defaults:
        default: Any = wire.fields[name].default
        defaults[name] = () if default is list else default
    made.__new__.__defaults__ = tuple(defaults.values())
    made.wire, made.unknown_tags = wire, None
    made.__eq__, made.__ne__, made.__hash__ = _equal, _unequal, tuple.__hash__
    _MADE[wire] = made
    return wire


def _required(annotation: Any) -> Any:
    """The facts about a field without a default: `Annotated[Bool, since(2)]`."""
    metadata = getattr(annotation, "__metadata__", ())
    return next((fact for fact in metadata if isinstance(fact, Field)), field())


def _equal(one: tuple[Any, ...], other: object) -> bool:
    return type(one) is type(other) and tuple.__eq__(one, other)


def _unequal(one: tuple[Any, ...], other: object) -> bool:
    return not _equal(one, other)


def kept(value: Any) -> Any:
    """Convert a decoded value to the form in a record: arrays to tuples, structs to their values."""
    if isinstance(value, list):
        return tuple(map(kept, value))
    made = _MADE.get(type(value))
    return value if made is None else made(*(kept(getattr(value, name)) for name in value._fields))
