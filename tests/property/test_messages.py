"""Every message at every version: our bytes are kio's bytes, and the generated code agrees with plain construct."""

import contextlib
from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import DecodeError, MessageValue, StructType
from tests.kit.examples import examples
from tests.kit.message_values import plain, values

SETTINGS = settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
OURS = {"TxnShareAcknowledge"}
"""APIs of no Kafka."""
SIDES = [(api, side) for api in API_BY_KEY.values() for side in ("request", "response")]


OF_KAFKA = [(api, side) for api, side in SIDES if api.name not in OURS]


def message_of(api: Api, side: str) -> MessageValue:
    return api.request if side == "request" else api.response


def versions(api: Api) -> st.SearchStrategy[int]:
    return st.integers(*api.with_unstable().served)


NEWER_THAN_KIO = {"TxnOffsetCommit": {6}}
"""Versions of Kafka 4.4; tests/unit/protocol/test_schema.py has their bytes."""


@cache
def kio_class(api: Api, side: str, version: int) -> Any:
    """kio's class of this message at this version, None where kio does not know it (it starts at Kafka 4's floor)."""
    package = api.module_name.split("_", 1)[1]
    try:
        module = import_module(f"kio.schema.{package}.v{version}.{side}")
    except ModuleNotFoundError:
        return None
    return getattr(module, f"{api.name}{side.capitalize()}")


def kio_versions(api: Api, side: str) -> list[int]:
    low, high = api.with_unstable().served
    return [v for v in range(low, high + 1) if kio_class(api, side, v) is not None]


def test_kio_knows_every_advertised_version() -> None:
    """So that the comparison below cannot pass by comparing nothing."""
    for api, side in OF_KAFKA:
        first = max(api.advertised[0], api.served[0])
        wanted = set(range(first, api.with_unstable().advertised[1] + 1)) - NEWER_THAN_KIO.get(api.name, set())
        assert wanted <= set(kio_versions(api, side)), (api.name, side)


@pytest.mark.parametrize(("api", "side"), OF_KAFKA, ids=lambda x: x if isinstance(x, str) else x.name)
@SETTINGS
@given(data=st.data())
def test_same_bytes_as_kio(api: Api, side: str, data: st.DataObject) -> None:
    """An outsider reads what we write, writes the same bytes again, and we read those as the same value."""
    version = data.draw(st.sampled_from(kio_versions(api, side)))
    message = message_of(api, side)
    value = normal(message, data.draw(values(message, version, ours=False)))
    ours = message.encode(value, version)
    entity_class = kio_class(api, side, version)
    entity, end = entity_reader(entity_class)(ours, 0)
    assert end == len(ours)
    theirs = BytesIO()
    entity_writer(entity_class)(theirs, entity)
    assert theirs.getvalue() == ours
    assert message.decode(theirs.getvalue(), version) == value


def normal(struct: StructType, value: Any) -> Any:
    """`value` without tagged structs that hold only defaults: kio leaves those out, we write what we are given."""
    for name, field in struct.fields.items():
        inner, kind = getattr(value, name), field.subcon
        if isinstance(inner, list) and isinstance(kind.subcon, StructType):
            for element in inner:
                normal(kind.subcon, element)
        elif field.tag is not None and hasattr(inner, "_fields") and inner == type(inner)():
            setattr(value, name, None)
    return value


@pytest.mark.parametrize(("api", "side"), SIDES, ids=lambda x: x if isinstance(x, str) else x.name)
@SETTINGS
@given(data=st.data())
def test_same_as_plain_construct(api: Api, side: str, data: st.DataObject) -> None:
    """The generated code and the construct tree it was generated from read and write alike, at every served version."""
    version = data.draw(versions(api))
    message = message_of(api, side)
    value = data.draw(values(message, version))
    ours = message.encode(value, version)
    tree = message.tree(version)
    form = plain(message, value, version, message.is_flexible(version))
    assert tree.build(form) == ours
    assert tree.parse(ours) == form
    assert message.decode(ours, version) == value


@pytest.mark.parametrize(("api", "side"), SIDES, ids=lambda x: x if isinstance(x, str) else x.name)
@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_bytes_are_named(api: Api, side: str, data: st.DataObject) -> None:
    """Cut, extended or altered bytes give a value or a DecodeError that names the message; nothing else ever."""
    version = data.draw(versions(api))
    message = message_of(api, side)
    ours = message.encode(data.draw(values(message, version, elements=2)), version)
    for cut in range(len(ours)):
        with pytest.raises(DecodeError, match=f"{message.__name__} v{version}"):
            message.decode(ours[:cut], version)
    with pytest.raises(DecodeError, match=r"1 bytes are left over"):
        message.decode(ours + b"\0", version)
    if ours:
        place = data.draw(st.integers(0, len(ours) - 1))
        altered = bytearray(ours)
        altered[place] ^= data.draw(st.integers(1, 255))
        with contextlib.suppress(DecodeError):
            message.decode(altered, version)


@SETTINGS
@given(data=st.data(), tag=st.integers(10_000, 2**32 - 1), body=st.binary(max_size=200))
def test_unknown_tags_are_kept(data: st.DataObject, tag: int, body: bytes) -> None:
    """A tagged field from a newer peer survives a round trip (KIP-482)."""
    message = API_BY_KEY[1].response
    value = data.draw(values(message, 16))
    value.unknown_tags = {tag: body}
    again = message.decode(message.encode(value, 16), 16)
    assert again.unknown_tags == {tag: body}
    assert again == value
