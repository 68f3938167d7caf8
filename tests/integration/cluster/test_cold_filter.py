"""`read.committed.filter` on records that a broker of a cluster must first load from the stores (row I4)."""

from pathlib import Path

from fencepost.protocol.batch_header import iter_headers
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.cluster_topic import TOPIC, everything
from tests.kit.postgres_server import PostgresServer
from tests.kit.wire import Wire, batch_of

ABORTED, BATCH_BYTES = 30, 20_000
READ_COMMITTED = 1


async def test_a_broker_that_took_over_leaves_aborted_batches_out(server: PostgresServer, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, server) as cluster:
        first, second = cluster.start(1), cluster.start(2)
        with Wire(first.connect()) as wire:
            wire.create_topic(TOPIC, **{"read.committed.filter": "broker"})
            producer = wire.init_producer_id("a")
            wire.add_partitions("a", producer, TOPIC, 0)
            for sequence in range(ABORTED):
                header = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
                batch = batch_of(bytes(BATCH_BYTES), transactional=True, **header)
                assert wire.produce(TOPIC, batch, version=8, transactional_id="a").error_code == 0
            assert wire.end_txn("a", producer, commit=False).error_code == 0
            assert wire.produce(TOPIC, batch_of(b"seen")).error_code == 0
        first.kill()
        cluster.wait_active(2)
        assert await everything(second.address, 1) == [(ABORTED + 1, b"seen")]
        with Wire(second.connect()) as wire:
            answer = wire.fetch(TOPIC, isolation=READ_COMMITTED)
            offsets = [header.base_offset for _, header in iter_headers(bytes(answer.records))]
            assert offsets == [ABORTED, ABORTED + 1], "the marker stays"
            assert len(wire.fetch(TOPIC).records) > ABORTED * BATCH_BYTES, "read_uncommitted gets all"
