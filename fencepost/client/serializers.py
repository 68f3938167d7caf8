"""Serializers and deserializers of keys and values, compatible with Kafka's own Java classes.

Each object here works both ways: `key_serializer=` and `value_serializer=` of a producer, `..._deserializer=` of a
consumer. A plain function (`str.encode`, `bytes.decode`) works too, and so do confluent-kafka's serializers with a
schema registry. None, Kafka's null, is never passed to a serializer or returned by a deserializer: it stays
None.
"""

import struct
import uuid
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload, runtime_checkable

from fencepost.client.errors import KafkaError
from fencepost.client.schema_registry import adapted
from fencepost.extras import needed_for

__all__ = [
    "AnyDeserializer",
    "AnySerializer",
    "Bytes",
    "Deserializer",
    "Double",
    "Float",
    "Header",
    "Integer",
    "Json",
    "Long",
    "SerializationError",
    "Serializer",
    "Short",
    "String",
    "Uuid",
]

T = TypeVar("T")
T_in = TypeVar("T_in", contravariant=True)
T_out = TypeVar("T_out", covariant=True)
Header = tuple[str, bytes | None]
"""A header's name and value."""


class SerializationError(KafkaError, ValueError):
    """A serializer or deserializer failed for a key or value; its own error is the cause."""


@runtime_checkable
class Serializer(Protocol[T_in]):
    """Values to bytes. `headers` is the record's list of headers; headers appended to it are sent with the record."""

    def serialize(self, topic: str, headers: list[Header], value: T_in) -> bytes | None:
        """The bytes to send; None for Kafka's null. `send` raises any exception as SerializationError."""


@runtime_checkable
class Deserializer(Protocol[T_out]):
    """Bytes to values."""

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> T_out:
        """The value of `data`. Raises ValueError for invalid data."""


AnySerializer = Serializer[T] | Callable[[T], bytes | None]
"""The type of an option: an object with `serialize`, or a function of the value alone."""
AnyDeserializer = Deserializer[T] | Callable[[bytes], T]
"""The type of an option: an object with `deserialize`, or a function of the bytes alone."""


@runtime_checkable
class LooksUp(Protocol):
    """A serializer or deserializer that sometimes waits for a service, as those with a schema registry do.

    If something is `unknown` the client first calls `look_up` in another thread, and then converts the bytes or the
    value, in the event loop's thread.
    """

    def unknown(self, topic: str, headers: Sequence[Header], item: Any) -> Hashable | None:
        """A key for what must be looked up first: equal for items with the same need, None if nothing is needed.

        `item` is the value to serialize, or the bytes to deserialize.
        """

    def look_up(self, topic: str, headers: Sequence[Header], item: Any) -> None:
        """Fetch and cache what is needed. Raises nothing: the next call raises a failure."""


class _Named:
    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Bytes(_Named):
    """Unchanged bytes: Java's ByteArraySerializer."""

    def serialize(self, topic: str, headers: list[Header], value: bytes) -> bytes:
        """The same bytes."""
        return bytes(value)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> bytes:
        """The same bytes."""
        return data


class String(_Named):
    """Text: Java's StringSerializer, UTF-8 by default."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, topic: str, headers: list[Header], value: str) -> bytes:
        """Encoded text."""
        return value.encode(self._encoding)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> str:
        """Decoded text. Raises UnicodeDecodeError, where Java puts replacement characters."""
        return data.decode(self._encoding)


class _Packed(_Named, Generic[T]):
    """A number of fixed size, big-endian."""

    _layout: struct.Struct

    def serialize(self, topic: str, headers: list[Header], value: T) -> bytes:
        """The number as big-endian bytes. Raises struct.error for a number that does not fit."""
        return self._layout.pack(value)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> T:
        """The number. Raises ValueError for data of another size."""
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


class Uuid(_Named):
    """Java's UUIDSerializer: the text with hyphens."""

    def serialize(self, topic: str, headers: list[Header], value: uuid.UUID) -> bytes:
        """36 letters."""
        return str(value).encode()

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> uuid.UUID:
        """The UUID. Raises ValueError."""
        return uuid.UUID(data.decode())


class Json(_Named, Generic[T]):
    """JSON by msgspec: `Json(Order)` for a type that is checked when read, `Json()` for any value."""

    @overload
    def __init__(self: "Json[Any]") -> None: ...
    @overload
    def __init__(self, kind: type[T]) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        with needed_for("Json"):
            import msgspec  # here: most programs do not need it

        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def serialize(self, topic: str, headers: list[Header], value: T) -> bytes:
        """JSON without spaces. Raises TypeError for values that JSON cannot represent."""
        return self._encoder.encode(value)

    def deserialize(self, topic: str, headers: Sequence[Header], data: bytes) -> T:
        """The value. Raises msgspec.ValidationError, or msgspec.DecodeError, with the place in the text."""
        return self._decoder.decode(data)


class SerializeCall:
    """The call of a producer for each key or value that is not None."""

    __slots__ = ("_inner", "_what", "lookup")

    def __init__(self, given: AnySerializer[Any], what: str) -> None:
        given = adapted(given, what)
        self._inner = given.serialize if isinstance(given, Serializer) else _of_the_value(given)
        self._what = what
        self.lookup = given if isinstance(given, LooksUp) else None

    def __call__(self, topic: str, headers: list[Header], value: Any) -> bytes | None:
        """The bytes to send. Raises SerializationError."""
        try:
            data: bytes | None = self._inner(topic, headers, value)
            return data
        except Exception as error:
            raise SerializationError(f"a {self._what} for {topic!r} cannot be serialized: {error}") from error


class DeserializeCall:
    """The call of a consumer for each key or value that is not None."""

    __slots__ = ("_inner", "_what", "lookup")

    def __init__(self, given: AnyDeserializer[Any], what: str) -> None:
        given = adapted(given, what)
        self._inner = given.deserialize if isinstance(given, Deserializer) else _of_the_value(given)
        self._what = what
        self.lookup = given if isinstance(given, LooksUp) else None

    def __call__(self, topic: str, headers: Sequence[Header], data: bytes) -> Any:
        """The value. Raises SerializationError."""
        try:
            return self._inner(topic, headers, data)
        except Exception as error:
            raise SerializationError(f"a {self._what} of {topic!r} cannot be read: {error}") from error


def _of_the_value(plain: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda topic, headers, item: plain(item)
