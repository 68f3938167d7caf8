"""The vocabulary of a declaration: one declaration says all versions of a message, and makes its values."""

from collections.abc import Iterator
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, NoReturn

from construct import Construct, ConstructError, Renamed, Subconstruct

from fencepost.protocol.primitives import (
    ArrayOf,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    KnownTag,
    LengthPrefixed,
    NullableStruct,
    TaggedFields,
    Uint16,
    Uint32,
    Uuid,
    VersionedStruct,
)

if TYPE_CHECKING:
    from fencepost.protocol.compiler import DecodeFunction, EncodeFunction

__all__ = [
    "Array",
    "Bool",
    "Bytes",
    "DecodeError",
    "EncodeError",
    "Field",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "Request",
    "Response",
    "Since",
    "String",
    "Struct",
    "Uint16",
    "Uint32",
    "Until",
    "Uuid",
]

String = LengthPrefixed("string")
Bytes = LengthPrefixed("bytes")
Records = LengthPrefixed("records", nullable=True)
NO_VERSION = 1 << 15
UNSET: Any = object()


class DecodeError(ValueError):
    """Bytes that are not a message of this API and version; the text names API, version, field and offset."""

    def __init__(
        self, message: str, version: int, why: str, field: str | None = None, offset: int | None = None
    ) -> None:
        where = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{message} v{version}{', ' + field if field else ''}{where}: {why}")
        self.message, self.version, self.field, self.offset = message, version, field, offset


class EncodeError(ValueError):
    """A value that can not be written as this API and version."""


def Array(element: Any) -> ArrayOf:
    """An array of `element`, in the form that the message's version asks for."""
    return ArrayOf(element)


class Field(Subconstruct):
    """A type with the versions it stands in, and its default; `nullable` is the first version in which it may be null.

    `tag`: the field is a tagged one from version `tagged_since` on (KIP-482).
    """

    def __init__(
        self,
        subcon: Any,
        since: int = 0,
        until: int = NO_VERSION,
        *,
        default: Any = UNSET,
        nullable: int = NO_VERSION,
        tag: int | None = None,
        tagged_since: int | None = None,
    ) -> None:
        super().__init__(subcon)
        self.since, self.until, self.nullable = since, until, nullable
        self.tag = tag
        self.tagged_since = since if tagged_since is None else tagged_since
        self.default = default_of(self) if default is UNSET else default

    def exists(self, version: int) -> bool:
        """Whether the field is part of `version`."""
        return self.since <= version <= self.until

    def is_tagged(self, version: int) -> bool:
        """Whether the field is a tagged one in `version`."""
        return self.tag is not None and version >= self.tagged_since


def default_of(field: Field) -> Any:
    """Kafka's default where the declaration names none: zero, empty, or null for a tagged struct that is absent."""
    kind = field.subcon
    if isinstance(kind, Struct):
        return None if field.tag is not None or field.nullable < NO_VERSION else kind
    if isinstance(kind, ArrayOf):
        return list
    if isinstance(kind, LengthPrefixed):
        return {"string": "", "bytes": b"", "records": None}[kind.kind]
    return {Uuid: bytes(16), Bool: False, Float64: 0.0}.get(kind, 0)


def Since(version: int, subcon: Any, **more: Any) -> Field:
    """A field that exists from `version` on."""
    return Field(subcon, since=version, **more)


def Until(version: int, subcon: Any, **more: Any) -> Field:
    """A field that exists up to `version`."""
    return Field(subcon, until=version, **more)


class Value:
    """A message or a struct in it: one slotted class per struct, for all its versions."""

    __slots__ = ("unknown_tags",)
    _fields: tuple[str, ...] = ()

    unknown_tags: dict[int, bytes] | None
    """Tagged fields that this build does not know, by tag; kept and written back."""

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__ or not isinstance(other, Value):
            return NotImplemented
        mine, theirs = self.unknown_tags or {}, other.unknown_tags or {}
        return mine == theirs and all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({inside})"


class Struct(Construct):
    """A struct over all its versions. Calling it makes a value; fields that are not given take Kafka's default."""

    def __init__(self, name: str, *fields: Renamed) -> None:
        super().__init__()
        self.struct_name = name
        self.fields: dict[str, Field] = {}
        for renamed in fields:
            inner = renamed.subcon
            self.fields[renamed.name] = inner if isinstance(inner, Field) else Field(inner)

    def __call__(self, **fields: Any) -> Any:
        """Make a value of this struct."""
        return self.cls(**fields)

    @cached_property
    def cls(self) -> Any:
        """The class of this struct's values, made on first use."""
        return make_class(self)

    def at(self, version: int, flexible: bool) -> VersionedStruct:
        """This struct as a plain construct tree of one version."""
        plain: list[tuple[str, Any]] = []
        tagged: list[KnownTag] = []
        for name, field in self.fields.items():
            if not field.exists(version):
                continue
            subcon = specialise(field.subcon, version, flexible, field.nullable <= version, field.is_tagged(version))
            if field.is_tagged(version):
                tagged.append(KnownTag(field.tag or 0, name, subcon, field.default))
            else:
                plain.append((name, subcon))
        return VersionedStruct(self, plain, TaggedFields(tagged) if flexible else None)


def specialise(kind: Any, version: int, flexible: bool, nullable: bool = False, tagged: bool = False) -> Any:
    """The construct of one field's type at one version."""
    if isinstance(kind, LengthPrefixed):
        return LengthPrefixed(kind.kind, flexible, nullable or kind.nullable)
    if isinstance(kind, ArrayOf):
        return ArrayOf(specialise(kind.subcon, version, flexible), flexible, nullable)
    if isinstance(kind, Struct):
        tree = kind.at(version, flexible)
        return NullableStruct(tree) if nullable and not tagged else tree
    return kind


def make_class(struct: Struct) -> type[Value]:
    """A slotted class with one attribute per field and an `__init__` of keyword arguments with Kafka's defaults."""
    scope: dict[str, Any] = {"U": UNSET}
    arguments, body = ["self"], ["self.unknown_tags = None"]
    for name, field in struct.fields.items():
        if callable(field.default):
            scope[f"d_{name}"] = field.default
            arguments.append(f"{name}=U")
            body.append(f"self.{name} = d_{name}() if {name} is U else {name}")
        else:
            scope[f"d_{name}"] = field.default
            arguments.append(f"{name}=d_{name}")
            body.append(f"self.{name} = {name}")
    if len(arguments) > 1:
        arguments.insert(1, "*")
    source = f"def __init__({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<{struct.struct_name}>", "exec"), scope)
    names = tuple(struct.fields)
    space = {"__slots__": names, "_fields": names, "__init__": scope["__init__"], "__module__": __name__}
    made: type[Value] = type(struct.struct_name, (Value,), space)
    return made


class Message(Struct):
    """A request, a response or a stored record body: a struct with its range of versions."""

    def __init__(self, name: str, versions: tuple[int, int], flexible: int | None, *fields: Renamed) -> None:
        super().__init__(name, *fields)
        self.versions = versions
        self.flexible_since = NO_VERSION if flexible is None else flexible
        self._decoders: dict[int, DecodeFunction] = {}
        self._encoders: dict[int, EncodeFunction] = {}

    def is_flexible(self, version: int) -> bool:
        """Whether `version` has compact lengths and tagged fields (KIP-482)."""
        return version >= self.flexible_since

    def tree(self, version: int) -> VersionedStruct:
        """The plain construct of one version: the oracle that the generated code is tested against."""
        if not self.versions[0] <= version <= self.versions[1]:
            raise EncodeError(
                f"{self.struct_name} has no version {version}, only {self.versions[0]}-{self.versions[1]}"
            )
        return self.at(version, self.is_flexible(version))

    def decoder(self, version: int) -> "DecodeFunction":
        """The generated decoder of one version, made on first use: brokers read no responses, clients no requests."""
        found = self._decoders.get(version)
        if found is None:
            from fencepost.protocol.compiler import generate_decoder  # here: who decodes nothing pays nothing

            found = self._decoders[version] = generate_decoder(self.tree(version), f"{self.struct_name}V{version}")
        return found

    def encoder(self, version: int) -> "EncodeFunction":
        """The generated encoder of one version, made on first use."""
        found = self._encoders.get(version)
        if found is None:
            from fencepost.protocol.compiler import generate_encoder  # here: who encodes nothing pays nothing

            found = self._encoders[version] = generate_encoder(self.tree(version), f"{self.struct_name}V{version}")
        return found

    def encode_parts(self, value: Any, version: int) -> list[Any]:
        """The bytes of `value` as a list of buffers; `records` fields stand in it as they were given, uncopied.

        Raises EncodeError where a field can not be written.
        """
        try:
            return self.encoder(version)(value)
        except EncodeError:
            raise
        except Exception as error:
            raise self._encode_error(value, version, error) from error

    def encode(self, value: Any, version: int) -> bytes:
        """The bytes of `value` at `version`. Raises EncodeError."""
        return b"".join(self.encode_parts(value, version))

    def decode(self, buffer: Any, version: int, start: int = 0) -> Any:
        """The value in `buffer` from `start` to its end. Raises DecodeError, also for bytes that are left over.

        `records` fields are memoryviews into `buffer`; all else is copied.
        """
        value, end = self.decode_prefix(buffer, version, start)
        left = len(memoryview(buffer)) - end
        if left:
            why = f"{left} bytes are left over after the last field"
            raise DecodeError(self.struct_name, version, why, offset=end)
        return value

    def decode_prefix(self, buffer: Any, version: int, start: int = 0) -> tuple[Any, int]:
        """As `decode`, for a value with other bytes after it: the value and where it ends. Raises DecodeError."""
        view = memoryview(buffer)
        try:
            value, end = self.decoder(version)(view, start)
        except Exception as error:  # noqa: BLE001 - whatever the bytes did, the plain decoder finds the place
            self._explain(view, version, start, error)
        return value, end

    def _explain(self, view: memoryview, version: int, start: int, cause: Exception) -> NoReturn:
        """Decode again with the plain construct tree, which knows field names, and raise what it says."""
        stream = BytesIO(view[start:])
        try:
            self.tree(version)._parsereport(stream, {}, "")
        except ConstructError as error:
            field = ".".join((error.path or "").split(" -> ")[1:]) or None
            why = str(error).rpartition("\n")[2]
            raise DecodeError(self.struct_name, version, why, field, start + stream.tell()) from cause
        raise AssertionError(f"{self.struct_name} v{version}: the two decoders disagree") from cause

    def _encode_error(self, value: Any, version: int, cause: Exception) -> EncodeError:
        for path, field, given in walk(self, value, version):
            try:
                specialise(field.subcon, version, self.is_flexible(version), field.nullable <= version).build(given)
            except Exception as error:  # noqa: BLE001 - any failure tells which field it is
                return EncodeError(f"{self.struct_name} v{version}, {path} = {given!r:.80}: {error}")
        return EncodeError(f"{self.struct_name} v{version}: {cause}")


def walk(struct: Struct, value: Any, version: int, path: str = "") -> Iterator[tuple[str, Field, Any]]:
    """Every leaf field of `value` that `version` writes, with its path."""
    for name, field in struct.fields.items():
        if not field.exists(version):
            continue
        given, kind, here = getattr(value, name, None), field.subcon, f"{path}.{name}".lstrip(".")
        inner = kind.subcon if isinstance(kind, ArrayOf) else kind
        if not isinstance(inner, Struct):
            yield here, field, given
        elif isinstance(given, list):
            for position, element in enumerate(given):
                yield from walk(inner, element, version, f"{here}[{position}]")
        elif given is not None:
            yield from walk(inner, given, version, here)


class Request(Message):
    """A request of one API."""

    def __init__(
        self, api_key: int, name: str, versions: tuple[int, int], flexible: int | None, *fields: Renamed
    ) -> None:
        super().__init__(name, versions, flexible, *fields)
        self.api_key = api_key


class Response(Request):
    """The answer to a request of one API."""
