"""Exactly once under kill -9 of our clients and of the broker; the judge is confluent-kafka.

The long form: `python -m tests.kit.client_kills --kills 200`; FENCEPOST_INTEROP=long plays TV1 as well.
"""

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
from tests.interop.long import LONG
from tests.kit.client_kills import Run


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("level", "whole"), [(2, False), (2, True), *([(1, False)] if LONG else [])])
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path, level: int, whole: bool) -> None:
    """T2, T5, T7, T10, T16, KIP-447: two copying processes, a few kills of each side, both protocols."""
    verdict = Run(tmp_path, kills=6, seed=f"ci-{level}", level=level, whole=whole).go()
    assert verdict.clean, str(verdict)
    assert verdict.kills.keys() == {"broker", "client"}
