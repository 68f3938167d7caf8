"""Keys and values that are not bytes: what turns them into bytes and back, compatible with Kafka's own Java classes.

Each object here works both ways: `key_serializer=` and `value_serializer=` of a producer, `..._deserializer=` of a
consumer. A plain function (`str.encode`, `bytes.decode`) does as well. None, Kafka's null, is never handed to a
serializer and never comes out of a deserializer: it stays None.
"""

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload, runtime_checkable

from fencepost.client.errors import KafkaError

T = TypeVar("T")
T_in = TypeVar("T_in", contravariant=True)
T_out = TypeVar("T_out", covariant=True)
Header = tuple[str, bytes | None]


class SerializationError(KafkaError, ValueError):
    """A key or value that its serializer or deserializer cannot take; the cause is what that raised."""


@runtime_checkable
class Serializer(Protocol[T_in]):
    """Values to bytes. `headers` is the record's list of headers; what is appended to it is sent with the record."""

    def serialize(self, topic: str, headers: list[Header], value: T_in) -> bytes | None:
        """The bytes to send; None for Kafka's null. Whatever is raised leaves `send` as SerializationError."""


@runtime_checkable
class Deserializer(Protocol[T_out]):
    """Bytes to values."""

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> T_out:
        """The value behind `data`. Raises ValueError where there is none."""


AnySerializer = Serializer[T] | Callable[[T], bytes | None]
"""What an option takes: an object with `serialize`, or a function of the value alone."""
AnyDeserializer = Deserializer[T] | Callable[[bytes], T]
"""What an option takes: an object with `deserialize`, or a function of the bytes alone."""
SerializeCall = Callable[[str, list[Header], Any], bytes | None]
DeserializeCall = Callable[[str, Sequence[Header], bytes], Any]


class Bytes:
    """Bytes as they are: Java's ByteArraySerializer."""

    def serialize(self, topic: str, headers: list[Header], value: bytes) -> bytes:
        """The same bytes."""
        return bytes(value)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> bytes:
        """The same bytes."""
        return data


class String:
    """Text: Java's StringSerializer, UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, headers: list[Header], value: str) -> bytes:
        """Encoded text."""
        return value.encode(self._encoding)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> str:
        """Decoded text. Raises UnicodeDecodeError, where Java puts replacement characters."""
        return data.decode(self._encoding)


class _Packed(Generic[T]):
    """A number of fixed size, big-endian."""

    _layout: struct.Struct

    def serialize(self, topic: str, headers: list[Header], value: T) -> bytes:
        """So many bytes, big-endian. Raises struct.error for a number that they cannot hold."""
        return self._layout.pack(value)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> T:
        """The number. Raises ValueError for another number of bytes."""
        if len(data) != self._layout.size:
            raise ValueError(f"{len(data)} bytes, {self._layout.size} are needed")
        value: T = self._layout.unpack(data)[0]
        return value


class Short(_Packed[int]):
    """Java's ShortSerializer: 2 bytes."""

    _layout = struct.Struct(">h")


class Integer(_Packed[int]):
    """Java's IntegerSerializer: 4 bytes."""

    _layout = struct.Struct(">i")


class Long(_Packed[int]):
    """Java's LongSerializer: 8 bytes."""

    _layout = struct.Struct(">q")


class Float(_Packed[float]):
    """Java's FloatSerializer: 4 bytes."""

    _layout = struct.Struct(">f")


class Double(_Packed[float]):
    """Java's DoubleSerializer: 8 bytes."""

    _layout = struct.Struct(">d")


class Uuid:
    """Java's UUIDSerializer: the text with hyphens."""

    def serialize(self, topic: str, headers: list[Header], value: uuid.UUID) -> bytes:
        """36 letters."""
        return str(value).encode()

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> uuid.UUID:
        """The UUID. Raises ValueError."""
        return uuid.UUID(data.decode())


class Json(Generic[T]):
    """JSON by msgspec: `Json(Order)` for a type that is checked when read, `Json()` for anything."""

    @overload
    def __init__(self: "Json[Any]") -> None: ...
    @overload
    def __init__(self, kind: type[T]) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        import msgspec  # here: most programs do without

        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def serialize(self, topic: str, headers: list[Header], value: T) -> bytes:
        """JSON without spaces. Raises TypeError for what JSON cannot say."""
        return self._encoder.encode(value)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> T:
        """The value. Raises msgspec.ValidationError, or msgspec.DecodeError, with the place in the text."""
        return self._decoder.decode(data)


def serialize_call(given: AnySerializer[Any] | None, what: str) -> SerializeCall | None:
    """What a producer calls for each `what` ("key", "value") that is not None; that raises SerializationError."""
    if given is None:
        return None
    inner: Callable[..., bytes | None]
    if isinstance(given, Serializer):
        inner = given.serialize
    else:
        plain = given

        def inner(topic: str, headers: list[Header], value: Any) -> bytes | None:
            return plain(value)

    def call(topic: str, headers: list[Header], value: Any) -> bytes | None:
        try:
            return inner(topic, headers, value)
        except Exception as error:
            raise SerializationError(f"a {what} for {topic!r} cannot be serialized: {error}") from error

    return call


def deserialize_call(given: AnyDeserializer[Any] | None, what: str) -> DeserializeCall | None:
    """What a consumer calls for each `what` that is not None. Raises SerializationError when called."""
    if given is None:
        return None
    inner: Callable[..., Any]
    if isinstance(given, Deserializer):
        inner = given.deserialize
    else:
        plain = given

        def inner(topic: str, headers: Sequence[Header], data: bytes) -> Any:
            return plain(data)

    def call(topic: str, headers: Sequence[Header], data: bytes) -> Any:
        try:
            return inner(topic, headers, data)
        except Exception as error:
            raise SerializationError(f"a {what} of {topic!r} cannot be read: {error}") from error

    return call
