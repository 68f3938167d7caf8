"""Let one call to the disk fail, each in turn, while the fixed history goes on; then crash, open and compare.

    python -m tests.simulation.io_faults [--kind full] [--durability fsync] [--io 731]

A failure names the kind of fault, the durability and the number of the call; with `--io` that case is played again.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator

from fencepost.broker.log.durability.flusher import Durability
from tests.kit.disk_faults import Fault
from tests.kit.disk_nodes import everything, nothing, sampled
from tests.simulation.checks import check, check_readers
from tests.simulation.script import script
from tests.simulation.world import ProcessEnds, Promises, World

SPACE_RETURNS_AFTER = 12
"""So many operations after the disk was full, it is not any more."""

KINDS: dict[str, tuple[Callable[[int], Fault], frozenset[str]]] = {
    "eio": (Fault.once, frozenset()),
    "full": (Fault.full, frozenset({"create", "pwrite", "mkdir", "rename"})),
    "full_half_way": (lambda io: Fault.full(io, 20), frozenset({"pwrite"})),
    "short": (lambda io: Fault.short_write(io, 1), frozenset({"pwrite"})),
    "failed_sync": (Fault.once, frozenset({"fsync", "fdatasync"})),
}
"""The kinds of faults, and the kinds of calls that each can meet: none for all."""


def calls(durability: Durability, kind: str) -> list[int]:
    """The numbers of the calls that a fault of this kind can meet when nothing goes wrong."""
    met: list[int] = []
    world = World(durability)
    wanted = KINDS[kind][1]

    def note(call: str, path: str) -> None:
        if not wanted or call in wanted:
            met.append(world.disk.io_count)

    world.disk.before_io = note
    for _, operation in script():
        operation(world)
    assert not world.refused, "a good disk refuses nothing"
    return met


def play(durability: Durability, kind: str, io: int) -> None:
    """Play the script with one fault. Raises AssertionError, which says how to see it again."""
    try:
        _play(durability, KINDS[kind][0](io))
    except Exception as error:
        again = f"--kind {kind} --durability {durability} --io {io}"
        raise AssertionError(f"{error!r}\nagain: python -m tests.simulation.io_faults {again}") from error


def _play(durability: Durability, fault: Fault) -> None:
    world = World(durability, faults=[fault])
    met_at = -1
    for number, (_, operation) in enumerate(script()):
        before = world.promises()
        try:
            operation(world)
        except ProcessEnds:
            _end(world, before)
            return
        if fault.hits and met_at < 0:
            met_at = number
            world.look()
            check_readers(world.directory, world.promises())
        if fault.hits and number == met_at + SPACE_RETURNS_AFTER:
            world.disk.faults.clear()
            _write_on(world)
    world.disk.faults.clear()
    _write_on(world)
    _end(world, world.promises())


def _write_on(world: World) -> None:
    """A disk that is well again is written to without a restart."""
    for tp in world.partitions:
        refused = world.refused
        world.append(tp, -1, 1, 30, transactional=False)
        # Only a flush that failed has consequences: nobody knows what is on the disk (see `FlushFailed`).
        assert world.refused == refused or world.is_offline(tp), f"the disk is well, and {tp} still refuses"
    check_readers(world.directory, world.promises())


def _end(world: World, before: Promises) -> None:
    """The process dies, or the power goes. What a failed sync left in the cache may be lost: see a power cut."""
    world.disk.faults.clear()
    world.disk.before_io = None
    after = world.promises()
    for seed, fate in enumerate((nothing, everything, sampled)):
        check(world.disk.power_cut(fate, seed), world.durability, before, after, power_was_cut=True)
    if world.durability == "os":
        check(world.disk.kill(), world.durability, before, after, power_was_cut=False)


def every_case(kind: str, durability: Durability, step: int = 1) -> Iterator[int]:
    """Play every `step`th call of a kind, yielding its number."""
    for io in calls(durability, kind)[::step]:
        play(durability, kind, io)
        yield io


def main() -> int:
    """Play all cases, or the one that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=tuple(KINDS), default=None)
    parser.add_argument("--durability", choices=("fsync", "os"), default=None)
    parser.add_argument("--io", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.io is None:
        logging.disable(logging.CRITICAL)  # what the log says is of interest where one case is looked at
    durabilities: tuple[Durability, ...] = ("fsync", "os") if arguments.durability is None else (arguments.durability,)
    for kind in KINDS if arguments.kind is None else (arguments.kind,):
        for durability in durabilities:
            if arguments.io is not None:
                play(durability, kind, arguments.io)
                continue
            print(f"{kind}, {durability}: {sum(1 for _ in every_case(kind, durability))} cases, all well", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
