"""JSON Schema: JSON to rows by the types of a schema, and rows to JSON that is valid by it."""

import decimal
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from fencepost.spark_connector.schemas.codec import Reader
from fencepost.spark_connector.schemas.errors import PoisonRecordError, SchemaError
from fencepost.spark_connector.schemas.framing import written_id
from fencepost.spark_connector.schemas.json_text import json_text, parsed_json
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import OPTIONAL, all_nullable

_INT64 = -(2**63), 2**63 - 1
_Convert = Callable[[Any, str], Any]


class _Node(NamedTuple):
    """What one place of a schema is in Spark."""

    arrow: pa.DataType
    read: _Convert
    """From parsed JSON; the second argument is the path, for errors."""
    write: Callable[[Any], Any]
    """To what becomes JSON."""
    null: bool = False
    """Whether null is a value of it."""


class JsonCodec:
    """One JSON Schema. A record is read by the names of this schema's fields, whichever version wrote it."""

    def __init__(self, schema: SchemaText, message: str | None = None) -> None:
        """Raises SchemaError. `message` is for Protobuf only."""
        if message is not None:
            raise SchemaError("message names a message of a Protobuf file, but the schema is JSON")
        self._schema = schema
        self._node = _Nodes(schema).of(json.loads(schema.text), "", "value", ())
        self.arrow_type = self._node.arrow
        self._prefix = written_id(schema.schema_id or 0)
        self._validator: Any = None

    def reader(self, writer: SchemaText) -> Reader:
        """The writer's schema is not needed: JSON has names."""
        return _JsonReader(self._node.read)

    def assemble(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, all_nullable(self.arrow_type))

    def write(self, value: Any) -> bytes:
        """One record with its framing, which was checked against the schema. Raises ValueError or TypeError."""
        made = self._node.write(value)
        if self._validator is None:
            self._validator = _validator(self._schema)
        wrong = next(self._validator.iter_errors(made), None)
        if wrong is not None:
            raise ValueError(f"{wrong.json_path.replace('$', 'value', 1)}: {wrong.message}")
        return self._prefix + json_text(made, (",", ":")).encode()


class _JsonReader:
    def __init__(self, convert: _Convert) -> None:
        self._convert = convert

    def one(self, frame: bytes, at: int) -> Any:
        return self._convert(parsed_json(frame[at:]), "value")

    def many(self, frames: Sequence[bytes], at: int) -> list[Any] | None:
        return None


def _validator(schema: SchemaText) -> Any:
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

    resources = [(name, Resource.from_contents(json.loads(text), DRAFT7)) for name, text in schema.references]
    document = json.loads(schema.text)
    return validator_for(document)(document, registry=Registry().with_resources(resources))


class _Nodes:
    def __init__(self, schema: SchemaText) -> None:
        self._documents = {"": json.loads(schema.text)}
        for name, text in schema.references:
            document = json.loads(text)
            self._documents[name] = document
            if isinstance(document, dict) and "$id" in document:
                self._documents.setdefault(document["$id"], document)

    def of(self, schema: Any, document: str, path: str, above: tuple[str, ...]) -> _Node:
        """`schema` stands in `document`; `above` are the references that led to it. Raises SchemaError."""
        if not isinstance(schema, dict):
            return _text_node()
        if "$ref" in schema:
            return self._reference(schema["$ref"], document, path, above)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._one_of(schema[word], document, path, above)
        if "allOf" in schema:
            schema = self._merged(schema, document)
        kinds = schema.get("type", _kind_by_content(schema))
        kinds = list(kinds) if isinstance(kinds, list) else [kinds]
        null = "null" in kinds
        kinds = [one for one in kinds if one != "null"]
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1:
            return _or_null(_null_node() if not kinds else _text_node())
        made = self._typed(kinds[0], schema, document, path, above)
        return _or_null(made) if null or None in schema.get("enum", ()) else made

    def _typed(self, kind: str | None, schema: Any, document: str, path: str, above: tuple[str, ...]) -> _Node:
        if kind == "object":
            return self._object(schema, document, path, above)
        if kind == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
            return _array_node(self.of(schema["items"], document, f"{path}[]", above))
        plain: dict[str | None, tuple[pa.DataType, _Convert]] = {
            "integer": (pa.int64(), _integer),
            "number": (pa.float64(), _number),
            "string": (pa.string(), _exactly(str, "string")),
            "boolean": (pa.bool_(), _exactly(bool, "boolean")),
        }
        if kind in plain:
            arrow, read = plain[kind]
            return _Node(arrow, read, lambda value: value)
        return _text_node()

    def _object(self, schema: Any, document: str, path: str, above: tuple[str, ...]) -> _Node:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if not properties and isinstance(others, dict) and "patternProperties" not in schema:
            return _map_node(self.of(others, document, f"{path}{{}}", above))
        if not properties:
            return _text_node()
        found = {name: self.of(one, document, f"{path}.{name}", above) for name, one in properties.items()}
        return _object_node(found, frozenset(schema.get("required", ())))

    def _reference(self, reference: str, document: str, path: str, above: tuple[str, ...]) -> _Node:
        name, schema = self._found(reference, document)
        key = f"{name}#{reference.partition('#')[2]}"
        if key in above:
            raise SchemaError(f"{path} refers to {reference}, in which it stands. Spark has no recursive types")
        return self.of(schema, name, path, (*above, key))

    def _found(self, reference: str, document: str) -> tuple[str, Any]:
        """The document and the schema that a $ref names."""
        place, _, pointer = reference.partition("#")
        name = place or document
        if place and self._documents[""].get("$id") == place:
            name = ""
        if name not in self._documents:
            name = next((one for one in self._documents if one and one.endswith("/" + place)), name)
        if name not in self._documents:
            raise SchemaError(f"the schema refers to {reference}, but has no reference of that name")
        schema = self._documents[name]
        for step in filter(None, unquote(pointer).split("/")):
            step = step.replace("~1", "/").replace("~0", "~")
            schema = schema[int(step)] if isinstance(schema, list) else schema.get(step)
            if schema is None:
                raise SchemaError(f"the schema refers to {reference}, which is not there")
        return name, schema

    def _one_of(self, choices: list[Any], document: str, path: str, above: tuple[str, ...]) -> _Node:
        kept = [one for one in choices if not (isinstance(one, dict) and one.get("type") == "null")]
        made = self.of(kept[0], document, path, above) if len(kept) == 1 else _text_node()
        return _or_null(made) if len(kept) < len(choices) else made

    def _merged(self, schema: Any, document: str) -> Any:
        """allOf as one schema: its objects with the fields of all."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in schema["allOf"]:
            if "$ref" in part:
                name, part = self._found(part["$ref"], document)
                if name != document:
                    raise SchemaError("allOf refers to another schema. Write its fields into this one")
            part = self._merged(part, document) if "allOf" in part else part
            for key, value in part.items():
                if key == "properties":
                    merged[key] = {
                        **merged.get(key, {}),
                        **{k: v for k, v in value.items() if k not in merged.get(key, {})},
                    }
                elif key == "required":
                    merged[key] = [*merged.get(key, []), *value]
                else:
                    merged.setdefault(key, value)
        return merged


def _kind_by_content(schema: Any) -> str | None:
    if "properties" in schema:
        return "object"
    values = [schema["const"]] if "const" in schema else [one for one in schema.get("enum", ()) if one is not None]
    return "string" if values and all(isinstance(one, str) for one in values) else None


def _object_node(found: dict[str, _Node], required: frozenset[str]) -> _Node:
    fields = [(name, node, name in required) for name, node in found.items()]
    arrow = pa.struct(
        [pa.field(name, node.arrow, node.null or not must, None if must else OPTIONAL) for name, node, must in fields]
    )

    def read(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _wrong(value, "object", path)
        made = {}
        for name, node, must in fields:
            if name in value:
                one = value[name]
                # A writer that says null where a field may be missing means the same.
                made[name] = None if one is None and not must else node.read(one, f"{path}.{name}")
            elif must:
                raise PoisonRecordError(f"{path} has no {name}, which its schema requires")
        return made

    def write(value: Any) -> Any:
        if value is None:
            return None
        made = {}
        for name, node, must in fields:
            one = value.get(name)
            if one is not None or must:
                made[name] = node.write(one)
        return made

    return _Node(arrow, read, write)


def _array_node(item: _Node) -> _Node:
    def read(value: Any, path: str) -> Any:
        if type(value) is not list:
            raise _wrong(value, "array", path)
        return [item.read(one, f"{path}[]") for one in value]

    return _Node(
        pa.list_(item.arrow), read, lambda value: None if value is None else [item.write(one) for one in value]
    )


def _map_node(item: _Node) -> _Node:
    def read(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _wrong(value, "object", path)
        return {key: item.read(one, f"{path}.{key}") for key, one in value.items()}

    def write(value: Any) -> Any:
        return None if value is None else {key: item.write(one) for key, one in dict(value).items()}

    return _Node(pa.map_(pa.string(), item.arrow), read, write)


def _text_node() -> _Node:
    """What has no Spark type is the text of its JSON."""

    def read(value: Any, path: str) -> Any:
        return json_text(value)

    return _Node(pa.string(), read, lambda value: None if value is None else parsed_json(value))


def _null_node() -> _Node:
    return _Node(pa.null(), lambda value, path: None, lambda value: None, null=True)


def _or_null(node: _Node) -> _Node:
    read = node.read
    return node._replace(read=lambda value, path: None if value is None else read(value, path), null=True)


def _exactly(python: type, name: str) -> _Convert:
    def read(value: Any, path: str) -> Any:
        if type(value) is not python:
            raise _wrong(value, name, path)
        return value

    return read


def _integer(value: Any, path: str) -> Any:
    if type(value) in (float, decimal.Decimal) and _INT64[0] <= value <= _INT64[1] and value % 1 == 0:
        return int(value)  # 7.0 is an integer in JSON Schema
    if type(value) is not int:
        raise _wrong(value, "integer", path)
    if not _INT64[0] <= value <= _INT64[1]:
        raise PoisonRecordError(f"{path} is an integer with more than 64 bits, and Spark has none")
    return value


def _number(value: Any, path: str) -> Any:
    if type(value) not in (int, float, decimal.Decimal):
        raise _wrong(value, "number", path)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        raise PoisonRecordError(f"{path} is a number that no double can hold")
    return found


def _wrong(value: Any, wanted: str, path: str) -> PoisonRecordError:
    names = {
        bool: "boolean",
        int: "integer",
        float: "number",
        decimal.Decimal: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return PoisonRecordError(f"{path} is {names.get(type(value), 'null')}, but its schema says {wanted}")
