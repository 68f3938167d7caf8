"""Defaults of Avro's fields: fastavro takes them as JSON has them, which is no value of bytes, decimals or times."""

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import fastavro

from fencepost.spark_connector.schemas.avro_schema import branches, definitions, is_member, kind_of, with_inner

_EPOCH = datetime.datetime(1970, 1, 1)
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGERS = {"int": 2**31, "long": 2**63}
_LOGICAL: dict[str, Callable[[int], Any]] = {
    "date": lambda days: _EPOCH.date() + datetime.timedelta(days),
    "timestamp-millis": lambda number: _at(number * 1000).replace(tzinfo=datetime.UTC),
    "timestamp-micros": lambda number: _at(number).replace(tzinfo=datetime.UTC),
    "local-timestamp-millis": lambda number: _at(number * 1000),
    "local-timestamp-micros": lambda number: _at(number),
}


def with_usable_defaults(schema: Any) -> Any:
    """The schema without the defaults that are no values of their fields. Old registries took any."""
    named = dict(definitions(schema))
    for record in named.values():
        for one in record.get("fields", ()):
            try:
                value_of(one["type"], one.get("default"), named)
            except (ValueError, OverflowError):
                one.pop("default", None)
    return schema


def parsed(schema: Any) -> Any:
    """fastavro's form of a whole schema. Each default is what fastavro would read if it had been written."""
    named = dict(definitions(schema))
    made = fastavro.parse_schema(without_defaults(schema))
    for name, record in definitions(made):
        for one, field in zip(record.get("fields", ()), named[name].get("fields", ()), strict=True):
            if "default" in field:
                one["default"] = value_of(field["type"], field["default"], named)
    return made


def without_defaults(node: Any) -> Any:
    """The schema of a writer: nothing is filled in for what was written."""
    made = with_inner(node, without_defaults)
    for one in made.get("fields", ()) if isinstance(made, dict) else ():
        one.pop("default", None)
    return made


def value_of(node: Any, given: Any, named: dict[str, Any]) -> Any:
    """A default in JSON as a value of its type. Raises ValueError if it is none."""
    if isinstance(node, list):
        return _of_union(node, given, named)
    node = named.get(node, {"type": node}) if isinstance(node, str) else node
    kind = node["type"]
    match given:
        case None if kind == "null":
            return None
        case bool() if kind == "boolean":
            return given
        case int() if kind in _INTEGERS and not isinstance(given, bool) and abs(2 * given + 1) < 2 * _INTEGERS[kind]:
            return _LOGICAL.get(node.get("logicalType", ""), int)(given)
        case int() | float() if kind in ("float", "double") and not isinstance(given, bool):
            return float(given)
        case str() if kind in ("float", "double") and given in _FLOATS:
            return _FLOATS[given]
        case str() if kind == "string" or (kind == "enum" and given in node["symbols"]):
            return given
        case str() if kind == "bytes" or (kind == "fixed" and len(given) == node["size"]):
            return _of_bytes(node, given.encode("latin-1"))  # JSON has a character for each byte
        case list() if kind == "array":
            return [value_of(node["items"], one, named) for one in given]
        case dict() if kind == "map":
            return {key: value_of(node["values"], one, named) for key, one in given.items()}
        case dict() if kind == "record":
            return _of_record(node, given, named)
    raise ValueError(f"{given!r} is no {kind}")


def _of_union(union: list[Any], given: Any, named: dict[str, Any]) -> Any:
    for one in union:
        try:
            if not is_member(one):
                return value_of(one, given, named)
            (field,) = one["fields"]
            return {field["name"]: value_of(field["type"], given, named)}
        except ValueError:
            continue
    raise ValueError(f"{given!r} is none of {', '.join(map(kind_of, branches(union)))}")


def _of_record(node: Any, given: dict[str, Any], named: dict[str, Any]) -> Any:
    made = {}
    for one in node["fields"]:
        if one["name"] not in given and "default" not in one:
            raise ValueError(f"{one['name']} of {node['name']} is missing")
        made[one["name"]] = value_of(one["type"], given.get(one["name"], one.get("default")), named)
    return made


def _of_bytes(node: Any, given: bytes) -> Any:
    if node.get("logicalType") != "decimal":
        return given
    return decimal.Decimal(int.from_bytes(given, "big", signed=True)).scaleb(-node["scale"])


def _at(micros: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=micros)
