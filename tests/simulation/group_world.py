"""A broker and one consumer group in one process and one virtual time: one seed is one world.

python -m tests.simulation.group_world [--protocol consumer|mixed] --seeds 1000 [--first N] [--trace] [--keep-going]
"""

import argparse
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from tests.kit.determinism import run_seeded
from tests.simulation.group_base import BaseWorld, GroupOutcome, Plan
from tests.simulation.group_ledger import GroupLedger
from tests.simulation.group_members import TOPIC, Member
from tests.simulation.group_protocols import ProtocolWorld
from tests.simulation.hashes import fix_hashes

NEVER_LATE = ("OffsetCommit", "SyncGroup", "JoinGroup")
"""What an older copy of these does when it comes late, it does to any broker that speaks this protocol. A commit takes
its own member's offset back; a SyncGroup of a leader whose generation a crash has undone is taken for the new one; a
JoinGroup says that its member has given up what it owns, or takes the static place of the newcomer who sent it."""


@dataclass(frozen=True)
class GroupPlan(Plan):
    """What is decided of a world of the classic protocol."""

    cooperative: bool

    @classmethod
    def of(cls, random: Random) -> "GroupPlan":
        """The plan of a seed."""
        return cls(
            seconds=random.uniform(6.0, 20.0),
            sizes={TOPIC: random.randint(1, 5)},
            members=random.randint(1, 4),
            cooperative=random.random() < 0.4,
            static=random.random() < 0.4,
            transactional=random.random() < 0.4,
            freezes=random.choice((0.0, 0.02, 0.08)),
            lives=random.choice(((2.0, 8.0), (5.0, 30.0), (0.3, 3.0))),
            blows=random.choice((0, 1, 2, 4)),
        )


class GroupWorld(BaseWorld[Member]):
    """A world of the classic protocol, with members whose leader this test plays."""

    plan: GroupPlan
    books: GroupLedger

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        super().__init__(seed, GroupPlan.of(random), random, NEVER_LATE)
        self.books = GroupLedger(self.outcome, self.tell)
        self.owes_join: dict[str | None, int] = {}
        """By static place: the generation in which its holder gave something up, and was to join again."""

    def member(self, slot: int, name: str, random: Random) -> Member:
        instance_id = f"place-{slot}" if self.plan.static else None
        version = random.choice((5, 7, 9)) if self.plan.static else random.choice((3, 5, 9))
        return Member(self, name, Random(random.getrandbits(64)), version, instance_id)


def run_group_world(seed: int, protocol: str = "classic") -> GroupOutcome:
    """The world of a seed, from beginning to end."""
    return run_seeded(seed, KINDS[protocol](seed).run)


KINDS: dict[str, Callable[[int], BaseWorld[Any]]] = {
    "classic": GroupWorld,
    "consumer": partial(ProtocolWorld, mixed=False),
    "mixed": partial(ProtocolWorld, mixed=True),
}
"""Kinds of worlds, by what the members speak."""


def main() -> int:
    """Run worlds; 1 where one went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.group_world", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds (100)")
    parser.add_argument("--protocol", choices=KINDS, default="classic", help="what the members speak (classic)")
    parser.add_argument("--keep-going", action="store_true", help="go on after a world that went wrong")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--trace", action="store_true", help="show what happened, also where all was well")
    arguments = parser.parse_args()
    fix_hashes("tests.simulation.group_world")
    logging.disable(logging.CRITICAL)
    wrong = commits = refused = handed_over = generations = lives = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = run_group_world(seed, arguments.protocol)
        commits += outcome.commits
        refused += outcome.refused
        handed_over += outcome.handed_over
        generations += outcome.generation
        lives += outcome.lives
        if outcome.broken or arguments.trace:
            print("\n".join([*outcome.trace, *outcome.broken]))
        if outcome.broken:
            wrong += 1
            again = f"python -m tests.simulation.group_world --protocol {arguments.protocol} --first {seed} --seeds 1"
            print(f"seed {seed}: see it again: {again}", flush=True)
            if not arguments.keep_going:
                break
        if (seed + 1 - arguments.first) % 100 == 0:
            print(f"{seed + 1 - arguments.first}/{arguments.seeds} worlds", file=sys.stderr, flush=True)
    print(
        f"{arguments.seeds} worlds, {wrong} wrong; {generations} generations, {handed_over} partitions handed over,"
        f" {commits} commits, {refused} refused to zombies, {lives} lives of a broker"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
