"""kill -9 at random moments while transactions acknowledge records of a share group: exactly once, all the same."""

import os

from tests.conftest import StartBroker
from tests.kit.share_txn_kills import SETTINGS, kill_and_count

CYCLES = int(os.environ.get("CHAOS_ROUNDS", "3"))
"""How often the broker is killed; more by hand, or by `python -m tests.kit.share_txn_kills`."""


def test_each_record_is_in_the_output_exactly_once(start_broker: StartBroker) -> None:
    """KIP-1289: output and acknowledgements count together, or not at all; read_committed, after each kind of kill."""
    counts = kill_and_count(start_broker(files=True, settings=SETTINGS), CYCLES)
    assert counts["kills"] == CYCLES
    assert counts["committed"] > 0
