"""Declarations: what one may say, what is refused when it is imported, and that each API's stands where it belongs."""

import copy
import pickle
from typing import Annotated, Any, NamedTuple, get_args

import pytest

from fencepost.protocol.messages.api00_produce import ProduceRequest, TopicProduceData
from fencepost.protocol.metadata_record_types import MetadataRecord, NoOpRecord, RegisterBrokerRecord, TopicRecord
from fencepost.protocol.metadata_schema import FORM_OF, part
from fencepost.protocol.registry import API_BY_KEY, Api
from fencepost.protocol.schema import Int16, Int32, MessageValue, String, StructType, Value, field, since, until


class Inner(Value):
    number: Int32 = 7


class Said(MessageValue, versions=(0, 3), flexible=2):
    """One field of every form."""

    plain: Int16 = -1
    numbers: list[Int32] = []  # noqa: RUF012 - a new list in each value
    later: String | None = since(1, default=None)
    null_later: String | None = field(default="", nullable=2)
    gone: Int32 = until(2)
    between: Int32 = since(1, until=2, default=5)
    inner: Inner = field()
    tagged: Inner | None = since(2, tag=0)


def test_a_declaration_gives_versions_nulls_and_defaults() -> None:
    value = Said()
    assert repr(value) == (
        "Said(plain=-1, numbers=[], later=None, null_later='', gone=0, between=5, inner=Inner(number=7), tagged=None)"
    )
    assert Said().numbers is not value.numbers
    assert Said().inner is not value.inner
    assert [Said.fields[name].nullable for name in ("later", "null_later", "tagged")] == [1, 2, 2]
    assert _in_version(0) == ["plain", "numbers", "null_later", "gone", "inner"]
    assert _in_version(3) == ["plain", "numbers", "later", "null_later", "inner", "tagged"]
    value.later, value.tagged = "x", Inner(number=8)
    assert Said.decode(Said.encode(value, 3), 3) == value
    assert (Said.is_flexible(1), Said.is_flexible(2)) == (False, True)


def _in_version(version: int) -> list[str]:
    return [name for name, one in Said.fields.items() if one.exists(version)]


def test_a_value_is_copied_and_pickled() -> None:
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t")])
    request.unknown_tags = {7: b"x"}
    assert pickle.loads(pickle.dumps(request)) == copy.deepcopy(request) == request


@pytest.mark.parametrize(
    ("annotations", "said", "why"),
    [
        ({"count": Int32}, {}, "no default"),
        ({"wire": Int32}, {"wire": 0}, "would hide"),
        ({"unknown_tags": Int32}, {"unknown_tags": 0}, "would hide"),
        ({"count": int}, {"count": 0}, "no form on the wire"),
        ({"count": list[Int32 | None]}, {"count": []}, "may be null"),
    ],
)
def test_a_wrong_declaration_is_refused(annotations: dict[str, Any], said: dict[str, Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        StructType("Wrong", (Value,), {"__annotations__": annotations, **said})


def test_annotations_may_be_made_by_a_function() -> None:
    """Python 3.14 puts this function into a class body instead of the annotations (PEP 649)."""
    struct = StructType("New", (Value,), {"__annotate_func__": lambda form: {"count": Int32}, "count": 3})
    assert struct().count == 3


@pytest.mark.parametrize("api", API_BY_KEY.values(), ids=lambda api: api.name)
def test_each_api_has_its_own_messages(api: Api) -> None:
    assert api.request.api_key == api.response.api_key == api.key
    [base] = api.request.__orig_bases__
    assert base.__args__[0].__forward_arg__ == api.response.__name__


def test_every_declared_record_is_a_metadata_record() -> None:
    assert get_args(MetadataRecord) == tuple(FORM_OF)


def test_records_equal_only_those_of_their_class() -> None:
    topic = TopicRecord("t", bytes(16))
    assert topic == TopicRecord("t", bytes(16))
    assert hash(topic) == hash(TopicRecord("t", bytes(16)))
    assert topic != ("t", bytes(16))
    assert NoOpRecord() != ()
    assert pickle.loads(pickle.dumps(topic)) == topic


def test_a_field_of_a_record_may_be_required_though_old_versions_lack_it() -> None:
    with pytest.raises(TypeError, match="broker_epoch"):
        RegisterBrokerRecord(1, False, bytes(16))
    assert RegisterBrokerRecord.wire.fields["is_migrating_zk_broker"].since == 2

    @part
    class Part(NamedTuple):
        required: Annotated[Int32, since(3)]
        numbers: tuple[Int32, ...] = field()

    assert Part(4) == Part(4, ())
    assert Part.wire.fields["required"].since == 3
