"""A member's process as a test sees it: what it has said, and its end."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.interop.members.given import WAIT_SECONDS, Given

ROOT = Path(__file__).resolve().parents[3]


class MemberProcess:
    """Started at once; `held` are its partitions as it last told them."""

    def __init__(self, command: Sequence[str], given: Given) -> None:
        self.held: list[int] = []
        self.words: list[str] = []
        """The first word of each line so far."""
        self._lines: list[str] = []
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(given))],
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._out:
            word, *rest = line.split() or [""]
            if word == "assigned":
                self.held = sorted(map(int, rest))
            self._lines.append(line)
            self.words.append(word)

    @property
    def transcript(self) -> str:
        """The last that was heard of it."""
        return "".join(self._lines[-40:])

    def heard(self, word: str) -> int:
        """How often it has said this."""
        return self.words.count(word)

    def next(self, word: str, beyond: int) -> None:
        """Return when it has said this more often than `beyond`.

        That is to be counted before whatever makes it say so: it may be quicker than the test.
        """
        wait_until(lambda: self.heard(word) > beyond, f"to say {word!r}", [self])

    def in_a_transaction(self) -> bool:
        """Whether the last that was heard is of a transaction that is open."""
        told = [word for word in self.words if word in ("open", "committed", "aborted")]
        return told[-1:] == ["open"]

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is, as a machine that sleeps would (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, as if nothing had been."""
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        """Ask it to leave in order; it must do so."""
        code = self._end(signal.SIGTERM)
        assert code == 0, f"it ended with {code}:\n{self.transcript}"

    def failed(self) -> bool:
        """Whether it ended by itself."""
        return self._process.poll() is not None

    def _end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        try:
            return self._process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._reader.join(WAIT_SECONDS)
            self._out.close()


def wait_until(reached: Callable[[], bool], what: str, members: Sequence[MemberProcess]) -> None:
    """Wait for something that these members bring about; fails when one of them ends, and after a while."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not reached():
        ended = [member for member in members if member.failed()]
        late = time.monotonic() > deadline
        if ended or late:
            told = "\n---\n".join(member.transcript for member in ended or members)
            raise AssertionError(f"{'a member ended' if ended else 'it took too long'}, waiting for {what}:\n{told}")
        time.sleep(0.02)
