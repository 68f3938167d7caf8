"""Data directories of released versions, and what is in them.

`python -m tests.golden.released_data FILE.tar.xz` makes one with the present version. Before a release, make that of
the new version, and keep those of the older ones: the present broker must read all of them (docs/upgrades.md).
"""

import contextlib
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from fencepost import sync
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import whom_to_ask
from tests.kit.wire import Wire, batch_of

RELEASES = Path(__file__).parent / "data"
SETTINGS = {
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",
    "log.roll.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
COMMITTED = [b"plain", b"committed 1", b"committed 2"]
"""The values of `orders`; the others are aborted, or in a transaction that is open."""
OPEN = b"open"
NEWEST = {b"a": b"2", b"b": b"3"}
"""The newest values of the keys of `state`, a compacted topic."""
COMMANDS = (
    ("acl", "add", "--principal", "User:alice", "--topic", "orders", "--operation", "read"),
    ("quota", "set", "--user", "alice", "producer_byte_rate=1000000"),
    ("user", "add", "alice", "--iterations", "4096", "--password-file", "-"),
    ("config", "set", "topic", "orders", "retention.ms=-1"),
)


def fill(broker: BrokerProcess) -> None:
    """Write what a directory of a release has."""
    with sync.Client(broker.address) as kafka, kafka.admin() as admin:
        admin.create_topics("orders", partitions=1)
        admin.create_topics("state", partitions=1, configs={"cleanup.policy": "compact"})
        with kafka.producer() as producer:
            producer.send("orders", b"plain")
            for key, value in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3")):
                producer.send("state", value, key=key)
                time.sleep(0.3)  # a segment each
        with kafka.transactional_producer("ended") as producer:
            for number in (1, 2):
                with producer.transaction() as transaction:
                    transaction.send("orders", b"committed %d" % number)
            with contextlib.suppress(ZeroDivisionError), producer.transaction() as transaction:
                transaction.send("orders", b"aborted")
                raise ZeroDivisionError
        with kafka.consumer("orders", group="readers") as consumer:
            next(iter(consumer.batches()))
            consumer.commit()
    for words in COMMANDS:
        line = [sys.executable, "-m", "fencepost", *words, *whom_to_ask(broker, *words)]
        subprocess.run(line, input=b"secret\n", check=True, stdout=subprocess.DEVNULL)
    with Wire(broker.connect()) as wire:
        producer_id, epoch = wire.init_producer_id("still-open")
        data = batch_of(OPEN, transactional=True, producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        assert wire.produce("orders", data, version=12, transactional_id="still-open").error_code == 0


def main() -> None:
    """Make one, and kill its broker: the end is that of a crash."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with BrokerProcess(directory, data_dir=directory / "data", settings=SETTINGS) as broker:
            fill(broker)
            broker.kill()
        with tarfile.open(sys.argv[1], "x:xz") as archive:
            archive.add(directory / "data", "data")


if __name__ == "__main__":
    main()
