"""What Spark calls of a Python stream source, and in which order, without a JVM: Spark 4.0, 4.1, and 4.2 with 4.3.

As `MicroBatchExecution` does: a start takes the newest planned micro-batch of the checkpoint. If that is not committed,
it is run again between the end before it and its own; the first one begins at `initialOffset`. A new micro-batch asks
`latestOffset`, writes its end into the checkpoint, and only then plans and reads. Spark 4.0 asks for the end of the
first micro-batch before its start.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.spark.source_world import Seen, Topic, seen, tasks

WITH_LIMITS = "4.2"
"""From this version on Spark passes the start and a limit to `latestOffset`."""


class UserFailed(Exception):
    """The function of a user failed while it had a micro-batch."""


@dataclass
class Query:
    """One query with its checkpoint; each `run` is a new process of the driver."""

    topic: Topic
    options: dict[str, str] = field(default_factory=dict)
    version: str = WITH_LIMITS
    """Of the Spark that calls."""
    planned: list[str] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    batches: list[list[Seen]] = field(default_factory=list)
    """The records of the committed micro-batches."""
    starts: list[Any] = field(default_factory=list)
    """The answers to `initialOffset`."""
    between: Callable[[str], None] = lambda call: None
    """Called before each call of the source, with its name."""

    def run(self, *, fails_in: int | None = None, now: bool = False) -> "Query":
        """All micro-batches until nothing is new. Raises UserFailed in that one. `now`: with Trigger.AvailableNow."""
        source = self.topic.source(**self.options)
        reader: Any = source.streamReader(source.schema())
        try:
            if now and self.version >= WITH_LIMITS:
                self._call(reader, "prepareForTriggerAvailableNow")
            if self.planned and len(self.planned) - 1 not in self.committed:
                self._micro_batch(reader, fails_in)
            while self._plan(reader):
                self._micro_batch(reader, fails_in)
        finally:
            reader.stop()
        return self

    def _call(self, reader: Any, name: str, *arguments: Any) -> Any:
        self.between(name)
        answer = getattr(reader, name)(*arguments)
        if name == "initialOffset":
            self.starts.append(answer)
        return answer

    def _plan(self, reader: Any) -> bool:
        """Write the end of the next micro-batch into the checkpoint, if there is anything new."""
        arguments: list[Any] = []
        if self.version >= WITH_LIMITS or (self.version == "4.1" and not self.planned):
            arguments.append(json.loads(self.planned[-1]) if self.planned else self._call(reader, "initialOffset"))
        if self.version >= WITH_LIMITS:
            end = self._call(reader, "latestOffset", *arguments, reader.getDefaultReadLimit())
        else:
            end = self._call(reader, "latestOffset")
        text = json.dumps(end)
        if self.planned and text == self.planned[-1]:
            return False
        self.planned.append(text)
        return True

    def _micro_batch(self, reader: Any, fails_in: int | None) -> None:
        number = len(self.planned) - 1
        start = json.loads(self.planned[-2]) if number else self._call(reader, "initialOffset")
        end = json.loads(self.planned[-1])
        work = self._call(reader, "partitions", json.loads(json.dumps(start)), end)
        self.between("read")
        rows = [row for found in tasks(reader, work) for row in found]
        if fails_in == number:
            raise UserFailed
        self.committed.add(number)
        self.batches.append(seen(rows))
        self._call(reader, "commit", end)

    @property
    def values(self) -> list[bytes | None]:
        """Of all committed micro-batches, in their order."""
        return [one.value for batch in self.batches for one in batch]


def numbers(found: Sequence[bytes | None]) -> list[int]:
    """The records of `numbered`."""
    return sorted(int(value or b"-1") for value in found)
