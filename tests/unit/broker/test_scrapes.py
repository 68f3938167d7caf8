"""A scrape keeps no client waiting: what clients add rows to is bounded, or made in steps."""

import re
from collections import Counter

import pytest
import trio
from prometheus_client.core import Metric

from fencepost.broker.metrics.counters import SHARE_GROUPS_MAX, Metrics
from fencepost.broker.metrics.exposition import BrokerCollector, renderer
from fencepost.broker.metrics.tables import STEP, Family, labels, table_text
from fencepost.coordinator.group.admin import Counted
from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.broker.txn_node import TxnNode, running


async def commit(node: TxnNode, groups: int) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    for number in range(groups):
        answer = await node.ask(8, 7, OffsetCommitRequest(group_id=f"g{number}", topics=topics))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def page(node: TxnNode) -> str:
    _, _, body = await renderer(node.node)()
    return body.decode()


async def test_twenty_thousand_groups_keep_no_client_waiting() -> None:
    """They kept all clients waiting for 1.2 s: other tasks get their turn after so many groups, and so many rows."""
    turns = 0

    async def other_client() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    groups = 10 * STEP
    async with running() as node:
        await commit(node, groups)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other_client)
            await trio.lowlevel.checkpoint()
            before, text = turns, await page(node)
            nursery.cancel_scope.cancel()
    assert text.count("kafka_consumergroup_lag{") == groups
    families = 2
    counted, listed, read = groups // STEP, groups // STEP, groups // STEP
    assert turns - before >= counted + listed + read + families * groups // STEP


@pytest.mark.parametrize(("most", "shown"), [(0, 0), (20, 20), (10_000, 30)])
async def test_positions_of_groups_are_bounded_and_can_be_switched_off(most: int, shown: int) -> None:
    async with running(f"metrics.group.offsets.max={most}") as node:
        await commit(node, 30)
        text = await page(node)
    assert text.count("kafka_consumergroup_current_offset{") == shown
    assert text.count("kafka_consumergroup_lag{") == shown
    left_out = re.search(r"^fencepost_group_offsets_left_out (\d+)$", text, re.MULTILINE)
    assert left_out is not None
    assert int(left_out[1]) == (30 - shown if most else 0)
    assert "kafka_coordinator_group_groupmetadatamanager_numgroups 30.0" in text


async def test_no_client_adds_rows_to_what_is_made_in_one_piece() -> None:
    """Nobody reported the counters of topics: 10,000 topics have 80,000 rows."""

    def samples(families: "list[Metric]") -> int:
        return sum(len(family.samples) for family in families)

    async with running() as node:
        await commit(node, 1)
        collector = BrokerCollector(node.node)
        collector.groups = Counter({Counted("classic", "Empty"): 1})
        before = samples(list(collector.collect()))
        await node.node.metadata.create_topics([NewTopic(f"t{number}", 2) for number in range(30)])
        await commit(node, 30)
        for number in range(30):
            await node.init(transactional_id=f"id{number}")
        assert samples(list(collector.collect())) == before
        text = await page(node)
    assert text.count("kafka_topic_partitions{") == 33, "with two internal topics"


async def test_a_table_escapes_what_clients_name() -> None:
    """Group ids and client ids may have any character (Prometheus' text format)."""

    def row(name: str) -> tuple[str, list[float | None]]:
        return labels(group=name), [1, None]

    pieces = await table_text([Family("a", "A"), Family("b_total", "B", "counter")], ['"x\\\n'], row)
    assert b"".join(pieces).decode().splitlines() == [
        "# HELP a A",
        "# TYPE a gauge",
        'a{group="\\"x\\\\\\n"} 1',
        "# HELP b_total B",
        "# TYPE b_total counter",
    ]


def test_share_groups_are_counted_by_name_up_to_a_bound() -> None:
    """Any client can make groups."""
    metrics = Metrics()
    for number in range(SHARE_GROUPS_MAX + 5):
        metrics.share_group(f"g{number}").acquired += 1
    assert len(metrics.share_groups) == SHARE_GROUPS_MAX
    assert metrics.share_group("g5").acquired == 1
    assert "g4" not in metrics.share_groups
