"""Whether the pauses of several cores have an instant in common (decision 0068)."""

from pathlib import Path

import pytest

from fencepost.cli.backup.cut import CoreEnds, homes, of_one_instant, on_the_way
from fencepost.protocol.topics import TopicPartition


@pytest.mark.parametrize(
    ("pauses", "is_one"),
    [
        ([(10, 60), (40, 90)], True),
        ([(10, 60), (60, 110)], True),
        ([(10, 60), (61, 111)], False),
        ([(10, 60), (40, 90), (70, 120)], False),
        ([(10, 110), (40, 140), (70, 170)], True),
    ],
)
def test_all_pauses_must_overlap_at_one_instant(pauses: list[tuple[int, int]], is_one: bool) -> None:
    """Two that do, and a third that begins when the first has ended, have none in common."""
    found = of_one_instant([CoreEnds(*pause, {TopicPartition("t", n): n}) for n, pause in enumerate(pauses)])
    assert (found is not None) == is_one
    if found is not None:
        assert found == {TopicPartition("t", n): n for n in range(len(pauses))}


def test_a_log_on_its_way_to_another_core_is_no_partition(tmp_path: Path) -> None:
    """While it is handed over no core has its end: the cut is taken again."""
    moving = "t.0.000102030405060708090a0b0c0d0e0f-moving"
    for name in ("u-0", "cores/1/t-1", f"cores/1/{moving}"):
        (tmp_path / name).mkdir(parents=True)
    assert homes(tmp_path) == {"u-0": 0, "t-1": 1}
    assert on_the_way(tmp_path) == [moving]
