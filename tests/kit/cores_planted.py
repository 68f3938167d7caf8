"""Brokers of several cores that are wrong in one way each: the kill loop over cores has to find them.

python -m tests.kit.cores_planted NAME serve --data ... --cores 3
"""

import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fencepost.__main__ import main
from fencepost.broker.cores.marker_writer import MarkerWriter
from fencepost.coordinator.ports import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.broker_process import BrokerProcess


def lose_markers() -> None:
    """A marker that another core did not take is not sent again."""
    inner = MarkerWriter.write

    async def write(
        self: MarkerWriter, broker: int, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        return dict.fromkeys(await inner(self, broker, marker, partitions), ErrorCode.NONE)

    MarkerWriter.write = write  # type: ignore[method-assign, assignment]


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
