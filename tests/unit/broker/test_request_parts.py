"""A request of many elements is handled in parts: the parts together are the request, their responses one response."""

from typing import Any

import pytest

from fencepost.broker.network.dispatch import Dispatch
from fencepost.broker.network.request_parts import SPLIT, join, nesting_of, split
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.api09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import ArrayOf, StructType, TooManyElements
from fencepost.protocol.stepwise import decoder_in_steps, encoder_in_steps
from tests.hostile.requests import flood_of_elements


def topics(*sizes: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=f"t{number}", partitions=[ListOffsetsPartition(partition_index=index) for index in range(size)]
            )
            for number, size in enumerate(sizes)
        ]
    )


@pytest.mark.parametrize("sizes", [(), (0,), (1,), (7,), (3, 0, 25, 1, 1, 1), (10, 10), (1,) * 30, (5, 31, 0)])
def test_the_parts_joined_are_the_request(sizes: tuple[int, ...]) -> None:
    fields = ("topics", "partitions")
    parts = list(split(topics(*sizes), fields, 5))
    assert all(part.elements < 10 for part in parts)
    whole = parts[0].value
    for part in parts[1:]:
        join(whole, part.value, fields, part.continued)
    assert whole == topics(*sizes)


def test_three_levels_are_split_and_joined() -> None:
    def request() -> Any:
        def named(name: str, *sizes: int) -> Any:
            found = [OffsetFetchRequestTopics(name=f"{n}", partition_indexes=list(range(n))) for n in sizes]
            return OffsetFetchRequestGroup(group_id=name, topics=found)

        whole = OffsetFetchRequest(groups=[named("a", 12, 1, 1), named("b"), named("c", 7, 8), named("d", 40)])
        whole.groups[1].topics = None  # all of the group's topics
        return whole

    fields = ("groups", "topics", "partition_indexes")
    parts = list(split(request(), fields, 4))
    assert len(parts) > 10
    whole = parts[0].value
    for part in parts[1:]:
        join(whole, part.value, fields, part.continued)
    assert whole == request()


@pytest.mark.parametrize("key", SPLIT)
def test_the_named_fields_are_arrays_of_every_version(key: int) -> None:
    api, dispatch = API_BY_KEY[key], Dispatch()
    for version in range(api.served[0], api.served[1] + 1):
        nesting = nesting_of(dispatch.route(key, version)) if version >= 3 or key else None
        if nesting is None:
            continue
        for message, path in ((api.request, nesting.request), (api.response, nesting.response)):
            struct: Any = message
            for name in path:
                field = struct.fields[name]
                assert field.exists(version), (version, name)
                assert isinstance(field.subcon, ArrayOf)
                struct = field.subcon.subcon
                assert isinstance(struct, StructType) or name == path[-1]


@pytest.mark.parametrize("key", API_BY_KEY)
def test_codecs_in_steps_do_what_the_others_do(key: int) -> None:
    api = API_BY_KEY[key]
    for version in {api.served[0], api.served[1]}:
        frame = flood_of_elements(api, version, 1 << 20, 2500)
        if frame is None:
            continue
        body = memoryview(frame)[4:]
        start = body.nbytes - len(api.request.encode(_first(api, version, body), version))
        steps = decoder_in_steps(api.request, version)(body, start)
        pauses, (value, end) = _run(steps)
        assert (value, end) == api.request.decoder(version)(body, start)
        assert pauses
        with pytest.raises(TooManyElements, match="at most 2499 are allowed"):
            _run(decoder_in_steps(api.request, version, 2499)(body, start))
        answer = api.response()
        assert _run(encoder_in_steps(api.response, version)(answer))[1] == api.response.encoder(version)(answer)


def _first(api: Any, version: int, body: memoryview) -> Any:
    from fencepost.protocol.headers import read_request_header

    return api.request.decode(body, version, read_request_header(body).body_start)


def _run(steps: Any) -> tuple[int, Any]:
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return pauses, done.value
        pauses += 1
