"""What a revocation takes from transactions that are being put together (`core.transaction_assembler`)."""

import pytest

from fencepost.client.core.transaction_assembler import Assembler, Piece
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
