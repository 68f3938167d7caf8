"""Avro's schemas: one text without references, the Arrow type of it, and a writer's schema beside a reader's."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fencepost.spark_connector.schemas.errors import SchemaError
from fencepost.spark_connector.schemas.registry import SchemaText
from fencepost.spark_connector.schemas.spark_types import LOCAL_TIMESTAMP, OPTIONAL, TIMESTAMP, decimal_type

NAMED = ("record", "error", "enum", "fixed")
TIME = "time"
"""Times of the day and nanoseconds are numbers in Spark. Their logical type stands here, where no library sees it."""
_TIMES = {
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-nanos"),
}
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
}
_NO_NAMESPACE = "fencepost.none"
_NUMBERS = [({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())]
"""Unions that are one number in Spark."""


def whole_schema(schema: SchemaText) -> Any:
    """The schema as one piece of JSON, with full names, and what it refers to inside. Raises SchemaError.

    Of the logical types only those are left that are types in Spark.
    """
    return _Whole(dict(schema.references)).of(_json(schema.text), "")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # older registries keep a primitive as its bare name


class _Whole:
    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references
        self._defined: set[str] = set()

    def of(self, node: Any, space: str) -> Any:
        """`node`, that stands in the namespace `space`."""
        if isinstance(node, list):
            return [self.of(one, space) for one in node]
        if isinstance(node, str):
            return self._named(node, space)
        kind = node["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, space)
        if kind in NAMED:
            return self._definition(node, kind, space)
        if kind == "array":
            return {"type": "array", "items": self.of(node["items"], space)}
        if kind == "map":
            return {"type": "map", "values": self.of(node["values"], space)}
        if kind not in _PRIMITIVES:
            return self._named(kind, space)
        return _with_logical({"type": kind}, node)

    def _named(self, name: str, space: str) -> Any:
        if name in _PRIMITIVES:
            return name
        full = _full(name, space)
        for one in (full, name):
            if one in self._defined:
                return one
            if one in self._references:
                return self.of(_json(self._references[one]), "")
        raise SchemaError(f"the schema uses {full}, but does not define it")

    def _definition(self, node: Any, kind: str, space: str) -> Any:
        full = _full(node["name"], node.get("namespace", space))
        inner = full.rpartition(".")[0]
        self._defined.add(full)
        made: dict[str, Any] = {"type": "record" if kind == "error" else kind, "name": full}
        if "aliases" in node:
            made["aliases"] = [_full(alias, inner) for alias in node["aliases"]]
        if kind == "enum":
            return made | {key: node[key] for key in ("symbols", "default") if key in node}
        if kind == "fixed":
            return _with_logical(made | {"size": node["size"]}, node)
        fields = []
        for one in node["fields"]:
            kept = {key: one[key] for key in ("name", "default", "aliases") if key in one}
            # A logical type beside "type" of a field belongs to nothing: Avro ignores it.
            fields.append(kept | {"type": self.of(one["type"], inner)})
        return made | {"fields": fields}


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _with_logical(made: dict[str, Any], node: Any) -> dict[str, Any]:
    logical, kind = node.get("logicalType"), made["type"]
    if (kind, logical) in _LOGICAL:
        return made | {"logicalType": logical}
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if (
            isinstance(precision, int)
            and isinstance(scale, int)
            and 0 <= scale <= precision
            and 0 < precision <= _digits(made)
        ):
            return made | {"logicalType": logical, "precision": precision, "scale": scale}
    return made | {TIME: logical} if (kind, logical) in _TIMES else made


def _digits(made: dict[str, Any]) -> float:
    """How many decimal digits the bytes can hold. Avro ignores a logical type whose numbers are impossible."""
    return math.floor(math.log10(2) * (8 * made["size"] - 1)) if "size" in made else math.inf


def definitions(node: Any) -> Iterator[tuple[str, Any]]:
    """The full names and definitions of all named types of a whole schema."""
    if isinstance(node, list):
        for one in node:
            yield from definitions(one)
    elif isinstance(node, dict):
        if node["type"] in NAMED:
            yield node["name"], node
        for inner in (node.get("items"), node.get("values"), *(one["type"] for one in node.get("fields", ()))):
            if inner is not None:
                yield from definitions(inner)


def branches(union: list[Any]) -> list[Any]:
    return [one for one in union if kind_of(one) != "null"]


def _has_null(node: Any) -> bool:
    return isinstance(node, list) and len(branches(node)) < len(node)


def kind_of(node: Any) -> str:
    """The type's name in Avro, or the full name of a type that is defined elsewhere."""
    return "union" if isinstance(node, list) else str(node["type"] if isinstance(node, dict) else node)


def number_of(union: list[Any]) -> pa.DataType | None:
    """The type of a union of numbers that is one number in Spark; None for any other union."""
    kinds = {kind_of(one) for one in branches(union)}
    plain = not any(isinstance(one, dict) and "logicalType" in one for one in union)
    return next((kind for these, kind in _NUMBERS if kinds == these and plain), None)


def is_struct(union: list[Any]) -> bool:
    """Whether a union is a struct with a field for each of its types."""
    return len(branches(union)) > 1 and number_of(union) is None


def with_inner(node: Any, change: Callable[[Any], Any]) -> Any:
    """A type with each of the types that it is made of changed."""
    if isinstance(node, list):
        return [change(one) for one in node]
    if not isinstance(node, dict):
        return node
    inner: dict[str, Any] = {key: change(node[key]) for key in ("items", "values") if key in node}
    if "fields" in node:
        inner["fields"] = [one | {"type": change(one["type"])} for one in node["fields"]]
    return node | inner


def in_namespaces(node: Any) -> Any:
    """The schema with a namespace in each name: fastavro takes that of the type around it for one that has none."""
    if isinstance(node, str):
        return node if node in _PRIMITIVES else _full(node, _NO_NAMESPACE)
    made = with_inner(node, in_namespaces)
    if isinstance(node, dict) and "name" in node:
        aliases = [_full(one, _NO_NAMESPACE) for one in node.get("aliases", ())]
        return made | {"name": _full(node["name"], _NO_NAMESPACE), "aliases": aliases}
    return made


def with_members(node: Any) -> Any:
    """The schema with a record of one field, `member0` and so on, for each type of a union that is a struct in Spark.

    It describes the same bytes, because a record has the bytes of its fields. But each value tells its type.
    """
    unions = itertools.count()

    def changed(node: Any) -> Any:
        if not isinstance(node, list) or not is_struct(node):
            return with_inner(node, changed)
        space, numbers = f"{MEMBERS}.u{next(unions)}", itertools.count()
        return [one if kind_of(one) == "null" else member(space, next(numbers), changed(one)) for one in node]

    return changed(node)


MEMBERS = "fencepost.union"


def member(space: str, number: int, node: Any) -> dict[str, Any]:
    """The record that stands for a type of a union."""
    fields = [{"name": f"member{number}", "type": node}]
    return {"type": "record", "name": f"{space}_{number}", "fields": fields, MEMBERS: True}


def is_member(node: Any) -> bool:
    return isinstance(node, dict) and MEMBERS in node


class ArrowTypes:
    """The Arrow types of a whole schema, with the names of Spark's from_avro."""

    def __init__(self, schema: Any) -> None:
        self.named = dict(definitions(schema))

    def of(self, node: Any, path: str, above: tuple[str, ...] = ()) -> pa.DataType:
        """The type of `node`; `above` are the records that it stands in. Raises SchemaError."""
        if isinstance(node, list):
            return self._union(node, path, above)
        if isinstance(node, str):
            node = self.named.get(node, {"type": node})
        kind, logical = node["type"], node.get("logicalType")
        if logical == "decimal":
            return decimal_type(node["precision"], node["scale"], path)
        if logical is not None:
            return _LOGICAL[kind, logical]
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        if kind == "array":
            return pa.list_(self.of(node["items"], f"{path}[]", above))
        if kind == "map":
            return pa.map_(pa.string(), self.of(node["values"], f"{path}{{}}", above))
        if kind == "record":
            return self._record(node, path, above)
        return pa.string() if kind == "enum" else pa.binary()

    def _record(self, node: Any, path: str, above: tuple[str, ...]) -> pa.DataType:
        name = node["name"]
        if name in above:
            raise SchemaError(f"{path} is {name} inside {name}. Spark has no recursive types")
        if not node["fields"]:
            raise SchemaError(f"{path} is {name}, a record without fields. Spark has no empty structs")
        fields = []
        for one in node["fields"]:
            kind = self.of(one["type"], f"{path}.{one['name']}", (*above, name))
            null = kind.equals(pa.null()) or _has_null(one["type"])
            fields.append(pa.field(one["name"], kind, null, OPTIONAL if "default" in one else None))
        return pa.struct(fields)

    def _union(self, union: list[Any], path: str, above: tuple[str, ...]) -> pa.DataType:
        kept = branches(union)
        if not kept:
            return pa.null()
        if len(kept) == 1:
            return self.of(kept[0], path, above)
        number = number_of(union)
        if number is not None:
            return number
        members = [self.of(one, f"{path}.member{number}", above) for number, one in enumerate(kept)]
        return pa.struct([pa.field(f"member{number}", kind, True, OPTIONAL) for number, kind in enumerate(members)])
