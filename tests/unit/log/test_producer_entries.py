"""The usual batch is admitted by few questions, and by the same answer as all of them give (rows P2 to P5)."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry, following
from fencepost.broker.log.producer_state import AppendOrigin, ProducerStates, Refusal
from fencepost.protocol.batch_header import TRANSACTIONAL_BIT, BatchHeader
from fencepost.protocol.sequence import MAX_SEQUENCE

CLIENT = AppendOrigin.CLIENT
SEQUENCES = st.sampled_from([0, 1, 2, 3, 5, 2**30, MAX_SEQUENCE - 1, MAX_SEQUENCE])
DELTAS = st.sampled_from([0, 0, 1, 2, 2**29, 2**30, MAX_SEQUENCE])


def header(sequence: int, delta: int, *, epoch: int = 0, transactional: bool = False, producer: int = 7) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if transactional else 0
    return BatchHeader(0, 100, -1, 2, 0, attributes, delta, 5, 5, producer, epoch, sequence, delta + 1)


def by_all_questions(
    states: ProducerStates, batch: BatchHeader, offset: int, version: int
) -> ProducerEntry | BatchMetadata | Refusal:
    """P2 to P5 as they are written down: duplicates first, then epoch, sequence and transaction."""
    return states.find_duplicate(batch) or states.check_data(batch, offset, CLIENT, version)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, BatchHeader, int]]:
    """Batches of two producers that often go on where the last ended, come again, jump, change epoch; and markers."""
    steps, following_sequence = [], {7: 0, 8: 0}
    for _ in range(draw(st.integers(1, 25))):
        producer = draw(st.sampled_from([7, 7, 7, 8]))
        goes_on = draw(st.integers(0, 3)) > 0
        sequence = following_sequence[producer] if goes_on else draw(SEQUENCES)
        delta, epoch = draw(DELTAS), draw(st.sampled_from([0, 0, 0, 0, 1]))
        transactional = draw(st.booleans())
        batch = header(sequence, delta, epoch=epoch, transactional=transactional, producer=producer)
        kind = draw(st.sampled_from(["append"] * 6 + ["again", "marker", "verify"]))
        if kind == "append":
            following_sequence[producer] = (sequence + delta + 1) % (MAX_SEQUENCE + 1)
        steps.append((kind, batch, draw(st.sampled_from([0, 2]))))
    return steps


@given(histories())
def test_p2_to_p5_few_questions_and_all_of_them_give_the_same_answer(steps: list[tuple[str, BatchHeader, int]]) -> None:
    states, offset, last = ProducerStates(), 0, None
    for kind, asked, version in steps:
        if kind == "marker":
            states.commit_marker(asked.producer_id, asked.producer_epoch, True, 0, 5, offset)
            offset += 1
            continue
        if kind == "verify":
            states.guard(asked.producer_id, asked.producer_epoch, asked.base_sequence, version)
            continue
        batch = asked if kind == "append" or last is None else last
        said = states.admit(batch, offset, CLIENT, version)
        assert said == by_all_questions(states, batch, offset, version)
        if isinstance(said, ProducerEntry):
            states.commit_data(said)
            offset += batch.last_offset_delta + 1
            last = batch


def test_p3_a_duplicate_that_also_follows_because_the_numbers_went_round_is_a_duplicate() -> None:
    """Two batches that take all sequence numbers there are: the first of them, come again, follows the second."""
    states = ProducerStates()
    first, second = header(0, 2**30 - 1), header(2**30, 2**30 - 1)
    for offset, batch in ((0, first), (2**30, second)):
        entry = states.admit(batch, offset, CLIENT)
        assert isinstance(entry, ProducerEntry)
        states.commit_data(entry)
    assert states.admit(first, 2**31, CLIENT) == BatchMetadata(2**30 - 1, 2**30 - 1, 2**30 - 1, 5)


def test_t15_while_a_batch_of_the_producer_is_being_verified_none_behind_it_goes_before() -> None:
    states = ProducerStates()
    entry = states.admit(header(0, 0), 0, CLIENT)
    assert isinstance(entry, ProducerEntry)
    states.commit_data(entry)
    assert states.guard(7, 0, 0, 0) is not None
    refusal = states.admit(header(1, 0), 1, CLIENT)
    assert isinstance(refusal, Refusal)
    assert "being verified" in refusal.message


def test_the_usual_batch_is_known_and_nothing_else_is() -> None:
    plain = ProducerEntry(7, 0, -1, 5, -1, (BatchMetadata(4, 14, 4, 5),))
    in_transaction = plain._replace(txn_first_offset=10)
    assert following(plain, header(5, 1), 15) == plain._replace(batches=(*plain.batches, BatchMetadata(6, 16, 1, 5)))
    assert following(in_transaction, header(5, 1, transactional=True), 15) is not None
    for entry, other in (
        (plain, header(6, 1)),
        (plain, header(4, 1)),
        (plain, header(5, 1, epoch=1)),
        (plain, header(5, 1, transactional=True)),
        (in_transaction, header(5, 1)),
        (plain._replace(batches=()), header(0, 1)),
    ):
        assert following(entry, other, 15) is None
