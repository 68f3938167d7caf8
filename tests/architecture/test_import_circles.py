"""No import circle of more than two files: none of them could be understood, or tested, without all the others."""

import ast

from tests.architecture.import_circles import THE_BROKER, circles, modules

PAIRS = {
    ("broker.cluster.engine", "broker.cluster.history"): "the type of what a connection compares, and its error",
    ("broker.log.verify.partition", "broker.log.verify.snapshots"): "the type of what a partition's checks expect",
    ("client.admin.plan_file", "client.admin.plan_types"): "a plan reads itself from a file, which few programs need",
    ("client.network.connection", "client.network.pending"): "a pending request cancels itself on its connection",
    ("coordinator.group.consumer.context", "coordinator.group.consumer.regexes"): "the type of the view of topics",
    ("spark_connector.source.limited_stream", "spark_connector.source.stream"): "a reader that only Spark 4.2 has",
}
"""Two files that import each other, and what for."""


def test_import_circles_have_at_most_two_files_and_a_reason() -> None:
    found = [[name.removeprefix("fencepost.") for name in circle] for circle in circles()]
    assert {tuple(circle) for circle in found if len(circle) == 2} <= set(PAIRS)
    assert [circle for circle in found if len(circle) > 2] == []


def test_the_broker_of_all_parts_imports_for_a_type_checker_only() -> None:
    body = ast.parse(modules()[THE_BROKER].read_text(encoding="utf-8")).body
    outside = [node.module for node in body if isinstance(node, ast.ImportFrom)]
    assert [name for name in outside if name and name.startswith("fencepost.broker")] == []


def test_a_pair_with_a_reason_is_a_circle_still() -> None:
    assert set(PAIRS) <= {tuple(name.removeprefix("fencepost.") for name in circle) for circle in circles()}
