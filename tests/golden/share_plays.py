"""Plays on share partitions that chance makes, compared with Kafka's own SharePartition.

`python -m tests.golden.share_plays CLASS_PATH` compiles SharePartitions.java against Kafka's jars (4.4.0), lets it
answer 10,000 plays and compares; `--record` writes the first of them to kafka_share_partitions.txt, for the test.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from zlib import crc32

from fencepost.broker.share.in_flight import ACQUIRED
from fencepost.coordinator.share.values import StateBatch
from tests.golden.share_lines import Lines, joined

RECORDED = Path(__file__).with_name("kafka_share_partitions.txt")
MEMBERS = ("a", "b", "c")


class Log:
    """A log as its readers see it: batches of records, some holes, a start."""

    def __init__(self, chance: random.Random, start: int) -> None:
        self._chance = chance
        self._batches: list[tuple[int, int]] = []
        self._end = max(start - chance.randrange(12), 0)
        self._sizes = chance.choice(((1, 1), (1, 4), (1, 20), (5, 40)))

    def read(self, offset: int) -> list[tuple[int, int]]:
        """Some batches from an offset on."""
        chance = self._chance
        while self._end <= offset + 60:
            size = chance.randint(*self._sizes)
            if chance.random() > 0.1:
                self._batches.append((self._end, self._end + size - 1))
            self._end += size
        if self._batches and chance.random() < 0.05:  # compaction
            del self._batches[chance.randrange(len(self._batches))]
        found = [batch for batch in self._batches if batch[1] >= offset]
        return found[: chance.choice((1, 1, 2, 3, 8))]


class Play:
    """One play: each line depends on what the lines before it led to."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.lines: list[str] = ["play"]
        self.ours = Lines()
        self.answers = [self.ours.answer("play")]
        self.stored: dict[int, tuple[int, int]] = {}
        self.stored_start = 0
        self.settings = self.any_settings()
        self.batch_size, self.mode = chance.choice((1, 5, 500)), chance.random() < 0.4
        self.restore_anything()
        self.log = Log(chance, self.ours.partition.start_offset)
        for _ in range(chance.randint(5, 40)):
            self.step()

    def say(self, line: str) -> str:
        """Say a line to our share partition."""
        self.lines.append(line)
        self.answers.append(self.ours.answer(line))
        return self.answers[-1]

    def any_settings(self) -> str:
        """The settings of a group."""
        chance = self.chance
        limit, lock_ms = chance.choice((1, 2, 2, 3, 4, 5, 5, 6)), chance.choice((5, 10, 10, 1000))
        return (
            f"{chance.choice((5, 20, 60, 200))} {limit} {lock_ms} {chance.random() < 0.9:d} {chance.random() < 0.3:d}"
        )

    def change(self) -> None:
        """The group's settings change."""
        self.settings = self.any_settings()
        self.say(f"settings {self.settings}")

    def restore_anything(self) -> None:
        """Begin with nothing, or with a state that chance makes."""
        chance = self.chance
        start = chance.choice((-1, 0, 5, 30))
        at = self.stored_start = max(start, 0)
        batches = []
        for _ in range(0 if start < 0 else chance.choice((0, 0, 0, 1, 2, 4))):
            at += chance.choice((0, 0, 1, 3))
            last = at + chance.randrange(6)
            state = chance.choice((0, 0, 2, 4, 3 if self.settings.endswith("1") else 4))
            batches.append(f"{at}:{last}:{state}:{chance.randrange(6)}")
            at = last + 1
        first = chance.randrange(20)
        self.stored_start = first if start < 0 else start
        self.say(f"restore {self.settings} {chance.randrange(9)} {start} {first} {','.join(batches)}")

    def step(self, fetching: bool = False) -> None:
        """One line that chance chooses."""
        chance, ours = self.chance, self.ours
        steps = (
            (self.acquire, 8),
            (self.acknowledge, 9),
            (self.release, 1),
            (self.move, 1),
            (self.wait, 3),
            (self.change, 0.2),
        )
        if ours.pending and chance.random() < 0.5:
            at = chance.choice((0, 0, 0, len(ours.pending) - 1))
            self.settle(at, chance.random() < 0.9)
        elif ours.dead and chance.random() < 0.3:
            self.say(f"dead {chance.randrange(len(ours.dead))}")
        elif chance.random() < 0.015 and not ours.pending and not fetching:
            self.take_over()
        else:
            some = steps[1:] if fetching else steps
            chance.choices([one for one, _ in some], [weight for _, weight in some])[0]()

    def settle(self, at: int, stored: bool) -> None:
        """Settle a change that waits; keep what was stored."""
        change = self.ours.pending[at]
        if stored:
            for first, last, state, count, _ in change.batches:
                for offset in range(first, last + 1):
                    self.stored[offset] = (int(state), count)
            self.stored_start = max(self.stored_start, change.start_offset)
        self.say(f"settle {at} {stored:d}")

    def take_over(self) -> None:
        """Another leader restores what was stored."""
        kept = [StateBatch(at, at, *one) for at, one in sorted(self.stored.items()) if at >= self.stored_start]
        text = ",".join(":".join(str(int(number)) for number in one[:4]) for one in joined(kept))
        self.say(f"restore {self.settings} {self.chance.randrange(9)} {self.stored_start} 0 {text}")

    def acquire(self) -> None:
        """A member fetches."""
        chance, partition = self.chance, self.ours.partition
        offset = partition.next_fetch_offset()
        batches = self.log.read(offset)
        while chance.random() < 0.08:  # while the log is being read
            self.step(fetching=True)
        most = chance.choice((1, 2, 5, 10, 500, 500))
        mode = int(self.mode if chance.random() < 0.9 else not self.mode)
        aborted = [one for one in batches if chance.random() < 0.08]
        if aborted and aborted[0][0] < offset and chance.random() < 0.9:
            del aborted[0]  # Kafka fails on most of these
        text = [",".join(f"{first}:{last}" for first, last in some) for some in (batches, aborted)]
        self.say(f"acquire {chance.choice(MEMBERS)} {mode} {self.batch_size} {most} {offset} {text[0]} {text[1]}")

    def acknowledge(self) -> None:
        """A member acknowledges what it holds, mostly."""
        chance = self.chance
        held: list[tuple[int, int, str]] = []
        for batch in self.ours.partition._window.batches:
            for offset, state in enumerate(batch.states(), batch.first):
                if state.state is ACQUIRED:
                    last = batch.last if batch.offsets is None else offset
                    if held and held[-1][1:] == (offset - 1, state.member_id):
                        held[-1] = (held[-1][0], last, state.member_id)
                    else:
                        held.append((offset, last, state.member_id))
        if not held:
            return
        member = chance.choice(held)[2]
        mine = [one for one in held if one[2] == member][: chance.choice((1, 1, 2, 4))]
        if chance.random() < 0.03:
            member = chance.choice(MEMBERS)
        words = []
        for first, last, _ in mine:
            if chance.random() < 0.4:
                first = chance.randint(first, last)
                last = chance.randint(first, last)
            if chance.random() < 0.04:
                first, last = max(first - chance.randrange(4), 0), last + chance.randrange(4)
            if chance.random() < 0.01:
                first = last = chance.randrange(60)
            words.append(f"{first}:{last}:{self.types(last - first + 1)}")
        self.say(f"ack {member} {','.join(words)}")

    def types(self, offsets: int) -> str:
        """One type for all, or one for each."""
        kinds = "01234" if self.chance.random() < 0.97 else "123456"
        weights = (1, 6, 5, 3, 2, 1)[: len(kinds)]
        return "".join(self.chance.choices(kinds, weights, k=self.chance.choice((1, 1, offsets))))

    def release(self) -> None:
        """A member leaves."""
        self.say(f"release {self.chance.choice(MEMBERS)}")

    def move(self) -> None:
        """The log begins later."""
        it = self.ours.partition
        self.say(f"start {it.start_offset + self.chance.randint(0, it.end_offset - it.start_offset + 8)}")

    def wait(self) -> None:
        """Time passes."""
        self.say(f"pass {self.chance.choice((1, 3, 5, 10, 10, 1000))}")


def checksum(answer: str) -> str:
    """What is kept of an answer."""
    return f"{crc32(answer.encode()):08x}"


def kafkas_answers(class_path: str, lines: list[str]) -> list[str]:
    """What Kafka's SharePartition says to the lines."""
    source = Path(__file__).with_name("SharePartitions.java")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-nowarn", "-d", folder, "-cp", class_path, source], check=True)
        java = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-Dlog4j2.level=OFF",
            "-cp",
            f"{folder}:{class_path}",
            "kafka.server.share.SharePartitions",
        ]
        said = subprocess.run(java, input="\n".join(lines), capture_output=True, text=True, check=True)
    return said.stdout.split("\n")[: len(lines)]


def main() -> int:
    """Compare; 1 if anything differs."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("class_path")
    options.add_argument("--plays", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--record", type=int, default=0, metavar="PLAYS")
    given = options.parse_args()
    plays = [Play(seed) for seed in range(given.seed, given.seed + given.plays)]
    answers = iter(kafkas_answers(given.class_path, [line for play in plays for line in play.lines]))
    recorded: list[str] = []
    different = compared = 0
    faults: dict[str, int] = {}
    for number, play in enumerate(plays, given.seed):
        theirs = [next(answers) for _ in play.lines]
        end = next((at for at, answer in enumerate(theirs) if answer.startswith("!")), len(theirs))
        if end < len(theirs):
            faults[theirs[end]] = faults.get(theirs[end], 0) + 1
        compared += end
        for at in range(end):
            if theirs[at] != play.answers[at]:
                different += 1
                if different <= 5:
                    print(f"play {number}:", *play.lines[: at + 1], sep="\n  ")
                    print(f"before {theirs[at - 1]}\nKafka  {theirs[at]}\nours   {play.answers[at]}")
                break
        if len(recorded) < given.record:
            recorded.append(
                "\n".join(f"{checksum(a)} {line}" for a, line in zip(theirs[:end], play.lines[:end], strict=True))
            )
    print(f"{len(plays)} plays, {compared} answers compared, {different} plays differ; Kafka failed in: {faults}")
    if given.record:
        RECORDED.write_text("\n".join(recorded) + "\n", encoding="utf-8")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
