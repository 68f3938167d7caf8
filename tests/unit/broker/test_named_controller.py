"""Which broker Metadata and DescribeCluster name as the controller."""

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.brokers import controller_id


@pytest.mark.parametrize(
    ("controller", "named"),
    [(None, 1), (1, 1), (2, 2), (3, 1)],
    ids=["not known", "this broker", "a living broker", "a broker that is not listed"],
)
def test_a_client_always_learns_a_broker_that_takes_changes_of_the_metadata(controller: int | None, named: int) -> None:
    """KIP-590, KRaftMetadataCache: any living broker, since each forwards. While the slot of the metadata moved, the
    answer was -1, and CreateTopics of librdkafka hung for more than 30 s.
    """
    place = SimpleNamespace(controller_id=controller, peers={2: object()})
    node: Any = SimpleNamespace(config=SimpleNamespace(node_id=1), place=place)
    assert controller_id(node) == named
