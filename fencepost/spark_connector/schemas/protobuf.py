"""Protobuf: messages to columns by the fields of a descriptor, and rows to messages."""

import base64
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from fencepost.spark_connector.schemas.codec import Reader
from fencepost.spark_connector.schemas.errors import PoisonRecordError, SchemaError
from fencepost.spark_connector.schemas.framing import read_indexes, written_id, written_indexes
from fencepost.spark_connector.schemas.protobuf_fields import struct_of
from fencepost.spark_connector.schemas.protobuf_versions import Check, check_of
from fencepost.spark_connector.schemas.registry import SchemaText


class ProtobufCodec:
    """One message of a Protobuf file. Records of other versions are read by the numbers of the fields."""

    def __init__(self, schema: SchemaText, message: str | None = None) -> None:
        """`message` is its full name; by default it is the first of the file. Raises SchemaError."""
        file = _file(schema)
        descriptor = _message(file, (0,)) if message is None else _named(file, message)
        self._class: Any = GetMessageClass(descriptor)
        self._struct = struct_of(descriptor, "value", ())
        self.arrow_type = self._struct.arrow
        self._prefix = written_id(schema.schema_id or 0) + written_indexes(_indexes(descriptor))

    def reader(self, writer: SchemaText) -> Reader:
        """The writer's schema tells which message a record holds."""
        return _ProtobufReader(_file(writer), self._class)

    def assemble(self, values: Sequence[Any]) -> pa.Array:
        return self._struct.columns(values)

    def write(self, value: Any) -> bytes:
        """One record with its framing. Raises ValueError or TypeError."""
        message = self._class()
        self._struct.fill(message, value)
        return self._prefix + bytes(message.SerializeToString(deterministic=True))


class _ProtobufReader:
    def __init__(self, file: Any, made: Any) -> None:
        self._file, self._class = file, made
        self._descriptor = made.DESCRIPTOR
        self._found: dict[tuple[int, ...], tuple[str, Any, Check | None]] = {}
        """By message indexes: the name and class of the writer's message, and what its records must pass."""

    def one(self, frame: bytes, at: int) -> Any:
        indexes, at = read_indexes(frame, at)
        found, written, check = self._found.get(indexes) or self._find(indexes)
        name = self._descriptor.full_name
        if found != name:
            raise PoisonRecordError(f"it is a {found}, and {name} is wanted")
        message = self._class()
        try:
            message.ParseFromString(frame[at:])
            if check is not None:
                check(written.FromString(frame[at:]), message)
        except DecodeError as error:
            raise PoisonRecordError(f"its data is no {name}: {error}") from error
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise PoisonRecordError(f"it has no {missing}, which its schema requires")
        return message

    def _find(self, indexes: tuple[int, ...]) -> tuple[str, Any, Check | None]:
        descriptor = _message(self._file, indexes)
        same = descriptor.full_name == self._descriptor.full_name
        check = check_of(descriptor, self._descriptor) if same else None
        found = self._found[indexes] = descriptor.full_name, GetMessageClass(descriptor), check
        return found

    def many(self, frames: Sequence[bytes], at: int) -> list[Any] | None:
        return None


def _file(schema: SchemaText) -> Any:
    """The descriptor of the schema's file, in a pool of its own."""
    from confluent_kafka.schema_registry.common.protobuf import _init_pool

    pool = descriptor_pool.DescriptorPool()
    _init_pool(pool)  # the files of Google and Confluent: registries keep no references to them
    for name, text in (*schema.references, ("default", schema.text)):
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
        file.name = name
        try:
            pool.Add(file)
        except TypeError as error:
            raise SchemaError(f"the Protobuf file {name} cannot be used: {error}") from error
    return pool.FindFileByName("default")


def _message(file: Any, indexes: tuple[int, ...]) -> Any:
    """The message at this place of the file. Raises PoisonRecordError: a negative index is no place in Python, too."""
    level, found = list(file.message_types_by_name.values()), None
    for index in indexes:
        if not 0 <= index < len(level):
            raise PoisonRecordError(f"its message indexes are {list(indexes)}, and its schema has no such message")
        found = level[index]
        level = list(found.nested_types)
    return found


def _named(file: Any, name: str) -> Any:
    try:
        found = file.pool.FindMessageTypeByName(name)
    except KeyError:
        found = None
    if found is None or found.file.name != file.name:
        raise SchemaError(f"the schema has no message {name}")
    return found


def _indexes(descriptor: Any) -> tuple[int, ...]:
    """Where a message stands in its file, from the outermost message on."""
    outer = descriptor.containing_type
    if outer is None:
        names = list(descriptor.file.message_types_by_name)
        return (names.index(descriptor.name),)
    return (*_indexes(outer), [one.full_name for one in outer.nested_types].index(descriptor.full_name))
