"""Our client's members in one group with other people's, on our broker and on a real Kafka (G1, G2, G4, G5, KIP-447).

They arrive, leave in order and are killed in the middle of a transaction, whoever leads at the moment; and every record
is worked on once.
"""

import pytest

from tests.interop.confluent_steps import READ_UNCOMMITTED, admin_client, read_to_end
from tests.interop.group_play import PARTITIONS, Play, play_of
from tests.interop.long import LONG
from tests.interop.members.process import MemberProcess

pytestmark = pytest.mark.interop
Part = tuple[str, str]
"""A client, and which of its ways it takes."""

OURS: dict[str, Part] = {
    "range": ("fencepost", "range"),
    "sticky": ("fencepost", "sticky"),
    "cooperative": ("fencepost", "cooperative-sticky"),
    "either": ("fencepost", "range,cooperative-sticky"),
    "consumer": ("fencepost", "consumer"),
}
CASTS: dict[str, tuple[Part, Part]] = {
    "ours": (OURS["either"], OURS["either"]),
    "ours cooperative": (OURS["cooperative"], OURS["cooperative"]),
    "ours consumer": (OURS["consumer"], OURS["consumer"]),
    "librdkafka range": (OURS["either"], ("confluent", "eager")),
    "librdkafka cooperative": (OURS["cooperative"], ("confluent", "cooperative")),
    "librdkafka consumer": (OURS["consumer"], ("confluent", "consumer")),
    "aiokafka": (OURS["range"], ("aiokafka", "range")),
    "kafka-python": (OURS["range"], ("kafka-python", "")),
    "java default": (OURS["either"], ("java", "RangeAssignor,CooperativeStickyAssignor")),
    "java sticky": (OURS["sticky"], ("java", "StickyAssignor")),
    "java cooperative": (OURS["cooperative"], ("java", "CooperativeStickyAssignor")),
    "java consumer": (OURS["consumer"], ("java", "consumer")),
    "classic and consumer": (OURS["cooperative"], OURS["consumer"]),
}


def enter(play: Play, who: str, part: Part, pause_s: float = 0.02) -> None:
    """Start a member of some client."""
    client, variant = part
    play.enter(who, variant, pause_s, client)


EVENINGS = [
    ("fencepost", "ours consumer", False),
    ("fencepost", "librdkafka range", False),
    ("fencepost", "librdkafka cooperative", True),
    ("fencepost", "kafka-python", True),
    ("fencepost", "java default", False),
    ("kafka", "ours cooperative", False),
    ("kafka", "librdkafka consumer", False),
]
"""The broker, the cast, and whether the second of it comes first, and so leads where members lead."""
if LONG:
    EVENINGS = [
        (broker, cast, turned) for broker in ("fencepost", "kafka") for cast in CASTS for turned in (False, True)
    ]


@pytest.mark.parametrize(("broker", "cast", "turned"), EVENINGS)
def test_every_record_once_in_mixed_company(
    request: pytest.FixtureRequest, name: str, broker: str, cast: str, turned: bool
) -> None:
    """Join, arrival, kill -9 in an open transaction, its successor, a departure."""
    ours = broker == "fencepost"
    address = request.getfixturevalue("bootstrap") if ours else request.getfixturevalue("real_kafka").address
    first, second = CASTS[cast][::-1] if turned else CASTS[cast]
    with play_of(address, name, " ".join(first)) as play:
        play.feed(10)
        enter(play, "a", first)
        play.until_shared()
        enter(play, "b", second, pause_s=10.0)  # there is time to hit it in the middle
        play.until_shared()
        opened = play.members["b"].heard("open")
        play.feed(20)
        play.members["b"].next("open", opened)
        play.members.pop("b").kill()
        play.until_shared()
        enter(play, "b", second)
        play.until_shared()
        committed = play.members["b"].heard("committed")
        play.feed(10)
        play.members["b"].next("committed", committed)
        play.exit("a")
        play.until_shared()
        play.feed(10)
        play.until_done(admin_client(address))
        play.exit("b")
        seen = play.seen()
        everything = read_to_end(address, play.target, range(PARTITIONS), READ_UNCOMMITTED)
        assert len(everything) > len(seen), "the one that was killed had a transaction open"


def test_four_clients_in_one_group(each_bootstrap: str, name: str) -> None:
    """Range is what all of them know; whoever leads deals, the others read what it wrote."""
    with play_of(each_bootstrap, name, "fencepost") as play:
        play.feed(10)
        parts = [OURS["either"], ("confluent", "eager"), ("aiokafka", "range"), ("kafka-python", "")]
        for who, part in zip("abcd", parts, strict=True):
            enter(play, who, part)
        play.until_shared()
        play.feed(10)
        play.members.pop("b").kill()
        play.members.pop("d").kill()
        play.until_shared()
        play.feed(10)
        play.exit("a")
        play.until_shared()
        enter(play, "e", OURS["range"])
        play.until_shared()
        play.feed(10)
        play.until_done(admin_client(each_bootstrap))
        play.exit("c")
        play.exit("e")
        play.seen()


def test_from_eager_to_cooperative_to_the_consumer_protocol_and_back(each_bootstrap: str, name: str) -> None:
    """KIP-429's two rolling bounces, and row G5's, with the group at work all the while."""
    rolls = ["range", "cooperative-sticky,range", "cooperative-sticky", "consumer", "cooperative-sticky"]
    with play_of(each_bootstrap, name, "fencepost") as play:
        play.feed(5)
        enter(play, "a0", ("fencepost", rolls[0]))
        enter(play, "b0", ("fencepost", rolls[0]))
        play.until_shared()
        for turn, variant in enumerate(rolls[1:], 1):
            for who in "ab":
                play.exit(f"{who}{turn - 1}")
                enter(play, f"{who}{turn}", ("fencepost", variant))
                play.until_shared()
                play.feed(3)
        play.until_done(admin_client(each_bootstrap))
        for who in "ab":
            play.exit(f"{who}{len(rolls) - 1}")
        play.seen()


def freeze_in_a_transaction(play: Play, member: MemberProcess) -> None:
    """Stop a member between "open" and "committed"; again, if that one was over before this process came to it."""
    while True:
        opened = member.heard("open")
        play.feed(20)
        member.next("open", opened)
        member.freeze()
        if member.in_a_transaction():
            return
        member.thaw()


@pytest.mark.parametrize("variant", ["range", "cooperative-sticky", "consumer"])
def test_a_member_that_froze_in_its_transaction_does_nothing_twice(bootstrap: str, name: str, variant: str) -> None:
    """Its session ends, others get what it had, and it wakes up in the middle of it all.

    Its positions were taken while it was a member, so its transaction may commit yet; who has its partitions now waits
    for that before it reads (KIP-447, row T6).
    """
    with play_of(bootstrap, name, "fencepost") as play:
        play.feed(10)
        enter(play, "a", ("fencepost", variant))
        enter(play, "b", ("fencepost", variant), pause_s=0.5)
        play.until_shared()
        frozen = play.members["b"]
        freeze_in_a_transaction(play, frozen)
        committed = frozen.heard("committed")
        play.members.pop("b")
        play.until_shared()
        play.feed(10)
        frozen.thaw()
        play.members["b"] = frozen
        frozen.next("committed", committed)
        play.until_shared()
        play.feed(10)
        play.until_done(admin_client(bootstrap))
        play.exit("a")
        play.exit("b")
        play.seen()
