"""Groups of other people's clients: members arrive, leave and die, and every record is worked on once (G1-G4, T4-T6).

The members are processes that consume, transform and produce in transactions with their positions; a reader that has
nothing to do with them counts.
"""

import pytest

from tests.interop.confluent_steps import READ_UNCOMMITTED, WAIT_SECONDS, admin_client, read_to_end
from tests.interop.group_play import PARTITIONS, play_of

pytestmark = pytest.mark.interop
KINDS = ["confluent eager", "confluent cooperative", "confluent consumer", "aiokafka", "kafka-python", "kafkajs"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_once_while_members_come_go_and_die(bootstrap: str, name: str, kind: str) -> None:
    """Join, arrival, kill -9 in an open transaction, its successor, a departure; each goes on where all stood."""
    with play_of(bootstrap, name, kind) as play:
        play.feed(20)
        play.enter("a")
        play.until_shared()
        second = play.enter("b", pause_s=10.0)  # there is time to hit it in the middle
        play.until_shared()
        opened = second.heard("open")
        play.feed(40)
        second.next("open", opened)
        play.members.pop("b").kill()
        play.until_shared()
        successor = play.enter("b")
        play.until_shared()
        committed = successor.heard("committed")
        play.feed(20)
        successor.next("committed", committed)
        play.exit("a")
        play.until_shared()
        play.feed(20)
        play.until_done(admin_client(bootstrap))
        play.exit("b")
        seen = play.seen()
        everything = read_to_end(bootstrap, play.target, range(PARTITIONS), READ_UNCOMMITTED)
        assert len(everything) > len(seen), "the one that was killed had a transaction open"


@pytest.mark.parametrize("classic", ["eager", "cooperative"])
def test_a_group_changes_its_protocol_member_by_member_and_back_g5(bootstrap: str, name: str, classic: str) -> None:
    """Row G5: the first of the consumer protocol takes the others along, the last that leaves gives the group back."""

    def kind() -> str:
        return str(admin_client(bootstrap).describe_consumer_groups([name])[name].result(WAIT_SECONDS).type.name)

    with play_of(bootstrap, name, f"confluent {classic}") as play:
        play.enter("a")
        play.until_shared()
        assert kind() == "CLASSIC"
        play.feed(20)
        for leaves, comes, variant, expected in (
            (None, "b", "consumer", "CONSUMER"),
            ("a", "c", "consumer", "CONSUMER"),
            ("b", "d", classic, "CONSUMER"),
            ("c", "e", classic, "CLASSIC"),
        ):
            if leaves is not None:
                play.exit(leaves)
            play.enter(comes, variant)
            play.until_shared()
            assert kind() == expected, f"{comes} has come"
            play.feed(10)
        play.until_done(admin_client(bootstrap))
        play.exit("d")
        play.exit("e")
        play.seen()
