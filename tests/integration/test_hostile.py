"""The attacks of `python -m tests.hostile` in a short form: no traceback, bounded memory, other clients are served.

The full program measures the latency of another client. Here a machine may be busy, so only an answer is expected.
"""

import os
import time
import urllib.request
from pathlib import Path

import pytest

from fencepost.protocol.batch_header import pack_header, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from tests.conftest import StartBroker
from tests.hostile.attacks import ATTACKS, MIB, half_sent_heads, max_connections, one_byte_a_second
from tests.hostile.fuzz import fuzz
from tests.hostile.requests import bomb
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify
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
    "20 x 60 MB of a frame, then silence": 0.05,
    "200 fetches of 50 MB never read, --memory": 0.1,
    "3 flooders connect and reset": 0.1,
    "1,000 connections with 50 KB each": 0.3,
    "4,000 bad frames": 0.1,
}
FUZZ_FRAMES = int(os.environ.get("FENCEPOST_FUZZ_FRAMES", "20000"))
GROWTH_BYTES = 200 * MIB
"""More than the budget of response bytes (128 MiB); without bounds these attacks take up to 1 GB."""


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


def test_deadlines_and_connection_limits_hold(start_broker: StartBroker) -> None:
    settings = {"max.connections": "60", "request.arrival.timeout.ms": "1000", "metrics.listen": "127.0.0.1:0"}
    broker = start_broker(settings=settings)
    with Wire(broker.connect()) as wire:
        wire.create_topic("other")
        max_connections(broker, 0.3)
        half_sent_heads(broker, 0.3)
        began = time.monotonic()
        one_byte_a_second(broker, 0.2)
        assert time.monotonic() - began < 10
        assert wire.produce("other", batch_of(b"x")).error_code == 0
    for _ in range(100):
        if (open_connections := scraped(broker, "kafka_server_socket_server_metrics_connection_count")) == 0:
            break
        time.sleep(0.1)
    assert open_connections == 0, "refused connections count neither as opened nor as closed"
    assert "Traceback" not in broker.log()


def scraped(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(
        f"http://{broker.facts['metrics'].removeprefix('http://').split('/')[0]}/metrics"
    ) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_batch_that_a_plain_topic_accepted_is_never_called_damage(tmp_path: Path) -> None:
    """A plain topic's compressed batches are not decompressed; they must not fail a search or `verify` later."""
    garbage = batch_of(*[b"value %d" % number for number in range(100)], compression=Compression.GZIP)
    header = read_header(garbage)
    garbage[-200:] = b"\xff" * 200
    pack_header(garbage, 0, header)
    with BrokerProcess(tmp_path / "work", data_dir=tmp_path / "data") as broker, Wire(broker.connect()) as wire:
        for name, batch in {"garbage": garbage, "bomb": bomb(2_000_000, ahead=False)}.items():
            wire.create_topic(name)
            before = broker.rss_bytes()
            assert wire.produce(name, batch).error_code == ErrorCode.NONE
            found = wire.offset_of(name, header.max_timestamp - 60_000)
            assert (found.error_code, found.offset) == (ErrorCode.NONE, 0), name
            assert wire.offset_of(name, -3).error_code == ErrorCode.NONE, name
            assert broker.rss_bytes() - before < 48 * MIB, name
        wire.create_topic("compacted", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        before = broker.rss_bytes()
        assert wire.produce("compacted", bomb(2_000_000, ahead=False)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert wire.produce("garbage", bomb(40_000, ahead=True, size=1000)).error_code == ErrorCode.INVALID_TIMESTAMP
        too_large = wire.produce("compacted", bomb(200_000, ahead=False, size=1000))
        assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "message.max.decompressed.bytes" in too_large.error_message
        assert broker.rss_bytes() - before < 180 * MIB, "the limit of 128 MiB, and what it grew from"
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
        assert "KAFKA_STORAGE_ERROR" not in broker.log()
    told = verify(tmp_path / "data")
    assert told.returncode == 0, told.stdout
    assert "The checksum matches, so the producer sent it like this" in told.stdout


def test_fuzzed_frames_leave_no_traceback_and_no_hung_request(start_broker: StartBroker) -> None:
    """Mutated golden requests of four clients, and frames made for every API and version."""
    broker = start_broker(settings={"auto.create.topics.enable": "false"})
    fuzz(broker, FUZZ_FRAMES // 10, seed=0)
    before = broker.rss_bytes()
    outcome = fuzz(broker, FUZZ_FRAMES, seed=1)
    assert outcome.hung == []
    assert outcome.answered > FUZZ_FRAMES // 4
    assert outcome.closed > FUZZ_FRAMES // 4
    assert broker.rss_bytes() - before < 16 * MIB
    assert "Traceback" not in broker.log()
