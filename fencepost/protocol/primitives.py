"""The types of the wire protocol as construct classes: varints, compact strings and arrays, tagged fields."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from construct import Bytes as RawBytes
from construct import (
    Construct,
    Container,
    Flag,
    Float64b,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int32ub,
    Int64sb,
    ListContainer,
    Subconstruct,
    ValidationError,
    stream_read,
    stream_tell,
    stream_write,
)

from fencepost.protocol.codec_words import TAGS_MAX
from fencepost.protocol.varints import put_varint

Int8 = Int8sb
Int16 = Int16sb
Int32 = Int32sb
Int64 = Int64sb
Uint16 = Int16ub
Uint32 = Int32ub
Float64 = Float64b
Bool = Flag
Uuid = RawBytes(16)


class UnsignedVarint(Construct):
    """A base-128 number of at most 32 bits in at most five bytes (KIP-482); longer ones are refused."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        number = shift = 0
        while True:
            byte = stream_read(stream, 1, path)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise ValidationError("a varint longer than five bytes", path=path)
        if number > 0xFFFFFFFF:
            raise ValidationError("a varint over 32 bits", path=path)
        return int(number)

    def _build(self, obj: int, stream: Any, context: Any, path: str) -> int:
        data = put_varint(obj)
        stream_write(stream, data, len(data), path)
        return obj


UVarint = UnsignedVarint()


def bytes_left(stream: Any) -> int:
    """How many bytes of the frame are still unread (construct's decoder reads from a BytesIO over one frame)."""
    return len(stream.getbuffer()) - int(stream.tell())


class LengthPrefixed(Construct):
    """A string, bytes or records field: a length (int16, int32 or a varint of length + 1), then that many bytes."""

    def __init__(self, kind: str, compact: bool = False, nullable: bool = False) -> None:
        super().__init__()
        self.kind = kind
        self.compact = compact
        self.nullable = nullable

    @property
    def length_field(self) -> Any:
        """The construct of the length before the bytes."""
        return UVarint if self.compact else Int16 if self.kind == "string" else Int32

    def _parse(self, stream: Any, context: Any, path: str) -> str | bytes | None:
        length = self.length_field._parse(stream, context, path) - (1 if self.compact else 0)
        if length < 0:
            if length < -1 or not self.nullable:
                raise ValidationError(f"a length of {length} in a field that cannot be null", path=path)
            return None
        data: bytes = stream_read(stream, length, path)
        if self.kind != "string":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValidationError(f"not UTF-8: {error}", path=path) from error

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            if not self.nullable:
                raise ValidationError("null in a field that cannot be null", path=path)
            self.length_field._build(0 if self.compact else -1, stream, context, path)
            return obj
        data = obj.encode() if self.kind == "string" else bytes(obj)
        self.length_field._build(len(data) + (1 if self.compact else 0), stream, context, path)
        stream_write(stream, data, len(data), path)
        return obj


class ArrayOf(Construct):
    """A count (int32 or a varint of count + 1), then the elements; the count must fit the rest of the frame."""

    def __init__(self, subcon: Any, compact: bool = False, nullable: bool = False) -> None:
        super().__init__()
        self.subcon = subcon
        self.compact = compact
        self.nullable = nullable

    def _parse(self, stream: Any, context: Any, path: str) -> ListContainer | None:
        if self.compact:
            count = UVarint._parse(stream, context, path) - 1
        else:
            count = Int32._parse(stream, context, path)
        if count < 0:
            if count < -1 or not self.nullable:
                raise ValidationError(f"a count of {count} in an array that cannot be null", path=path)
            return None
        if count * minimum_size(self.subcon) > bytes_left(stream):
            raise ValidationError(f"{count} elements cannot fit the {bytes_left(stream)} bytes left", path=path)
        return ListContainer(self.subcon._parsereport(stream, context, f"{path}[{i}]") for i in range(count))

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        length_field = UVarint if self.compact else Int32
        if obj is None:
            if not self.nullable:
                raise ValidationError("null in an array that cannot be null", path=path)
            length_field._build(0 if self.compact else -1, stream, context, path)
            return obj
        length_field._build(len(obj) + (1 if self.compact else 0), stream, context, path)
        for element in obj:
            self.subcon._build(element, stream, context, path)
        return obj


class NullableStruct(Subconstruct):
    """A struct after one byte: -1 for null, 1 for a value (KIP-893)."""

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return None if Int8._parse(stream, context, path) < 0 else self.subcon._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        Int8._build(-1 if obj is None else 1, stream, context, path)
        return obj if obj is None else self.subcon._build(obj, stream, context, path)


class KnownTag(NamedTuple):
    """A tagged field that this version of a struct knows."""

    tag: int
    name: str
    subcon: Any
    default: Any


class TaggedFields(Construct):
    """The end of a flexible struct (KIP-482): known tags as fields, unknown ones kept as bytes and written back.

    Parses to a dict {name or tag number: value}, and builds from one.
    """

    def __init__(self, known: Iterable[KnownTag]) -> None:
        super().__init__()
        self.known = {field.tag: field for field in known}

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str | int, Any]:
        found: dict[str | int, Any] = {}
        previous = -1
        count = UVarint._parse(stream, context, path)
        if count > TAGS_MAX:
            raise ValidationError(f"{count} tagged fields, at most {TAGS_MAX} are allowed", path=path)
        for _ in range(count):
            tag = UVarint._parse(stream, context, path)
            size = UVarint._parse(stream, context, path)
            if tag <= previous:
                raise ValidationError(f"tag {tag} after tag {previous}: tags must rise", path=path)
            previous = tag
            end = stream_tell(stream, path) + size
            field = self.known.get(tag)
            if field is None:
                found[tag] = stream_read(stream, size, path)
                continue
            found[field.name] = field.subcon._parsereport(stream, context, f"{path} -> {field.name}")
            if stream_tell(stream, path) != end:
                raise ValidationError(f"tagged field {field.name} does not fill its {size} bytes", path=path)
        return found

    def _build(self, obj: dict[str | int, Any], stream: Any, context: Any, path: str) -> Any:
        numbers = {field.name: field.tag for field in self.known.values()}
        by_tag = sorted((numbers[key] if isinstance(key, str) else key, value) for key, value in (obj or {}).items())
        UVarint._build(len(by_tag), stream, context, path)
        for tag, value in by_tag:
            body = self.known[tag].subcon.build(value) if tag in self.known else bytes(value)
            UVarint._build(tag, stream, context, path)
            UVarint._build(len(body), stream, context, path)
            stream_write(stream, body, len(body), path)
        return obj


class VersionedStruct(Construct):
    """One struct at one version: ordered (name, subcon) pairs and, in flexible versions, the tagged fields.

    `maker` is its declaration: that class creates the values that the generated code returns.
    """

    def __init__(self, maker: Any, fields: list[tuple[str, Any]], tagged: TaggedFields | None) -> None:
        super().__init__()
        self.maker = maker
        self.fields = fields
        self.tagged = tagged

    def _parse(self, stream: Any, context: Any, path: str) -> Container:
        found = Container()
        for name, subcon in self.fields:
            found[name] = subcon._parsereport(stream, context, f"{path} -> {name}")
        if self.tagged is not None:
            found["_tags"] = self.tagged._parsereport(stream, context, path)
        return found

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        for name, subcon in self.fields:
            subcon._build(obj[name], stream, context, f"{path} -> {name}")
        if self.tagged is not None:
            self.tagged._build(obj.get("_tags"), stream, context, path)
        return obj


def minimum_size(subcon: Any) -> int:
    """The fewest bytes that one value of a (version-specific) type can take."""
    if isinstance(subcon, LengthPrefixed):
        return 1 if subcon.compact else 2 if subcon.kind == "string" else 4
    if isinstance(subcon, ArrayOf):
        return 1 if subcon.compact else 4
    if isinstance(subcon, NullableStruct):
        return 1
    if isinstance(subcon, VersionedStruct):
        return sum(minimum_size(field) for _, field in subcon.fields) + (subcon.tagged is not None)
    return int(subcon.sizeof())
