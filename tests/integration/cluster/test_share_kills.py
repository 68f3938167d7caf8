"""Leaders, coordinators, keepers of states and the database of a share group are killed: a short run of the loop."""

import os
from pathlib import Path

import pytest

from tests.kit.postgres_server import find_binaries
from tests.kit.share_cluster_kills import ShareClusterKills

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_binaries() is None, reason="there is no PostgreSQL on this machine"),
]


@pytest.mark.parametrize(
    "transactions",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(not os.environ.get("FENCEPOST_LONG"), reason="two minutes: FENCEPOST_LONG=1")
        ),
    ],
)
def test_nothing_accepted_comes_again_or_is_lost(tmp_path: Path, transactions: bool) -> None:
    """With transactions each record is in their output exactly once. `python -m tests.kit.share_cluster_kills`."""
    run = ShareClusterKills(tmp_path, "54", 3, transactions)
    assert run.go().violations == []
