"""Files that somebody deletes under a running broker, as a cleaner of /tmp does: it must not go on to acknowledge.

Kafka ends, too, when its only log directory fails (LogDirFailureHandler); strimzi-kafka-operator 4844 and
confluentinc/librdkafka 808 show it.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from tests.conftest import StartBroker
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of, values_in

DELETE_TOPICS = 20
OFTEN = {"log.retention.check.interval.ms": "200"}
OFFLINE = OFTEN | {"log.failure.policy": "offline"}


def remove_everything(data: Path) -> None:
    """Also what the running broker makes in it meanwhile, such as a checkpoint."""
    until(partial(is_removed, data))


def is_removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def make_again(data: Path) -> None:
    remove_everything(data)
    data.mkdir()
    (data / ".lock").touch()


def remove_partition(data: Path) -> None:
    remove_everything(data / "t-0")


def remove_segment(data: Path) -> None:
    next((data / "t-0").glob("*.log")).unlink()


@pytest.mark.parametrize("delete", [remove_everything, make_again, remove_partition, remove_segment])
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_the_broker_ends_with_a_line_that_names_what_is_gone(
    start_broker: StartBroker, durability: str, delete: Callable[[Path], None]
) -> None:
    broker = start_broker(files=True, settings=OFTEN | {"durability": durability})
    with Wire(broker.connect()) as wire:
        wire.create_topic("t")
        assert wire.produce("t", batch_of(b"v")).error_code == ErrorCode.NONE
        assert broker.data_dir is not None
        delete(broker.data_dir)
        assert broker.wait(60) == 1
    line = next(line for line in broker.log().splitlines() if "cannot continue" in line)
    assert "was deleted" in line
    assert str(broker.data_dir) in line


def test_with_the_other_policy_only_that_log_goes_offline(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=OFFLINE)
    with Wire(broker.connect()) as wire:
        wire.create_topic("t", partitions=2)
        for partition in range(2):
            assert wire.produce("t", batch_of(b"v"), partition=partition).error_code == ErrorCode.NONE
        assert broker.data_dir is not None
        remove_partition(broker.data_dir)
        until(lambda: "partition is offline until the next start partition=t-0" in broker.log())
        assert wire.produce("t", batch_of(b"w"), partition=0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.produce("t", batch_of(b"w"), partition=1).error_code == ErrorCode.NONE
        assert values_in(wire.fetch("t", partition=1)) == [b"v", b"w"]


def test_topics_that_are_deleted_by_their_name_are_no_fault(start_broker: StartBroker) -> None:
    broker = start_broker(files=True, settings=OFTEN)
    with Wire(broker.connect()) as wire:
        for _ in range(10):
            wire.create_topic("t")
            assert wire.produce("t", batch_of(b"v")).error_code == ErrorCode.NONE
            request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
            assert wire.call(DELETE_TOPICS, 5, request).responses[0].error_code == ErrorCode.NONE
    assert broker.stop() == 0
    assert "was deleted" not in broker.log()
