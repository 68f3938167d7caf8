"""Hypothesis strategies for any message at any version, and its value as plain construct data (the oracle's form)."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from fencepost.protocol import primitives as p
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import ArrayOf, LengthPrefixed
from fencepost.protocol.schema import Field, MessageValue, StructType

RANGES = {
    p.Int8: (-(2**7), 2**7 - 1),
    p.Int16: (-(2**15), 2**15 - 1),
    p.Int32: (-(2**31), 2**31 - 1),
    p.Int64: (-(2**63), 2**63 - 1),
    p.Uint16: (0, 2**16 - 1),
    p.Uint32: (0, 2**32 - 1),
}
OUR_TAGS_FROM = 1000
"""Tagged fields from here on are fencepost's own: an outsider's schema does not have them."""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@cache
def values(
    message: type[MessageValue], version: int, *, ours: bool = True, elements: int = 3
) -> st.SearchStrategy[Any]:
    """Values of `message` with every field of `version` drawn, the others at their defaults.

    Without `ours` the tagged fields that only fencepost knows stay at their defaults, too. Arrays have at most
    `elements`.
    """
    return struct_values(message, version, ours, elements)


def struct_values(struct: StructType, version: int, ours: bool, elements: int) -> st.SearchStrategy[Any]:
    fields = {
        name: field_values(name, field, version, ours, elements)
        for name, field in struct.fields.items()
        if field.exists(version) and (ours or field.tag is None or field.tag < OUR_TAGS_FROM)
    }
    return st.fixed_dictionaries(fields).map(lambda drawn: struct(**drawn))


def field_values(name: str, field: Field, version: int, ours: bool, elements: int) -> st.SearchStrategy[Any]:
    strategy = kind_values(name, field.subcon, version, ours, elements)
    if field.is_tagged(version):
        return st.one_of(st.just(field.default() if callable(field.default) else field.default), strategy)
    return st.one_of(st.none(), strategy) if field.nullable <= version else strategy


def kind_values(name: str, kind: Any, version: int, ours: bool, elements: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, ArrayOf):
        return st.lists(kind_values(name, kind.subcon, version, ours, elements), max_size=elements)
    if isinstance(kind, StructType):
        return struct_values(kind, version, ours, elements)
    if isinstance(kind, LengthPrefixed):
        blob = st.binary(max_size=40)
        return {"string": TEXT, "bytes": blob, "records": blob.map(memoryview)}[kind.kind]
    if kind is p.Bool:
        return st.booleans()
    if kind is p.Uuid:
        return st.binary(min_size=16, max_size=16)
    if kind is p.Float64:
        return st.floats(allow_nan=False)
    return numbers(name, kind)


def numbers(name: str, kind: Any) -> st.SearchStrategy[int]:
    """Numbers of the field's width; error codes that exist, times that a calendar holds (kio makes dates of them)."""
    if name.endswith("error_code"):
        return st.sampled_from([code.value for code in ErrorCode])
    low, high = RANGES[kind]
    if name.endswith(("_ms", "timestamp", "_time")):
        return st.integers(0, min(high, 4_000_000_000_000))
    return st.one_of(st.integers(-1, 3), st.integers(low, high)) if low < 0 else st.integers(low, high)


def plain(struct: StructType, value: Any, version: int, flexible: bool) -> dict[str, Any]:
    """`value` in the form that the plain construct tree parses to and builds from."""
    out: dict[str, Any] = {}
    tags: dict[str | int, Any] = dict(value.unknown_tags or {})
    for name, field in struct.fields.items():
        if not field.exists(version):
            continue
        given = plain_kind(field.subcon, getattr(value, name), version, flexible)
        if not field.is_tagged(version):
            out[name] = given
        elif given != (field.default() if callable(field.default) else field.default):
            tags[name] = given
    if flexible:
        out["_tags"] = tags
    return out


def plain_kind(kind: Any, given: Any, version: int, flexible: bool) -> Any:
    if given is None:
        return None
    if isinstance(kind, ArrayOf):
        return [plain_kind(kind.subcon, element, version, flexible) for element in given]
    if isinstance(kind, StructType):
        return plain(kind, given, version, flexible)
    return bytes(given) if isinstance(given, memoryview) else given
