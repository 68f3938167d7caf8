"""Cut the power, or kill the process, before every call to the disk that changes something; then open and compare.

    python -m tests.simulation.power_cut [--durability fsync] [--seeds 20] [--io 731] [--seed 4]

A failure names the durability, the number of the call, the fate of what was not synced, and the seed; with `--io` and
`--seed` just that case is played again.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple

from fencepost.broker.log.durability.flusher import Durability
from tests.kit.disk_nodes import Fate, data_only, everything, names_only, nothing, sampled
from tests.kit.sim_disk import SimDisk
from tests.simulation.checks import check
from tests.simulation.script import script
from tests.simulation.world import Promises, World

CHANGES = frozenset({"create", "pwrite", "ftruncate", "fdatasync", "fsync", "mkdir", "rename", "unlink", "rmdir"})
"""Between two other calls the disk is the same: cutting once is enough."""

PLAIN_FATES: dict[str, Fate] = {
    "nothing": nothing,
    "everything": everything,
    "names_only": names_only,
    "data_only": data_only,
}
KILL = "kill"
"""The process dies, the page cache lives."""


def ended(disk: SimDisk, fate: str, seed: int) -> SimDisk:
    """The disk as the next start finds it."""
    return disk.kill() if fate == KILL else disk.power_cut(PLAIN_FATES.get(fate, sampled), seed)


class Moment(NamedTuple):
    """The disk just before a call."""

    io: int
    kind: str
    path: str
    disk: SimDisk


class Cut(NamedTuple):
    """One way to end at a moment."""

    fate: str
    seed: int = 0


Cuts = Callable[[int], Collection[Cut]]
"""Which ways to try at the call of this number."""


def every_cut(seeds: int) -> Cuts:
    """All that there are, with so many samples."""
    cuts = [Cut(fate) for fate in (KILL, *PLAIN_FATES)]

    def cuts_at(io: int) -> Collection[Cut]:
        return cuts + [Cut("sampled", seed) for seed in range(seeds)]

    return cuts_at


def one_cut_each(step: int = 1) -> Cuts:
    """One way at every `step`th call: of the plain ones in turn, and every other time a sample."""
    names = (*PLAIN_FATES, KILL)

    def cuts_at(io: int) -> Collection[Cut]:
        turn, rest = divmod(io, step)
        if rest:
            return []
        return [Cut("sampled", io)] if turn % 2 else [Cut(names[turn // 2 % len(names)])]

    return cuts_at


def play(durability: Durability, cuts: Cuts, ios: range | None = None) -> int:
    """Play the script once, and check every cut at every change; returns how many were checked."""
    world = World(durability)
    moments: list[Moment] = []

    def freeze(kind: str, path: str) -> None:
        io = world.disk.io_count
        if kind in CHANGES and (ios is None or io in ios) and cuts(io):
            moments.append(Moment(io, kind, path, world.disk.kill()))

    world.disk.before_io = freeze
    checked = 0
    for name, operation in script():
        before = world.promises()
        operation(world)
        after = world.promises()
        for moment in moments:
            for cut in cuts(moment.io):
                check_cut(durability, name, moment, cut, before, after)
                checked += 1
        moments.clear()
    return checked


def check_cut(durability: Durability, name: str, moment: Moment, cut: Cut, before: Promises, after: Promises) -> None:
    """End at this moment in this way, and check. Raises AssertionError, which says how to see it again."""
    try:
        check(ended(moment.disk, cut.fate, cut.seed), durability, before, after, power_was_cut=cut.fate != KILL)
    except Exception as error:
        again = f"--durability {durability} --io {moment.io} --fate {cut.fate} --seed {cut.seed}"
        raise AssertionError(
            f"{error!r}\nin operation {name}, before {moment.kind} of {moment.path}\n"
            f"again: python -m tests.simulation.power_cut {again}"
        ) from error


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--durability", choices=("fsync", "os"), default=None)
    parser.add_argument("--seeds", type=int, default=10, help="samples at each call")
    parser.add_argument("--io", type=int, default=None, help="only at the call of this number")
    parser.add_argument("--fate", choices=(KILL, *PLAIN_FATES, "sampled"), default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep-going", action="store_true", help="list all failures")
    return parser.parse_args()


def main() -> int:
    """Play all of it, or the one case that the arguments name."""
    arguments = _arguments()
    if arguments.io is None:
        logging.disable(logging.CRITICAL)  # what the log says is of interest where one case is looked at
    durabilities: tuple[Durability, ...] = ("fsync", "os") if arguments.durability is None else (arguments.durability,)
    cuts = every_cut(arguments.seeds)
    if arguments.fate is not None:
        cuts = lambda io: [Cut(arguments.fate, arguments.seed)]  # noqa: E731
    ios = None if arguments.io is None else range(arguments.io, arguments.io + 1)
    for durability in durabilities:
        print(f"{durability}: {play(durability, cuts, ios)} cuts, all well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
