"""The attacks of `python -m tests.hostile` in a short form: no traceback, bounded memory, other clients are served.

The full program measures the latency of another client. Here a machine may be busy, so only an answer is expected.
"""

import pytest

from tests.hostile.attacks import ATTACKS, MIB
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import Wire, batch_of

pytestmark = pytest.mark.long

SCALES = {
    "Metadata, 2.1 M empty names in 4 MB": 0.5,
    "Metadata, last of 400,000 names broken": 0.2,
    "Metadata, 10,000 topics (legal)": 0.5,
    "Fetch, one partition repeated, 24 MB": 0.3,
    "Fetch, 20,000 partitions (legal)": 0.5,
    "OffsetFetch, 50,000 partitions (legal)": 0.5,
    "Produce, 3 M empty partitions, 24 MB": 0.3,
    "ApiVersions, 4 M unknown tags, 20 MB": 0.1,
}
GROWTH_BYTES = 48 * MIB


@pytest.mark.parametrize("name", SCALES)
def test_an_attack_costs_bounded_memory_and_no_traceback(broker_of_module: BrokerProcess, name: str) -> None:
    broker = broker_of_module
    with Wire(broker.connect()) as wire:
        if "other" not in _topics(broker):
            wire.create_topic("other")
        before = broker.rss_bytes()
        ATTACKS[name].run(broker, SCALES[name])
        assert wire.produce("other", batch_of(b"x")).error_code == 0
    assert broker.rss_bytes() - before < GROWTH_BYTES
    assert "Traceback" not in broker.log()


def _topics(broker: BrokerProcess) -> set[str]:
    from fencepost.protocol.messages.api03_metadata import MetadataRequest

    with Wire(broker.connect()) as wire:
        return {topic.name for topic in wire.call(3, 9, MetadataRequest(topics=None)).topics}
