"""What a revocation takes from transactions that are being put together (`core.transaction_assembler`)."""

import pytest

from fencepost.client.core.offset_metadata import decode_metadata
from fencepost.client.core.transaction_assembler import PLAIN, Assembler, Piece
from fencepost.protocol.topics import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
HERE, THERE = Piece(P0, 0, 1, 10, "here"), Piece(P1, 0, 1, 20, "there")


@pytest.fixture
def assembler() -> Assembler:
    """One committed transaction over both partitions, whose ends have not been asked for."""
    found = Assembler()
    for piece in (HERE, THERE):
        found.start(piece.partition, 0, None)
        assert found.add(piece, 7, 0, 0, transactional=True)
    for partition in (P0, P1):
        found.end(partition, 1, 7, 1, commit=True)
    return found


def test_a_transaction_is_given_without_the_part_of_a_revoked_partition(assembler: Assembler) -> None:
    """The next owner of the partition gives that part."""
    assembler.stop(P0)
    assert (assembler.held_bytes, assembler.dropped) == (20, [HERE])
    unit = assembler.ready()
    assert unit is not None
    assert [share.pieces for share in unit.shares] == [[THERE]]
    assert assembler.ready() is None
    assert assembler.held_bytes == 0


def test_of_a_transaction_whose_partitions_are_all_revoked_nothing_is_given(assembler: Assembler) -> None:
    assembler.stop(P0)
    assembler.stop(P1)
    assembler.start(P1, 2, None)
    assert (assembler.held_bytes, assembler.dropped) == (0, [HERE, THERE])
    assert assembler.ready() is None


def test_what_was_given_at_the_offset_to_go_on_at_is_named(assembler: Assembler) -> None:
    """The next owner of a partition reads from there, and must not give the same again."""
    assembler.fence(assembler.asked(), {P0: 2, P1: 2})
    assert assembler.ready() is not None
    held = Piece(P0, 2, 3, 10, "open")
    assert assembler.add(held, 8, 0, 0, transactional=True)
    later = Piece(P0, 3, 4, 10, "plain")
    assert assembler.add(later, -1, -1, -1, transactional=False)
    assert assembler.ready() is not None
    offset, metadata = assembler.places()[P0]
    assert offset == 2
    assert decode_metadata(offset, metadata) == ({PLAIN: 3}, set())
    assembler.end(P0, 4, 8, 1, commit=False)
    offset, metadata = assembler.places()[P0]
    assert (offset, decode_metadata(offset, metadata)) == (5, ({}, set()))
