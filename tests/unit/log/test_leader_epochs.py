"""The leader epochs of a log (KIP-101): one entry for each epoch that has records, in rising order."""

import pytest

from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.storage.memory import MemoryStore


@pytest.fixture
def epochs() -> LeaderEpochs:
    found = LeaderEpochs(MemoryStore(), [])
    assert found.note(1, 0)
    assert found.note(2, 10)
    return found


def test_an_epoch_without_records_gives_way_to_the_one_that_follows_it(epochs: LeaderEpochs) -> None:
    """As `LeaderEpochFileCache.maybeTruncateNonMonotonicEntries`: 2 had no record when 3 began at its offset."""
    assert epochs.note(3, 10)
    assert [epochs.epoch_of(offset) for offset in (0, 9, 10, 11)] == [1, 1, 3, 3]
    assert epochs.rise == 2


def test_an_epoch_that_is_not_new_changes_nothing(epochs: LeaderEpochs) -> None:
    assert not epochs.note(2, 20)
    assert not epochs.note(1, 20)
    assert [epochs.epoch_of(offset) for offset in (9, 10, 20)] == [1, 2, 2]


@pytest.mark.parametrize(("end_offset", "latest"), [(11, 2), (10, 1), (1, 1), (0, -1)])
def test_a_truncation_drops_the_epochs_that_begin_behind_it(epochs: LeaderEpochs, end_offset: int, latest: int) -> None:
    epochs.truncate(end_offset)
    assert epochs.latest == latest
