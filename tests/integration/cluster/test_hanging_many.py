"""A hanging transaction in a cluster whose coordinators are spread over three brokers (row T20)."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.protocol.errors import ErrorCode
from tests.kit.many_brokers import SECONDS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of

PARTITIONS = 12
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.max.timeout.ms": "3000",
    "transaction.hanging.check.interval.ms": "500",
    "transaction.hanging.abort": "true",
}


class Checked(ManyBrokers):
    """Brokers that look for hanging transactions often."""

    def settings_of(self, number: int) -> dict[str, str]:
        return SETTINGS


def test_what_no_coordinator_knows_is_aborted_and_what_lives_is_not(server: PostgresServer, tmp_path: Path) -> None:
    with Checked(tmp_path, server) as cluster:
        cluster.start_all()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).values()
        made.result(SECONDS)
        living = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "living", "transaction.timeout.ms": 3000}
        )
        living.init_transactions(SECONDS)
        with Wire(cluster.brokers[1].connect()) as wire:
            identity = wire.init_producer_id()
        hung = batch_of(
            b"hung", producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True
        )
        for broker in cluster.brokers.values():
            with Wire(broker.connect()) as wire:
                codes = [
                    wire.produce("orders", hung, partition=one, transactional_id="hung").error_code
                    for one in range(PARTITIONS)
                ]
                assert set(codes) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}

        def stable() -> list[int]:
            """The last stable offset of each partition."""
            found = [-1] * PARTITIONS
            for broker in cluster.brokers.values():
                with Wire(broker.connect()) as wire:
                    for partition in range(PARTITIONS):
                        answer = wire.offset_of("orders", -1, isolation=1, partition=partition)
                        if answer.error_code == ErrorCode.NONE:
                            found[partition] = answer.offset
            return found

        assert stable() == [0] * PARTITIONS
        for _ in range(3):  # of each transaction the checks see much
            living.begin_transaction()
            for partition in range(PARTITIONS):
                living.produce("orders", b"lives", partition=partition)
            assert living.flush(SECONDS) == 0
            living.commit_transaction(SECONDS)
        # hung, its marker, and three times a record with its marker.
        until(lambda: stable(), lambda found: found == [8] * PARTITIONS, seconds=SECONDS)
        said = "".join(broker.log() for broker in cluster.brokers.values())
        assert said.count("HANGING_TRANSACTION result=aborted") == PARTITIONS
        assert f"producer_id={identity[0]} " in said
