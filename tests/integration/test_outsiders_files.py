"""What Kafka's own tools need of the data directory, where that is more than the broker itself needs."""

from pathlib import Path

from fencepost.protocol.errors import ErrorCode
from tests.conftest import StartBroker
from tests.kit.wire import Wire, batch_of, values_in


def test_a_time_index_has_an_offset_index_beside_it(start_broker: StartBroker) -> None:
    """L1: a segment's index files come in pairs; DumpLogSegments opens `.index` when it is given `.timeindex`."""
    broker = start_broker(files=True)
    assert isinstance(broker.data_dir, Path)
    with Wire(broker.connect()) as wire:
        wire.create_topic("small")
        assert wire.produce("small", batch_of(b"too little for an entry in .index")).error_code == ErrorCode.NONE
    assert broker.stop() == 0
    files = {path.name: path.stat().st_size for path in (broker.data_dir / "small-0").iterdir()}
    assert files["00000000000000000000.timeindex"] == 12
    assert files["00000000000000000000.index"] == 0
    broker.start()
    with Wire(broker.connect()) as wire:
        assert values_in(wire.fetch("small")) == [b"too little for an entry in .index"]
