"""The wrap of producer sequences at int32 (row P2)."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.sequence import MAX_SEQUENCE, NO_SEQUENCE, advance, continued, is_next, last_of


def test_sequence_after_the_largest_int32_is_zero_p2() -> None:
    assert advance(MAX_SEQUENCE, 1) == 0
    assert advance(MAX_SEQUENCE - 1, 1) == MAX_SEQUENCE
    assert advance(MAX_SEQUENCE - 2, 10) == 7


def test_a_batch_may_span_the_wrap_p2() -> None:
    assert last_of(MAX_SEQUENCE - 1, 5) == 2
    assert last_of(0, 1) == 0
    assert last_of(7, 3) == 9


def test_a_batch_without_sequence_has_no_last_sequence() -> None:
    assert last_of(NO_SEQUENCE, 5) == NO_SEQUENCE


def test_only_the_direct_successor_is_next_p2() -> None:
    assert is_next(4, 5)
    assert is_next(MAX_SEQUENCE, 0)
    assert not is_next(4, 6)
    assert not is_next(4, 4)
    assert not is_next(4, 0)
    assert not is_next(MAX_SEQUENCE, 1)


def test_the_first_batch_of_an_unused_producer_follows_no_sequence() -> None:
    assert is_next(NO_SEQUENCE, 0)
    assert not is_next(NO_SEQUENCE, 1)


_ANY = st.one_of(st.integers(0, MAX_SEQUENCE), st.sampled_from([0, 1, MAX_SEQUENCE - 1, MAX_SEQUENCE]))


@given(st.one_of(_ANY, st.just(NO_SEQUENCE)), _ANY, _ANY, st.booleans())
def test_where_a_batch_ends_that_follows_directly_p2(last: int, first: int, delta: int, follows: bool) -> None:
    first = advance(last, 1) if follows else first
    assert continued(last, first, delta) == (last_of(first, delta + 1) if is_next(last, first) else NO_SEQUENCE)
