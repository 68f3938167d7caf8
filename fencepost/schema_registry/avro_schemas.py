"""Avro schemas as Apache's package reads them, and what Java's parser refuses beside that. Pure."""

import re
from collections.abc import Callable
from typing import Any

from avro.errors import AvroException
from avro.name import Name, Names
from avro.schema import NamedSchema, Schema, make_avsc_object

from fencepost.schema_registry.content import AVRO, NAMED, Content, Reference, read_json
from fencepost.schema_registry.errors import invalid_schema

Find = Callable[[Reference], Content]
"""The schema that a reference names. Raises RegistryError if there is none."""


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse(content: Content, find: Find) -> Schema:
    """The schema, with those that it names. Raises RegistryError.

    Of references with one name the first counts, and what that one refers to comes before it, as in Confluent's
    AbstractSchemaProvider.resolveReferences.
    """
    names = _Names()
    try:
        found = _with_references(content, find, names, set())
        for first, other in names.again:
            if _compared(first.to_json()) != _compared(other.to_json()):
                raise ValueError(f"{first.fullname} is defined twice, and not alike")
        return found
    except (AvroException, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise invalid_schema(f"{error} ({type(error).__name__}), type {AVRO}") from None


def check_new(schema: Any) -> None:
    """What Java's parser refuses in a new schema, and Apache's package for Python accepts. Raises RegistryError.

    It checks names without their namespace, which may be any text, and that the default of a field is of its type.
    """
    left, seen = [schema], set()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        names = [one.name] if hasattr(one, "fullname") and one.type in NAMED else []
        for name in [*names, *(field.name for field in getattr(one, "fields", ()))]:
            if not _NAME.fullmatch(name):
                raise invalid_schema(f"{name!r} is no name of Avro")
        for field in getattr(one, "fields", ()):
            try:
                fits = not field.has_default or _fits(field.type, field.default)
            except RecursionError:
                fits = False
            if not fits:
                raise invalid_schema(f"the default of the field {field.name!r} of {one.fullname} is not of its type")
            left.append(field.type)
        left += getattr(one, "schemas", ())
        left += [
            getattr(one, name) for name in ("items", "values") if one.type in ("array", "map") and hasattr(one, name)
        ]


def _fits(schema: Any, value: Any) -> bool:
    """Whether JSON is a default of this type. Of a union any branch will do, since Avro 1.12."""
    match schema.type:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if schema.type == "int" else 63
            return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list) and all(_fits(schema.items, one) for one in value)
        case "map":
            return isinstance(value, dict) and all(_fits(schema.values, one) for one in value.values())
        case "union":
            return any(_fits(one, value) for one in schema.schemas)
        case "record":
            return isinstance(value, dict) and all(
                _fits(field.type, value.get(field.name, field.default if field.has_default else _MISSING))
                for field in schema.fields
            )
    return isinstance(value, str)


_MISSING = object()


class _Names(Names):
    """Names of types. As in Java's ParseContext.put, a type may be defined again, if alike."""

    def __init__(self) -> None:
        super().__init__(validate_names=False)
        self.again: list[tuple[NamedSchema, NamedSchema]] = []
        """Two definitions of one type each. Only when both are whole, they can be compared."""

    def add_name(self, name_attr: str, space_attr: str | None, new_schema: NamedSchema) -> Name:
        first = self.get_name(name_attr, space_attr)
        if first is not None:
            self.again.append((first, new_schema))
            del self.names[first.fullname]
        return super().add_name(name_attr, space_attr, new_schema)


def _compared(node: Any) -> Any:
    """What Java's Schema.equals compares: neither the doc nor the aliases of a type or of a field."""
    if isinstance(node, list):
        return [_compared(one) for one in node]
    if not isinstance(node, dict):
        return node
    left = {name: one for name, one in node.items() if name not in ("doc", "aliases")}
    return left | {name: _compared(left[name]) for name in ("type", "fields", "items", "values") if name in left}


def _with_references(content: Content, find: Find, names: Names, known: set[str]) -> Schema:
    for one in content.references:
        if one.name not in known:
            known.add(one.name)
            _with_references(find(one), find, names, known)
    return make_avsc_object(_adapted(read_json(content.text), ""), names, validate_names=False)


def _adapted(node: Any, namespace: str) -> Any:
    """The schema as Apache's package needs it for a right answer.

    It takes an alias for a full name always, cannot compare errors with one another, and warns of logical types that it
    does not know. Logical types do not count in Avro's resolution of schemas.
    """
    if isinstance(node, list):
        return [_adapted(one, namespace) for one in node]
    if not isinstance(node, dict):
        return node
    found = {name: one for name, one in node.items() if name != "logicalType"}
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise ValueError("aliases are a list of names")
    if isinstance(node.get("name"), str) and node["type"] in NAMED:
        prefix = node["name"].rpartition(".")[0] or node.get("namespace")
        namespace = namespace if prefix is None else prefix
        if aliases:
            found["aliases"] = [one if "." in one or not namespace else f"{namespace}.{one}" for one in aliases]
        if node["type"] == "error":
            found["type"] = "record"
        if isinstance(node.get("fields"), list):
            found["fields"] = [_adapted(one, namespace) for one in node["fields"]]
        return found
    for inner in ("type", "items", "values"):
        if inner in node:
            found[inner] = _adapted(node[inner], namespace)
    return found
