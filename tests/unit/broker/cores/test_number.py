"""When core 0 looks at all partitions, while the number of cores changes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.cores import number
from fencepost.broker.cores.layout import Layout, prepared
from fencepost.broker.cores.live_moves import OtherCores
from fencepost.broker.cores.number import NumberOfCores
from fencepost.broker.ports import Broker

LONG_SECONDS = 3600.0


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    made = prepared(load_config(flags={"log.dirs": str(tmp_path), "node.id": "1"}), 3)
    yield made
    made.close()


class Metadata:
    """Counts the looks. The last core stays registered while it leads partitions."""

    def __init__(self) -> None:
        self.image = SimpleNamespace(brokers={1: None, 2: None, 3: None})
        self.facts = SimpleNamespace(brokers=(1, 2, 3))
        self.looks = 0
        self.led = True

    async def resize(self, _: object, registrations: Mapping[int, object], node_ids: Sequence[int]) -> None:
        self.looks += 1
        self.facts.brokers = tuple(node_ids)
        if not self.led:
            self.image.brokers = dict.fromkeys(node_ids)


async def test_it_looks_when_partitions_have_moved(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """A core that is down may hold up the change for hours: nothing is computed meanwhile."""
    metadata = Metadata()
    monkeypatch.setattr(number, "resize", metadata.resize)
    node: Any = SimpleNamespace(metadata=metadata, config=layout.configs[0])
    cores = NumberOfCores(cast("Broker", node), layout, cast("OtherCores", None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cores.run)
        assert await cores.change(2) is None
        await trio.sleep(LONG_SECONDS)
        assert metadata.looks <= 2
        before = metadata.looks
        for _ in range(50):  # within one moment
            cores.wake()
        await trio.sleep(LONG_SECONDS)
        assert metadata.looks == before + 1
        assert layout.registered == 3
        metadata.led = False
        cores.wake()
        await trio.sleep(LONG_SECONDS)
        assert (layout.registered, layout.cores) == (2, 2)
        nursery.cancel_scope.cancel()
