"""Record batches on their way to the driver: they arrive as they were, and smaller where that is to be had."""

import os
import pickle

import pytest

pytest.importorskip("pyarrow")

from fencepost.protocol.record_batch import build_batch
from fencepost.spark_connector.sink.encode import Encoded
from fencepost.spark_connector.sink.message import Packed, Packer


def batch_of(values: list[bytes]) -> Encoded:
    return Encoded("t", 3, bytes(build_batch([(1, None, value, ()) for value in values])), len(values))


LIKE = batch_of([b'{"user": %d, "page": "/index.html"}' % n for n in range(500)])
UNLIKE = batch_of([os.urandom(40) for _ in range(500)])


def sent(packer: Packer, part: Encoded) -> Packed:
    packed: Packed = pickle.loads(pickle.dumps(packer.pack(part)))
    assert (packed.topic, packed.partition, packed.size) == (part.topic, part.partition, len(part.data))
    assert packed.unpacked() == part.data
    return packed


def test_what_packing_makes_smaller_travels_packed() -> None:
    packed = sent(Packer(compressed=False), LIKE)
    assert packed.is_packed
    assert len(packed.data) < len(LIKE.data) / 2


def test_what_it_does_not_make_smaller_travels_as_it_is() -> None:
    packed = sent(Packer(compressed=False), UNLIKE)
    assert not packed.is_packed
    assert packed.data == UNLIKE.data


def test_behind_one_that_was_not_worth_it_some_go_untried_and_then_one_is_tried_again() -> None:
    packer = Packer(compressed=False)
    assert not sent(packer, UNLIKE).is_packed
    assert [sent(packer, LIKE).is_packed for _ in range(9)] == [False] * 7 + [True] * 2


def test_batches_that_are_compressed_themselves_are_not_tried() -> None:
    assert not sent(Packer(compressed=True), LIKE).is_packed
