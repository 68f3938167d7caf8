"""Offsets as Spark's checkpoint has them."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.offsets import offsets_of, tree_of

OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 30)), st.integers(0, 2**62), max_size=20
)


@given(OFFSETS, st.randoms())
def test_one_set_of_offsets_has_one_text_because_spark_compares_texts(
    offsets: dict[TopicPartition, int], chance: random.Random
) -> None:
    shuffled = list(offsets.items())
    chance.shuffle(shuffled)
    text = json.dumps(tree_of(dict(shuffled)))
    assert text == json.dumps(tree_of(offsets))
    assert offsets_of(json.loads(text)) == offsets


def test_the_form_is_that_of_sparks_kafka_source() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(tree_of(offsets)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


@pytest.mark.parametrize("tree", [[], {"t": []}, {"t": {"0": None}}, {"t": {"0": -1}}, {"t": {"": 1}}])
def test_another_form_is_no_offset(tree: object) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError)):
        offsets_of(tree)
