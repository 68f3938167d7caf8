"""The functions and types of declarations: one declaration has all versions of a message, and is its values' class."""

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar, dataclass_transform

from construct import ConstructError

from fencepost.protocol.api_keys import SERVED, ApiKey
from fencepost.protocol.fields import (
    NO_VERSION,
    UNSET,
    Bool,
    Buffer,
    Bytes,
    Field,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uint16,
    Uint32,
    Uuid,
    field,
    since,
    until,
)
from fencepost.protocol.primitives import (
    ArrayOf,
    KnownTag,
    LengthPrefixed,
    NullableStruct,
    TaggedFields,
    VersionedStruct,
)

if TYPE_CHECKING:
    from fencepost.protocol.compiler import DecodeFunction, EncodeFunction

__all__ = [
    "NO_VERSION",
    "Bool",
    "Buffer",
    "Bytes",
    "Field",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Records",
    "String",
    "Uint16",
    "Uint32",
    "Uuid",
    "field",
    "since",
    "until",
]
"""The names of `fields`: a module of declarations imports from here only. Names defined here need no entry."""


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


class StructType(type):
    """The type of a declaration: a class whose instances are the values of one struct, for all its versions."""

    fields: dict[str, Field]

    def __new__(mcls, name: str, bases: tuple[type, ...], space: dict[str, Any], **facts: Any) -> "StructType":
        if "__slots__" not in space:  # the bases below have slots of their own and declare no field
            fields = declared_fields(name, bases[0], space)
            names = tuple(fields)
            space |= {"__slots__": names, "_fields": names, "fields": fields, "__init__": constructor(name, fields)}
        return super().__new__(mcls, name, bases, space, **facts)

    @property
    def wire(cls) -> "StructType":
        """The declaration for the codecs: the class itself. Those of metadata records are other classes."""
        return cls

    def at(cls, version: int, flexible: bool) -> VersionedStruct:
        """This struct as a plain construct tree of one version."""
        plain: list[tuple[str, Any]] = []
        tagged: list[KnownTag] = []
        for name, facts in cls.fields.items():
            if not facts.exists(version):
                continue
            subcon = specialise(facts.subcon, version, flexible, facts.nullable <= version, facts.is_tagged(version))
            if facts.is_tagged(version):
                tagged.append(KnownTag(facts.tag or 0, name, subcon, facts.default))
            else:
                plain.append((name, subcon))
        return VersionedStruct(cls, plain, TaggedFields(tagged) if flexible else None)


@dataclass_transform(kw_only_default=True, eq_default=False)
class Value(metaclass=StructType):
    """A value of a struct. Its fields are slots, and keyword arguments of its constructor with Kafka's defaults.

    A subclass declares a struct for all its versions: its annotations are the fields, in the order on the wire.
    """

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


class MessageValue(Value):
    """A request, a response or a stored record body: a struct with its range of versions."""

    __slots__ = ()
    versions: ClassVar[tuple[int, int]]
    flexible_since: ClassVar[int]
    _decoders: "ClassVar[dict[int, DecodeFunction]]"
    _encoders: "ClassVar[dict[int, EncodeFunction]]"

    def __init_subclass__(cls, *, versions: tuple[int, int] | None = None, flexible: int | None = None) -> None:
        """`class X(MessageValue, versions=(0, 1), flexible=1)`: its versions, and the first flexible one (KIP-482)."""
        super().__init_subclass__()
        if versions is not None:
            cls.versions, cls.flexible_since = versions, NO_VERSION if flexible is None else flexible
            cls._decoders, cls._encoders = {}, {}

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
        for path, facts, given in walk(cls, value, version):
            try:
                specialise(facts.subcon, version, cls.is_flexible(version), facts.nullable <= version).build(given)
            except Exception as error:  # noqa: BLE001 - any failure identifies the field
                return EncodeError(f"{cls.__name__} v{version}, {path} = {given!r:.80}: {error}")
        return EncodeError(f"{cls.__name__} v{version}: {cause}")


def walk(struct: StructType, value: Any, version: int, path: str = "") -> Iterator[tuple[str, Field, Any]]:
    """Every leaf field of `value` in `version`, with its path."""
    for name, facts in struct.fields.items():
        if not facts.exists(version):
            continue
        given, kind, here = getattr(value, name, None), facts.subcon, f"{path}.{name}".lstrip(".")
        inner = kind.subcon if isinstance(kind, ArrayOf) else kind
        if not isinstance(inner, StructType):
            yield here, facts, given
        elif inner is not kind and isinstance(given, list | tuple):
            for position, element in enumerate(given):
                yield from walk(inner, element, version, f"{here}[{position}]")
        elif given is not None:
            yield from walk(inner, given, version, here)


class ApiValue(MessageValue):
    """A request or a response of one API, which has the versions in api_keys.py."""

    __slots__ = ()
    api_key: ClassVar[ApiKey]

    def __init_subclass__(cls, *, api: ApiKey | None = None) -> None:
        if api is None:
            super().__init_subclass__()
            return
        super().__init_subclass__(versions=SERVED[api].declared, flexible=SERVED[api].flexible_since)
        cls.api_key = api


class ResponseValue(ApiValue):
    """The answer to a request of one API."""

    __slots__ = ()


R = TypeVar("R", bound=ResponseValue, covariant=True)


class RequestValue(ApiValue, Generic[R]):
    """A request of one API, whose response is an R."""

    __slots__ = ()


def declared_fields(struct: str, base: type, space: dict[str, Any]) -> dict[str, Field]:
    """The fields that a class body declares; their defaults leave its namespace, where slots will stand."""
    fields: dict[str, Field] = {}
    for name, annotation in annotations_in(space).items():
        if hasattr(base, name):
            raise TypeError(f"{struct}.{name} would hide what every declaration has by that name")
        if name not in space:
            raise TypeError(f"{struct}.{name} has no default: a type checker would require it of every caller")
        given = space.pop(name)
        facts = given if isinstance(given, Field) else field(default=given)
        fields[name] = facts.annotated(annotation)
    return fields


def annotations_in(space: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a class body. From Python 3.14 on it has a function that makes them (PEP 649)."""
    make = space.get("__annotate_func__")
    values = 1  # annotationlib.Format.VALUE
    found: dict[str, Any] = make(values) if make else space.get("__annotations__", {})
    return found


def constructor(struct: str, fields: dict[str, Field]) -> Any:
    """An `__init__` that compiles the struct's own at its first value: a process makes values of few of the structs."""

    def __init__(self: Any, **values: Any) -> None:
        type(self).__init__ = compile_constructor(struct, fields)
        self.__init__(**values)

    return __init__


def compile_constructor(struct: str, fields: dict[str, Field]) -> Any:
    """An `__init__` with keyword arguments and Kafka's defaults, as if written by hand."""
    scope: dict[str, Any] = {"U": UNSET}
    arguments, body = ["self"], ["self.unknown_tags = None"]
    for name, facts in fields.items():
        scope[f"d_{name}"] = facts.default
        is_made = callable(facts.default)
        arguments.append(f"{name}=U" if is_made else f"{name}=d_{name}")
        body.append(f"self.{name} = " + (f"d_{name}() if {name} is U else {name}" if is_made else name))
    if len(arguments) > 1:
        arguments.insert(1, "*")
    source = f"def __init__({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<{struct}>", "exec"), scope)
    return scope["__init__"]
