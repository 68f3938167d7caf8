"""Partitions without a leader: a proxy shows them so, and answers their fetches as a broker that does not lead them."""

from pathlib import Path
from typing import Any

import trio

from fencepost.protocol.registry import API_BY_KEY
from tests.kit.broker_process import BrokerProcess
from tests.kit.console import ConsoleProcess, Visitor
from tests.kit.old_kafka import OldKafka
from tests.kit.open_transactions import write
from tests.kit.wire import Wire, batch_of

ALL_VERSIONS = dict.fromkeys(API_BY_KEY, (0, 100))


async def test_the_other_partitions_are_shown(broker: BrokerProcess, tmp_path: Path, nursery: trio.Nursery) -> None:
    def prepare() -> None:
        with Wire(broker.connect()) as wire:
            wire.create_topic("led", partitions=2)
            for partition in (0, 1):
                name = f"led-{partition}"
                held = wire.init_producer_id(name)
                wire.add_partitions(name, held, "led", partition)
                write(wire, "led", name, held, partition=partition)

    await trio.to_thread.run_sync(prepare)
    proxy = OldKafka(broker.address, ALL_VERSIONS)
    await nursery.start(proxy.serve)

    def look() -> None:
        with Wire(broker.connect()) as wire, ConsoleProcess(proxy.address, tmp_path / "console.log") as console:
            visitor = Visitor(console.url)
            events = visitor.events("/live-tail/led?isolation=read_uncommitted")

            def following(wanted: str) -> Any:
                return next(data for kind, data in events if kind == wanted and (kind != "records" or data["records"]))

            assert len(following("records")["records"]) == 2
            proxy.leaderless.add(("led", 1))
            assert following("trouble") == "Reading led-1 at offset 1 failed (NOT_LEADER_OR_FOLLOWER)"
            assert following("trouble").startswith("led-1 has no leader")
            for partition in (1, 0):
                wire.produce("led", batch_of(b"more"), partition=partition)
            [other] = following("records")["records"]
            assert (other["partition"], other["offset"]) == (0, 1)

            stuck = visitor.get("/stuck")
            assert (stuck.status, "led:0 0 2 2 led-0" in stuck.words) == (200, True)
            assert "No leader: led:1 " in stuck.words
            assert visitor.get("/topics/led").status == visitor.get("/transactions").status == 200

            begun_without = visitor.events("/live-tail/led?isolation=read_uncommitted")
            assert next(data for kind, data in begun_without if kind == "trouble").startswith("led-1 has no leader")

            proxy.leaderless.clear()
            all_of_it = next(data["records"] for kind, data in begun_without if kind == "records" and data["records"])
            assert [(one["partition"], one["offset"]) for one in all_of_it] == [(1, 0), (1, 1)]
            [late] = following("records")["records"]
            assert (late["partition"], late["offset"]) == (1, 1), "nothing was skipped"

    await trio.to_thread.run_sync(look)
    nursery.cancel_scope.cancel()
