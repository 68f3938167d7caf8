"""What operators see of a share group whose partitions several cores lead."""

from itertools import islice
from pathlib import Path

from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json

TOPIC, GROUP = "jobs", "workers"
PARTITIONS = 3
"""One on each core, and one core coordinates the group."""


def test_every_core_says_what_became_of_records(tmp_path: Path) -> None:
    """Decision 16: only the leader of a partition knows the states of its records, so the coordinator asks it."""
    with (
        BrokerProcess(tmp_path / "broker", data_dir=tmp_path / "data", cores=PARTITIONS) as broker,
        Client(broker.address) as kafka,
    ):
        assert command(broker, "topic", "create", TOPIC, "-p", str(PARTITIONS)).exit_code == 0
        begin = ("config", "set", "group", GROUP, "share.auto.offset.reset=earliest")
        assert command(broker, *begin).exit_code == 0
        with kafka.producer() as producer:
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"job", partition=partition)
        with kafka.queue(TOPIC, group=GROUP) as queue:
            held = list(islice(queue, PARTITIONS))
            found = command_json(broker, "queue", "describe", GROUP)
            states = {
                part["partition"]: part["states"] and [one["state"] for one in part["states"]["ranges"]]
                for part in found["partitions"]
            }
            assert states == {f"{TOPIC}:{partition}": ["acquired"] for partition in range(PARTITIONS)}
            assert sum(found["held"].values()) == PARTITIONS
            for partition in range(PARTITIONS):
                asked = command_json(broker, "queue", "why", GROUP, TOPIC, str(partition), "0")
                assert asked["state"] == "acquired", asked["text"]
            held[0].accept()
        found = command_json(broker, "queue", "describe", GROUP)
        stored = [part["states"] and part["states"]["next_offset"] for part in found["partitions"]]
        assert None not in stored, "no member reads: the states are stored, perhaps by another core"
