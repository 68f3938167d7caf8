"""Scenario files: stories of a few clients and one broker, each step with what came of it.

A file is prose (lines with #) and steps: a command, `----`, what it says, an empty line. `python -m
tests.simulation.story --rewrite [FILE ...]` puts down what the steps say now; without the flag it shows differences.
What commands there are: docs/simulation.md.
"""

import argparse
import difflib
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import trio

from fencepost.protocol.topics import TopicPartition
from tests.kit.determinism import run_seeded
from tests.kit.disk_nodes import nothing
from tests.kit.history import Place
from tests.kit.sim_broker import SimBroker
from tests.kit.sim_network import Fate, Request, SimNetwork
from tests.simulation.hashes import fix_hashes
from tests.simulation.lines import Line, create_topics
from tests.simulation.node_state import open_transactions, transactional_ids
from tests.simulation.sim_readers import committed_offsets, read_all
from tests.simulation.txn_client import Abortable, Fenced, GaveUp, TxnClient

SCENARIOS = Path(__file__).with_name("scenarios")
DELAY_SECONDS = 0.001
LATE = {"is late by": "before", "comes twice, again after": None}
AT_EACH_CALL = ", killed at each call to the disk"
CALLS_MAX = 100
STEP_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class Step:
    """One step of a story: prose before it, the command, and what it said when the file was written."""

    prose: tuple[str, ...]
    command: str
    said: tuple[str, ...]


def parse(text: str) -> list[Step]:
    """The steps of a scenario file."""
    steps: list[Step] = []
    prose: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip() or line.startswith("#"):
            prose.append(line)
            continue
        said: list[str] = []
        for below in lines:
            if not below.strip():
                break
            said.append(below)
        assert said[:1] == ["----"], f"`----` must follow {line!r}"
        steps.append(Step(tuple(prose), line, tuple(said[1:])))
        prose = []
    assert not any(line.strip() for line in prose), "prose that no step follows"
    return steps


def written(steps: Sequence[Step]) -> str:
    """The file of these steps."""
    parts = ["\n".join([*step.prose, step.command, "----", *step.said, ""]) for step in steps]
    return "\n".join(parts).rstrip("\n") + "\n"


class StoryWeather:
    """Everything arrives after a millisecond, but for what the story says."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str, bool, Fate]] = []
        """Client, name of the API, whether the answer is meant, fate: each for one frame."""

    def expect(self, client_id: str, api: str, answer: bool, fate: Fate) -> None:
        """The next such frame meets this fate."""
        self._waiting.append((client_id, api, answer, fate))

    def dial(self, client_id: str) -> Fate:
        """Always well."""
        return Fate(DELAY_SECONDS)

    def request(self, request: Request) -> Fate:
        """What the story says."""
        return self._fate(request, False)

    def answer(self, request: Request) -> Fate:
        """What the story says."""
        return self._fate(request, True)

    def _fate(self, request: Request, answer: bool) -> Fate:
        for entry in self._waiting:
            if entry[:3] == (request.client_id, request.name.partition(" ")[0], answer):
                self._waiting.remove(entry)
                return entry[3]
        return Fate(DELAY_SECONDS)


class Story:
    """A broker, and the people of one story."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.weather = StoryWeather()
        self.network = SimNetwork(nursery, self.weather)
        self.broker = SimBroker(nursery, self.network, Random(0))
        self._producers: dict[str, TxnClient] = {}
        self._places: list[Place] = []
        self._lines: list[Line] = []

    def _line(self, name: str) -> Line:
        self._lines.append(Line(self.network, name))
        return self._lines[-1]

    def close(self) -> None:
        """Close everybody's connections."""
        for line in self._lines:
            line.close()

    async def do(self, command: str) -> list[str]:
        """What a command says. Raises ValueError for one that is none."""
        words = command.split()
        match words:
            case ["topic", name, count]:
                await self._create_topic(name, int(count))
            case ["producer", name, *options]:
                self._hire(name, dict(option.split("=") for option in options))
            case ["wait", seconds]:
                await trio.sleep(float(seconds))
            case ["clock", seconds]:
                self.broker.clock.jump(float(seconds))
            case ["kill"]:
                self.broker.kill()
            case ["power", "cut"]:
                self.broker.power_cut(nothing)
            case ["disk", "full"]:
                self.broker.disk.room_bytes = 0
            case ["disk", "has", "room", "for", count, "bytes"]:
                self.broker.disk.room_bytes = int(count)
            case ["disk", "has", "space"]:
                self.broker.disk.room_bytes = None
            case ["start"]:
                return ["up"] if await self.broker.start() else [f"down: {self.broker.failure!r}"]
            case ["stop"]:
                await self.broker.stop()
            case ["read", *places]:
                return [await self._read(place) for place in map(_place, places or map(_name, self._places))]
            case ["log", place]:
                return await self._log(_place(place))
            case ["position", group, place]:
                found = await committed_offsets(self._line("asker"), group, [_place(place)])
                return [str(found[_place(place)])]
            case ["open"]:
                assert self.broker.node is not None, "the broker is down"
                return open_transactions(self.broker.node)
            case ["state"]:
                return self._state()
            case [name, *what] if name in self._producers:
                return await self._act(name, what, command)
            case _:
                raise ValueError(f"no command: {command}")
        return []

    async def _create_topic(self, name: str, count: int) -> None:
        await create_topics(self._line("admin"), {name: count})
        self._places += [(name, number) for number in range(count)]

    def _hire(self, name: str, options: dict[str, str]) -> None:
        line = self._line(name)
        version, timeout_ms = int(options.get("tv", "2")), int(float(options.get("timeout", "4")) * 1000)
        self._producers[name] = TxnClient(
            line, options["id"], version, timeout_ms, Random(0), lambda event: None, patience_seconds=0.0
        )

    async def _act(self, name: str, what: list[str], command: str) -> list[str]:
        client = self._producers[name]
        try:
            match what:
                case ["init"]:
                    await client.init()
                    return [f"is ({client.producer_id}, {client.epoch})"]
                case ["send", place, *values]:
                    await client.send(_place(place), values)
                case ["positions", group, place, "at", offset]:
                    await client.send_offsets(group, {_place(place): int(offset)})
                case ["commit" | "abort"]:
                    await client.end(commit=what == ["commit"])
                    return [f"ok, is ({client.producer_id}, {client.epoch})"]
                case ["forgets", "who", "it", "is"]:
                    client.producer_id = client.epoch = -1
                case _:
                    self._cloud(name, command)
                    return []
        except (Fenced, Abortable, GaveUp) as error:
            return [str(error)]
        return ["ok"] if what[0] != "forgets" else []

    def _cloud(self, name: str, command: str) -> None:
        """`ada's`-sentences: what will become of the next request of a kind."""
        words = command.split(maxsplit=3)
        assert words[1:2] == ["next"], f"no command: {command}"
        api, rest = words[2], words[3]
        for phrase, cut in LATE.items():
            if rest.startswith(phrase):
                self.weather.expect(name, api, False, Fate(DELAY_SECONDS, cut, float(rest.split()[-1])))
                return
        assert rest in ("is lost", "is not answered"), f"no command: {command}"
        self.weather.expect(name, api, rest == "is not answered", Fate(DELAY_SECONDS, "before"))

    # Looking

    async def _read(self, place: Place) -> str:
        logs, _ = await read_all(self._line("reader"), [place], committed=True)
        node = self.broker.node
        found = None if node is None else node.logs.get(TopicPartition(*place))
        held = found is not None and found.last_stable_offset < found.high_watermark
        values = " ".join(value for _, value in logs[place]) or "nothing"
        return f"{_name(place)}: {values}{' (more is held back)' if held else ''}"

    async def _log(self, place: Place) -> list[str]:
        _, raw = await read_all(self._line("reader"), [place], committed=False)
        return [
            f"{batch.base_offset}: ({batch.producer_id}, {batch.epoch}) "
            + (" ".join(v for _, v in batch.values) if batch.commits is None else ["ABORT", "COMMIT"][batch.commits])
            for batch in raw[place]
        ]

    def _state(self) -> list[str]:
        node = self.broker.node
        assert node is not None, "the broker is down"
        return [
            f"{name} is {state.name} ({state.producer.producer_id}, {state.producer.epoch})"
            + "".join(f" {place}" for place in sorted(map(str, getattr(state, "partitions", ()))))
            for name, state in sorted(transactional_ids(node))
        ]


def _place(text: str) -> Place:
    topic, _, partition = text.rpartition("-")
    return topic, int(partition)


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def tell(steps: Sequence[Step]) -> list[Step]:
    """The same steps with what they say now."""
    story = [step for step in steps if AT_EACH_CALL not in step.command]
    said = iter(play([step.command for step in story]))
    told: list[Step] = []
    for step in steps:
        if AT_EACH_CALL in step.command:
            before = [earlier.command for earlier in told if AT_EACH_CALL not in earlier.command]
            told.append(replace(step, said=tuple(_at_each_call(before, step.command))))
        else:
            told.append(replace(step, said=tuple(next(said))))
    return told


def _at_each_call(before: Sequence[str], command: str) -> list[str]:
    """The story so far, then a command with the broker killed at its first call to the disk, its second, ...; what is
    said afterwards, once for all calls in a row of which the same is said."""
    what, _, after = command.partition(AT_EACH_CALL + ", then: ")
    outcomes: list[tuple[int, int, str]] = []
    for number in range(1, CALLS_MAX):
        death = _DeathAt(number)
        said = play([*before, what, *after.split("; ")], len(before), death)
        if not death.came:
            break
        text = " | ".join(" ".join(lines) for lines in said[len(before) :] if lines)
        if outcomes and outcomes[-1][2] == text:
            outcomes[-1] = outcomes[-1][0], number, text
        else:
            outcomes.append((number, number, text))
    return [f"call {a}: {text}" if a == b else f"calls {a} to {b}: {text}" for a, b, text in outcomes]


class _DeathAt:
    """Kills the broker at its call of a number to the disk, if it makes so many while a command is carried out."""

    def __init__(self, number: int) -> None:
        self.came = False
        self._left = number
        self._story: Story | None = None

    def arm(self, story: Story) -> None:
        """The command begins."""
        self._story = story
        story.broker.disk.before_io = self._before_io

    def _before_io(self, kind: str, path: str) -> None:
        self._left -= 1
        if self._left == 0 and self._story is not None:
            self.came = True
            self._story.broker.disk.before_io = None
            self._story.broker.kill()


def play(commands: Sequence[str], marked: int = -1, death: _DeathAt | None = None) -> list[list[str]]:
    """One run of these commands; `death` waits in the one of number `marked`, and where it does not come all ends."""

    async def run() -> list[list[str]]:
        said = []
        async with trio.open_nursery() as nursery:
            story = Story(nursery)
            assert await story.broker.start()
            for number, command in enumerate(commands):
                if number == marked and death is not None:
                    death.arm(story)
                with trio.fail_after(STEP_SECONDS_MAX):
                    said.append(await story.do(command))
                if number == marked and death is not None and not death.came:
                    break
            nursery.cancel_scope.cancel()
            story.close()
        return said

    return run_seeded(0, run)


def main() -> int:
    """The command; 1 where a story does not say any more what is written down."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.story", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="scenario files; all of them where none is given")
    parser.add_argument("--rewrite", action="store_true", help="put down what the steps say now")
    arguments = parser.parse_args()
    fix_hashes("tests.simulation.story")
    logging.disable(logging.CRITICAL)
    differing = 0
    for path in arguments.files or sorted(SCENARIOS.glob("*.txt")):
        before = path.read_text(encoding="utf-8")
        now = written(tell(parse(before)))
        if before != now:
            differing += 1
            if arguments.rewrite:
                path.write_text(now, encoding="utf-8")
            print("".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), str(path), "now")))
    return 0 if arguments.rewrite or not differing else 1


if __name__ == "__main__":
    sys.exit(main())
