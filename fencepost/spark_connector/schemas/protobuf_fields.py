"""The fields of Protobuf messages as columns of Arrow, and their values from rows."""

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

from fencepost.spark_connector.schemas.errors import SchemaError
from fencepost.spark_connector.schemas.json_text import parsed_json
from fencepost.spark_connector.schemas.spark_types import OPTIONAL, TIMESTAMP, all_nullable

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_PLAIN = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_JSON = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}


class Kind(NamedTuple):
    """What values of one type are in Arrow, and how they come and go. A value may be None, which is null."""

    arrow: pa.DataType
    columns: Callable[[Sequence[Any]], pa.Array]
    """From Protobuf's values to an array."""
    plain: Callable[[Any], Any] | None
    """From a row's value to one that can be assigned; None: `fill` is needed."""
    fill: Callable[[Any, Any], None]
    """Set a message, which the first argument is, to a row's value."""


def struct_of(descriptor: Any, path: str, above: tuple[str, ...]) -> Kind:
    """A message as a struct; `above` are the messages that it stands in. Raises SchemaError."""
    name = descriptor.full_name
    if name in above:
        raise SchemaError(f"{path} is {name} inside {name}. Spark has no recursive types")
    if not descriptor.fields:
        raise SchemaError(f"{path} is {name}, a message without fields. Spark has no empty structs")
    fields = [_Field(one, f"{path}.{one.name}", (*above, name)) for one in descriptor.fields]
    arrow = pa.struct([pa.field(one.name, one.arrow, one.null, None if one.required else OPTIONAL) for one in fields])
    nullable = [pa.field(one.name, all_nullable(one.arrow)) for one in fields]

    def columns(messages: Sequence[Any]) -> pa.Array:
        nulls = [message is None for message in messages]
        mask = pa.array(nulls, pa.bool_()) if any(nulls) else None
        return pa.StructArray.from_arrays([one.columns(messages) for one in fields], fields=nullable, mask=mask)

    oneofs = [[one.name for one in these.fields] for these in descriptor.oneofs if len(these.fields) > 1]

    def fill(message: Any, row: Any) -> None:
        for names in oneofs:
            given = [one for one in names if row.get(one) is not None]
            if len(given) > 1:
                raise ValueError(f"{path} has {' and '.join(given)}, but its schema takes one of them")
        for one in fields:
            value = row.get(one.name)
            if value is not None:
                one.fill(message, value)
            elif one.required:
                raise ValueError(f"{one.path} is null, but its schema requires it")

    return Kind(arrow, columns, None, fill)


class _Field:
    """One field of a message: single, repeated or a map."""

    def __init__(self, field: Any, path: str, above: tuple[str, ...]) -> None:
        self.name, self.path = field.name, path
        self.required = bool(field.is_required)
        self._has_default = field.has_default_value
        is_message = field.message_type is not None
        if is_message and field.message_type.GetOptions().map_entry:
            key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            self._key, self._kind = _kind_of(key, path, above), _kind_of(item, f"{path}{{}}", above)
            self.arrow = pa.map_(self._key.arrow, self._kind.arrow)
            self.columns, self.fill, self.null = self._map_columns, self._fill_map, False
        elif field.is_repeated:
            self._kind = _kind_of(field, f"{path}[]", above)
            self.arrow = pa.list_(self._kind.arrow)
            self.columns, self.fill, self.null = self._list_columns, self._fill_list, False
        else:
            self._kind = _kind_of(field, path, above)
            self.arrow = self._kind.arrow
            self.null = bool(field.has_presence and not self._has_default)
            self.columns, self.fill = self._single_columns, self._fill_single

    def _single_columns(self, messages: Sequence[Any]) -> pa.Array:
        name = self.name
        if self.null:
            values = [
                getattr(message, name) if message is not None and message.HasField(name) else None
                for message in messages
            ]
        else:
            values = [None if message is None else getattr(message, name) for message in messages]
        return self._kind.columns(values)

    def _list_columns(self, messages: Sequence[Any]) -> pa.Array:
        offsets, items, name = [0], [], self.name
        for message in messages:
            if message is not None:
                items.extend(getattr(message, name))
            offsets.append(len(items))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self._kind.columns(items))

    def _map_columns(self, messages: Sequence[Any]) -> pa.Array:
        offsets, keys, items, name = [0], [], [], self.name
        for message in messages:
            found = getattr(message, name) if message is not None else {}
            for key in sorted(found):  # Protobuf has no order here
                keys.append(key)
                items.append(found[key])
            offsets.append(len(items))
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), self._key.columns(keys), self._kind.columns(items)
        )

    def _fill_single(self, message: Any, value: Any) -> None:
        if self._kind.plain is not None:
            setattr(message, self.name, self._kind.plain(value))
        else:
            part = getattr(message, self.name)
            part.SetInParent()
            self._kind.fill(part, value)

    def _fill_list(self, message: Any, value: Any) -> None:
        items = getattr(message, self.name)
        for one in value:
            if one is None:
                raise ValueError(f"{self.path} holds a null, and Protobuf has none in repeated fields")
            if self._kind.plain is not None:
                items.append(self._kind.plain(one))
            else:
                self._kind.fill(items.add(), one)

    def _fill_map(self, message: Any, value: Any) -> None:
        items, to_key = getattr(message, self.name), self._key.plain
        assert to_key is not None
        for key, one in dict(value).items():
            if one is None:
                raise ValueError(f"{self.path} holds a null, and Protobuf has none in maps")
            if self._kind.plain is not None:
                items[to_key(key)] = self._kind.plain(one)
            else:
                self._kind.fill(items[to_key(key)], one)


def _kind_of(field: Any, path: str, above: tuple[str, ...]) -> Kind:
    if field.message_type is not None:
        return _message_kind(field.message_type, path, above)
    if field.enum_type is not None:
        return _enum_kind(field.enum_type, path)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _plain_kind(pa.binary(), bytes)
    arrow = _PLAIN[field.cpp_type]
    return _plain_kind(arrow, int if pa.types.is_decimal(arrow) else lambda value: value)


def _plain_kind(arrow: pa.DataType, plain: Callable[[Any], Any]) -> Kind:
    def columns(values: Sequence[Any]) -> pa.Array:
        if pa.types.is_decimal(arrow):
            values = [None if one is None else decimal.Decimal(one) for one in values]
        return pa.array(values, arrow)

    def fill(message: Any, value: Any) -> None:
        message.value = plain(value)  # a wrapper

    return Kind(arrow, columns, plain, fill)


def _enum_kind(enum: Any, path: str) -> Kind:
    """The name; a number that has none, as newer writers may send it, is its digits."""
    names = {number: one.name for number, one in enum.values_by_number.items()}

    def columns(values: Sequence[Any]) -> pa.Array:
        return pa.array([None if one is None else names.get(one, str(one)) for one in values], pa.string())

    def plain(value: str) -> int:
        found = enum.values_by_name.get(value)
        if found is not None:
            return int(found.number)
        if value.lstrip("-").isdigit():
            return int(value)
        raise ValueError(f"{path} is {value!r}, which {enum.full_name} does not have")

    return Kind(pa.string(), columns, plain, _no_fill)


def _message_kind(descriptor: Any, path: str, above: tuple[str, ...]) -> Kind:
    name = descriptor.full_name
    if name in _WRAPPERS:
        return _wrapper_kind(_kind_of(descriptor.fields_by_name["value"], path, above))
    if name in _JSON:
        return _json_kind()
    if name == "google.protobuf.Timestamp":
        return _instant_kind(TIMESTAMP, lambda value: (value - _EPOCH) // _MICROSECOND)
    if name == "google.protobuf.Duration":
        return _duration_kind()
    return struct_of(descriptor, path, above)


def _wrapper_kind(inner: Kind) -> Kind:
    def columns(values: Sequence[Any]) -> pa.Array:
        return inner.columns([None if one is None else one.value for one in values])

    return Kind(inner.arrow, columns, None, inner.fill)


def _json_kind() -> Kind:
    """Values of any type are the text of their JSON."""

    def columns(values: Sequence[Any]) -> pa.Array:
        texts = [None if one is None else json_format.MessageToJson(one, indent=None) for one in values]
        return pa.array(texts, pa.string())

    def fill(message: Any, value: str) -> None:
        parsed_json(value)  # Protobuf's own parser takes NaN, too, which no reader does
        json_format.Parse(value, message)

    return Kind(pa.string(), columns, None, fill)


def _instant_kind(arrow: pa.DataType, micros_of: Callable[[Any], int]) -> Kind:
    def columns(values: Sequence[Any]) -> pa.Array:
        # Spark counts microseconds: the rest of the nanoseconds is dropped, as by Spark's from_protobuf.
        numbers = [None if one is None else one.seconds * 1_000_000 + one.nanos // 1000 for one in values]
        return pa.array(numbers, pa.int64()).cast(arrow)

    def fill(message: Any, value: Any) -> None:
        message.seconds, rest = divmod(micros_of(value), 1_000_000)
        message.nanos = rest * 1000

    return Kind(arrow, columns, None, fill)


def _duration_kind() -> Kind:
    def fill(message: Any, value: datetime.timedelta) -> None:
        micros = value // _MICROSECOND
        sign = -1 if micros < 0 else 1  # of a duration both parts have the same sign
        seconds, rest = divmod(abs(micros), 1_000_000)
        message.seconds, message.nanos = sign * seconds, sign * rest * 1000

    def columns(values: Sequence[Any]) -> pa.Array:
        numbers = [None if one is None else one.seconds * 1_000_000 + int(one.nanos / 1000) for one in values]
        return pa.array(numbers, pa.int64()).cast(pa.duration("us"))

    return Kind(pa.duration("us"), columns, None, fill)


def _no_fill(message: Any, value: Any) -> None:
    raise AssertionError("an enum is assigned")
