"""The fields of declarations: their types, the versions that have them, and their defaults.

A type says to people and type checkers what a value is, and to the codecs how it is written.
"""

from collections.abc import Sequence, Sized
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, Self, Union

from fencepost.protocol import primitives
from fencepost.protocol.primitives import ArrayOf, LengthPrefixed

NO_VERSION = 1 << 15
"""Above every version: for a field that is never null, or a message that is never flexible."""
UNSET: Any = object()
Buffer = bytes | bytearray | memoryview


class ViewOrBuffers(Protocol):
    """What a records field has: a view if it was decoded, and any buffer or list of buffers if it was set."""

    def __get__(self, value: object, owner: type | None = None) -> memoryview | None: ...
    def __set__(self, value: object, records: Buffer | Sequence[Sized] | None) -> None: ...


Int8 = Annotated[int, primitives.Int8]
Int16 = Annotated[int, primitives.Int16]
Int32 = Annotated[int, primitives.Int32]
Int64 = Annotated[int, primitives.Int64]
Uint16 = Annotated[int, primitives.Uint16]
Uint32 = Annotated[int, primitives.Uint32]
Float64 = Annotated[float, primitives.Float64]
Bool = Annotated[bool, primitives.Bool]
Uuid = Annotated[bytes, primitives.Uuid]
String = Annotated[str, LengthPrefixed("string")]
Bytes = Annotated[bytes, LengthPrefixed("bytes")]
Records = Annotated[ViewOrBuffers, LengthPrefixed("records", nullable=True)]


def wire_type(annotation: Any) -> tuple[Any, bool]:
    """The type on the wire that an annotation means, and whether a value may be null.

    That of a struct is its class. Raises TypeError for an annotation without a form on the wire.
    """
    metadata = getattr(annotation, "__metadata__", None)
    if metadata:
        return metadata[0], False
    origin = getattr(annotation, "__origin__", None)
    if origin in (list, tuple):
        element, may_be_null = wire_type(annotation.__args__[0])
        if may_be_null:
            raise TypeError(f"{annotation}: no array of Kafka's has elements that may be null")
        return ArrayOf(element), False
    if origin is Union or isinstance(annotation, UnionType):
        [kind] = (one for one in annotation.__args__ if one is not NoneType)
        return wire_type(kind)[0], True
    struct = getattr(annotation, "wire", None)
    if struct is None:
        raise TypeError(f"{annotation} has no form on the wire")
    return struct, False


class Field:
    """A field of a struct: the versions that have it, its default, and its type, which the annotation gives.

    `nullable` is the first version in which it may be null. `tag`: it is a tagged field (KIP-482).
    """

    subcon: Any
    nullable: int

    def __init__(self, since: int, until: int, default: Any, nullable: int | None, tag: int | None) -> None:
        self.since, self.until, self.default, self.tag = since, until, default, tag
        self.nullable = NO_VERSION if nullable is None else nullable

    def annotated(self, annotation: Any) -> Self:
        """Take the type from the annotation: `X | None` may be null as soon as it exists, if nothing else is said."""
        self.subcon, may_be_null = wire_type(annotation)
        if may_be_null and self.nullable == NO_VERSION:
            self.nullable = self.since
        if self.default is UNSET:
            self.default = default_of(self)
        elif isinstance(self.subcon, ArrayOf) and self.default is not None:
            self.default = list
        return self

    def exists(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.since


def default_of(field: Field) -> Any:
    """Kafka's default if the declaration has none: zero, empty, or null for a struct that may be null."""
    kind = field.subcon
    if isinstance(kind, type):
        return None if field.nullable < NO_VERSION else kind
    if isinstance(kind, ArrayOf):
        return list
    if isinstance(kind, LengthPrefixed):
        return {"string": "", "bytes": b"", "records": None}[kind.kind]
    return {primitives.Uuid: bytes(16), primitives.Bool: False, primitives.Float64: 0.0}.get(kind, 0)


def field(
    since: int = 0,
    until: int = NO_VERSION,
    *,
    default: Any = UNSET,
    nullable: int | None = None,
    tag: int | None = None,
) -> Any:
    """The facts about a field that its annotation does not tell; without `default` it has Kafka's for its type.

    It returns Any, so that a type checker sees a field with a default, whatever the field's type is.
    """
    return Field(since, until, default, nullable, tag)


def since(version: int, **more: Any) -> Any:
    """A field that exists from `version` on."""
    return field(version, **more)


def until(version: int, **more: Any) -> Any:
    """A field that exists up to `version`."""
    return field(0, version, **more)
