"""Brokers of several cores that are wrong in one way each: the kill loop over cores has to find them.

python -m tests.kit.cores_planted NAME serve --data ... --cores 3
"""

import sys
from pathlib import Path
from typing import Any

import trio

from fencepost.__main__ import main
from fencepost.broker.cores.marker_writer import MarkerWriter
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.broker_process import BrokerProcess


def lose_markers() -> None:
    """A marker counts as written if the other core does not answer soon, and is not sent again."""
    inner = MarkerWriter._ask

    async def ask(self: MarkerWriter, broker: int, sent: list[Any]) -> list[dict[TopicPartition, ErrorCode]]:
        with trio.move_on_after(0.2):
            return await inner(self, broker, sent)
        return [dict.fromkeys(one.partitions, ErrorCode.NONE) for one in sent]

    MarkerWriter._ask = ask  # type: ignore[method-assign]


class PlantedBroker(BrokerProcess):
    """A broker with the named fault; with the empty name it has none."""

    def __init__(self, planted: str, work_dir: Path, **words: Any) -> None:
        super().__init__(work_dir, **words)
        if planted:
            self.launcher = [sys.executable, "-m", "tests.kit.cores_planted", planted]

    def command(self) -> list[str]:
        return [*self.launcher, *self.words()] if self.launcher else super().command()


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    main()
