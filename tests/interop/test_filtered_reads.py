"""Other people's clients pass long stretches of aborted records that the broker leaves out (`read.committed.filter`).

Every one consumes, transforms and produces in transactions, and a reader that has nothing to do with it counts.
"""

import os

import pytest

from tests.interop.confluent_steps import admin_client
from tests.interop.group_play import filtered_by, play_of

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif("FENCEPOST_INTEROP_BOOTSTRAP" in os.environ, reason="Kafka has no such setting"),
]
KINDS = ["confluent eager", "confluent consumer", "aiokafka", "kafka-python", "kafkajs", "java consumer", "fencepost"]
STRETCH, RECORD_BYTES = 3000, 1000
"""Far more than one fetch returns of a partition (1 MiB)."""
MARKER = 1


@pytest.mark.parametrize("kind", KINDS)
def test_aborted_stretches_at_both_ends_and_between(bootstrap: str, name: str, kind: str) -> None:
    """Rows I4 and I5: every record once; a reader that got nothing would stand still."""
    with play_of(bootstrap, name, kind) as play:
        admin = admin_client(bootstrap)
        filtered_by(admin, play.source, "broker")
        play.abort(STRETCH, RECORD_BYTES)
        play.feed(15)
        play.abort(STRETCH, RECORD_BYTES)
        play.feed(15)
        play.enter("a")
        play.until_done(admin, aborted=2 * (STRETCH + MARKER))
        play.exit("a")
        play.seen()
