"""The functions and types of declarations: one declaration has all versions of a message, and is its values' class."""

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar

from construct import Construct, ConstructError, Renamed

from fencepost.protocol.api_keys import SERVED, ApiKey, Versions
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

__all__ = ["Bool", "Float64", "Int8", "Int16", "Int32", "Int64", "Uint16", "Uint32", "Uuid"]
"""The names of `primitives` that declarations use; public names defined in this module need no entry."""

String = LengthPrefixed("string")
Bytes = LengthPrefixed("bytes")
Records = LengthPrefixed("records", nullable=True)
NO_VERSION = 1 << 15
"""Above every version: for a field that is never null, or a message that is never flexible."""
UNSET: Any = object()


class DecodeError(ValueError):
    """The bytes are not a message of this API and version; the text names API, version, field and offset."""

    def __init__(
        self, message: str, version: int, why: str, field: str | None = None, offset: int | None = None
    ) -> None:
        where = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{message} v{version}{', ' + field if field else ''}{where}: {why}")
        self.message, self.version, self.field, self.offset = message, version, field, offset


class EncodeError(ValueError):
    """The value cannot be encoded as this API and version."""


class TooManyElements(ValueError):
    """A request's arrays have more elements than a broker decodes (see `stepwise.py`)."""


EXPLAINED_BYTES_MAX = 4 << 10
"""The longest request whose wrong field is searched: the search takes about 10 ms."""


def Array(element: Any) -> ArrayOf:
    """An array of `element`, in the encoding of the message's version."""
    return ArrayOf(element)


class Field(Construct):
    """A type with the versions that have it, and its default; `nullable` is the first version in which it may be null.

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
        super().__init__()
        self.subcon = subcon
        self.since, self.until, self.nullable = since, until, nullable
        self.tag = tag
        self.tagged_since = since if tagged_since is None else tagged_since
        self.default = default_of(self) if default is UNSET else default

    def exists(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.tagged_since


def default_of(field: Field) -> Any:
    """Kafka's default if the declaration has none: zero, empty, or null for a tagged struct that is absent."""
    kind = field.subcon
    if isinstance(kind, StructType):
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


class StructType(type):
    """The type of a declaration: a class whose instances are the values of one struct, for all its versions."""

    fields: dict[str, Field]

    def __rtruediv__(cls, name: str) -> Renamed:
        """`"name" / Declaration`: a field with one such struct."""
        return Renamed(Field(cls), name)

    def at(cls, version: int, flexible: bool) -> VersionedStruct:
        """This struct as a plain construct tree of one version."""
        plain: list[tuple[str, Any]] = []
        tagged: list[KnownTag] = []
        for name, field in cls.fields.items():
            if not field.exists(version):
                continue
            subcon = specialise(field.subcon, version, flexible, field.nullable <= version, field.is_tagged(version))
            if field.is_tagged(version):
                tagged.append(KnownTag(field.tag or 0, name, subcon, field.default))
            else:
                plain.append((name, subcon))
        return VersionedStruct(cls, plain, TaggedFields(tagged) if flexible else None)


class Value(metaclass=StructType):
    """A value of a struct. Its fields are slots, and keyword arguments of its constructor with Kafka's defaults."""

    __slots__ = ("unknown_tags",)
    _fields: ClassVar[tuple[str, ...]] = ()

    unknown_tags: dict[int, bytes] | None
    """Tagged fields that this build does not know, by tag; they are kept and written back."""

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__ or not isinstance(other, Value):
            return NotImplemented
        mine, theirs = self.unknown_tags or {}, other.unknown_tags or {}
        return mine == theirs and all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({inside})"


def specialise(kind: Any, version: int, flexible: bool, nullable: bool = False, tagged: bool = False) -> Any:
    """The construct of one field's type at one version."""
    if isinstance(kind, LengthPrefixed):
        return LengthPrefixed(kind.kind, flexible, nullable or kind.nullable)
    if isinstance(kind, ArrayOf):
        return ArrayOf(specialise(kind.subcon, version, flexible), flexible, nullable)
    if isinstance(kind, StructType):
        tree = kind.at(version, flexible)
        return NullableStruct(tree) if nullable and not tagged else tree
    return kind


Buffer = bytes | bytearray | memoryview


class MessageValue(Value):
    """A request, a response or a stored record body: a struct with its range of versions."""

    __slots__ = ()
    versions: ClassVar[tuple[int, int]]
    flexible_since: ClassVar[int]
    _decoders: "ClassVar[dict[int, DecodeFunction]]"
    _encoders: "ClassVar[dict[int, EncodeFunction]]"

    @classmethod
    def is_flexible(cls, version: int) -> bool:
        """Whether `version` has compact lengths and tagged fields (KIP-482)."""
        return version >= cls.flexible_since

    @classmethod
    def tree(cls, version: int) -> VersionedStruct:
        """The construct tree of one version: the oracle in the tests of the generated code."""
        if not cls.versions[0] <= version <= cls.versions[1]:
            raise EncodeError(f"{cls.__name__} has no version {version}, only {cls.versions[0]}-{cls.versions[1]}")
        return cls.at(version, cls.is_flexible(version))

    @classmethod
    def decoder(cls, version: int) -> "DecodeFunction":
        """The generated decoder of one version, made on first use: brokers decode no responses, clients no requests."""
        found = cls._decoders.get(version)
        if found is None:
            from fencepost.protocol.compiler import generate_decoder  # imported late: a program may decode nothing

            found = cls._decoders[version] = generate_decoder(cls.tree(version), f"{cls.__name__}V{version}")
        return found

    @classmethod
    def encoder(cls, version: int) -> "EncodeFunction":
        """The generated encoder of one version, made on first use."""
        found = cls._encoders.get(version)
        if found is None:
            from fencepost.protocol.compiler import generate_encoder  # imported late: a program may encode nothing

            found = cls._encoders[version] = generate_encoder(cls.tree(version), f"{cls.__name__}V{version}")
        return found

    @classmethod
    def encode_parts(cls, value: Self, version: int) -> list[Any]:
        """The bytes of `value` as a list of buffers; the buffers of `records` fields are the given ones, not copies.

        Raises EncodeError if a field cannot be encoded.
        """
        try:
            return (cls._encoders.get(version) or cls.encoder(version))(value)
        except EncodeError:
            raise
        except Exception as error:
            raise cls._encode_error(value, version, error) from error

    @classmethod
    def encode(cls, value: Self, version: int) -> bytes:
        """The bytes of `value` at `version`. Raises EncodeError."""
        return b"".join(cls.encode_parts(value, version))

    @classmethod
    def decode(cls, buffer: Buffer, version: int, start: int = 0) -> Self:
        """The value in `buffer` from `start` to its end. Raises DecodeError, also for bytes that are left over.

        `records` fields are memoryviews into `buffer`; all else is copied.
        """
        value, end = cls.decode_prefix(buffer, version, start)
        left = len(memoryview(buffer)) - end
        if left:
            why = f"{left} bytes are left over after the last field"
            raise DecodeError(cls.__name__, version, why, offset=end)
        return value

    @classmethod
    def decode_prefix(cls, buffer: Buffer, version: int, start: int = 0) -> tuple[Self, int]:
        """As `decode`, for a value with other bytes after it: the value and its end. Raises DecodeError."""
        view = memoryview(buffer)
        try:
            value, end = cls.decoder(version)(view, start)
        except Exception as error:  # noqa: BLE001 - construct's decoder finds the field, whatever the error is
            cls._explain(view, version, start, error)
        return value, end

    @classmethod
    def refuse(cls, view: memoryview, version: int, start: int, cause: Exception) -> NoReturn:
        """Raise the DecodeError of a request that its generated decoder refused for `cause`.

        The search for the field is slow, so only short requests get one.
        """
        if isinstance(cause, TooManyElements) or len(view) - start > EXPLAINED_BYTES_MAX:
            raise DecodeError(cls.__name__, version, str(cause) or "the fields do not fit the frame") from cause
        cls._explain(view, version, start, cause)

    @classmethod
    def _explain(cls, view: memoryview, version: int, start: int, cause: Exception) -> NoReturn:
        """Decode again with the construct tree, which knows field names, and raise its error as DecodeError."""
        stream = BytesIO(view[start:])
        try:
            cls.tree(version)._parsereport(stream, {}, "")
        except ConstructError as error:
            field = ".".join((error.path or "").split(" -> ")[1:]) or None
            why = str(error).rpartition("\n")[2]
            raise DecodeError(cls.__name__, version, why, field, start + stream.tell()) from cause
        raise AssertionError(f"{cls.__name__} v{version}: the two decoders disagree") from cause

    @classmethod
    def _encode_error(cls, value: Any, version: int, cause: Exception) -> EncodeError:
        for path, field, given in walk(cls, value, version):
            try:
                specialise(field.subcon, version, cls.is_flexible(version), field.nullable <= version).build(given)
            except Exception as error:  # noqa: BLE001 - any failure identifies the field
                return EncodeError(f"{cls.__name__} v{version}, {path} = {given!r:.80}: {error}")
        return EncodeError(f"{cls.__name__} v{version}: {cause}")


def walk(struct: StructType, value: Any, version: int, path: str = "") -> Iterator[tuple[str, Field, Any]]:
    """Every leaf field of `value` in `version`, with its path."""
    for name, field in struct.fields.items():
        if not field.exists(version):
            continue
        given, kind, here = getattr(value, name, None), field.subcon, f"{path}.{name}".lstrip(".")
        inner = kind.subcon if isinstance(kind, ArrayOf) else kind
        if not isinstance(inner, StructType):
            yield here, field, given
        elif inner is not kind and isinstance(given, list | tuple):
            for position, element in enumerate(given):
                yield from walk(inner, element, version, f"{here}[{position}]")
        elif given is not None:
            yield from walk(inner, given, version, here)


class ResponseValue(MessageValue):
    """The answer to a request of one API."""

    __slots__ = ()
    api_key: ClassVar[ApiKey]


R = TypeVar("R", bound=ResponseValue, covariant=True)


class RequestValue(MessageValue, Generic[R]):
    """A request of one API, whose response is an R."""

    __slots__ = ()
    api_key: ClassVar[ApiKey]


if TYPE_CHECKING:

    class LooseValue(MessageValue):
        """A declaration without a stub, for a type checker: its fields are unknown."""

        def __init__(self, **fields: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...


def Struct(name: str, *fields: Renamed) -> "type[LooseValue]":
    """Declare a struct that is a field of messages."""
    return declare(Value, name, fields)


def Message(name: str, versions: tuple[int, int], flexible: int | None, *fields: Renamed) -> "type[LooseValue]":
    """Declare a message: its versions, and the first flexible one (KIP-482)."""
    return _message(MessageValue, name, Versions(versions, flexible), fields)


def Request(key: ApiKey, *fields: Renamed) -> "type[LooseValue]":
    """Declare the request of an API, with the versions in api_keys.py."""
    return _of_api(key, "Request", RequestValue, fields)


def Response(key: ApiKey, *fields: Renamed) -> "type[LooseValue]":
    """Declare the response of an API, with the versions in api_keys.py."""
    return _of_api(key, "Response", ResponseValue, fields)


def _of_api(key: ApiKey, role: str, base: type[MessageValue], fields: tuple[Renamed, ...]) -> "type[LooseValue]":
    return _message(base, key.api_name + role, SERVED[key], fields, api_key=key)


def _message(base: type[Value], name: str, versions: Versions, fields: Any, **own: Any) -> "type[LooseValue]":
    since = NO_VERSION if versions.flexible_since is None else versions.flexible_since
    own |= {"versions": versions.declared, "flexible_since": since, "_decoders": {}, "_encoders": {}}
    return declare(base, name, fields, **own)


def declare(base: type[Value], name: str, fields: tuple[Renamed, ...], **facts: Any) -> "type[LooseValue]":
    """The class of one struct's values, with one slot per field.

    A type checker does not see classes made at run time: the stubs beside the message modules are its types.
    """
    declared: dict[str, Field] = {}
    for renamed in fields:
        if hasattr(base, renamed.name):
            raise TypeError(f"{name}.{renamed.name} would hide what every declaration has by that name")
        declared[renamed.name] = renamed.subcon if isinstance(renamed.subcon, Field) else Field(renamed.subcon)
    names = tuple(declared)
    space = {"__slots__": names, "_fields": names, "fields": declared, "__init__": constructor(name, declared)}
    return StructType(name, (base,), space | facts)  # type: ignore[return-value]


def constructor(struct: str, fields: dict[str, Field]) -> Any:
    """An `__init__` with keyword arguments and Kafka's defaults, as if written by hand."""
    scope: dict[str, Any] = {"U": UNSET}
    arguments, body = ["self"], ["self.unknown_tags = None"]
    for name, field in fields.items():
        scope[f"d_{name}"] = field.default
        is_made = callable(field.default)
        arguments.append(f"{name}=U" if is_made else f"{name}=d_{name}")
        body.append(f"self.{name} = " + (f"d_{name}() if {name} is U else {name}" if is_made else name))
    if len(arguments) > 1:
        arguments.insert(1, "*")
    source = f"def __init__({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<{struct}>", "exec"), scope)
    return scope["__init__"]
