"""Java's console consumer as a member of groups, and kafka-consumer-groups.sh about them (rows G1, G4, G7, G11, T5)."""

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.java.jars import class_path, java
from tests.interop.java.kafka_jvm import KafkaJvm
from tests.interop.members.process import wait_until
from tests.kit.broker_process import BrokerProcess
from tests.kit.leaders import Leaders
from tests.kit.settings import QUICK_GROUPS
from tests.kit.wire import Wire, batch_of

PARTITIONS = 4
WAIT_SECONDS = 200.0
"""Of a JVM that starts, joins, reads and ends beside others."""
JVM_OPTIONS = ["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
QUICK = ["auto.commit.interval.ms=100"]
SESSION_MS = 10_000
"""A member that is missed while it only was slow reads again what it had not committed; these print all they read."""
PROTOCOLS = {
    "classic": [f"session.timeout.ms={SESSION_MS}", "heartbeat.interval.ms=200"],
    "consumer": ["group.protocol=consumer"],
}
"""Group protocol -> what its members are told."""
SETTINGS = {**QUICK_GROUPS, "group.consumer.session.timeout.ms": str(SESSION_MS)}


@pytest.fixture
def broker(kafka: KafkaJvm, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own; `t` has four partitions."""
    with BrokerProcess(tmp_path, settings=SETTINGS) as running:
        with Wire(running.connect()) as wire:
            wire.create_topic("t", PARTITIONS)
        yield running


class ConsoleConsumer:
    """kafka-console-consumer.sh in a process; `seen` are the lines it has printed."""

    def __init__(self, broker: BrokerProcess, group: str, properties: Sequence[str], *options: str) -> None:
        command = [java(), *JVM_OPTIONS, "-cp", class_path(), "org.apache.kafka.tools.consumer.ConsoleConsumer"]
        command += ["--bootstrap-server", broker.address, "--topic", "t", "--group", group, "--from-beginning"]
        command += [word for one in [*QUICK, *properties] for word in ("--command-property", one)]
        self.seen: list[str] = []
        self._process = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self.seen.extend(line.rstrip("\n") for line in self._out)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self.ended()

    def leave(self) -> None:
        """Ask it to end: it leaves its group first."""
        self._process.terminate()
        self.ended()

    def ended(self) -> None:
        """Wait for its end."""
        self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        self._out.close()


def feed(broker: BrokerProcess, begin: int, count: int) -> None:
    """Write so many records to each partition."""
    with Leaders(broker.address) as leaders:
        for partition in range(PARTITIONS):
            values = [b"%d/%d" % (partition, number) for number in range(begin, begin + count)]
            leaders.produce("t", batch_of(*values), partition=partition)


def table(printed: str) -> list[dict[str, str]]:
    """The rows of a table that the command prints, by its heads."""
    lines = [line.split() for line in printed.splitlines()]
    heads = next(line for line in lines if line[:1] in (["GROUP"], ["TOPIC"]))
    return [dict(zip(heads, line, strict=True)) for line in lines[lines.index(heads) + 1 :] if line]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_console_consumers_share_partitions_and_inherit_those_of_the_dead(
    kafka: KafkaJvm, broker: BrokerProcess, protocol: str
) -> None:
    """PartialRequest, kill -9, departure in order; the command sees each of them, and no lag at the end."""
    properties = PROTOCOLS[protocol]

    def shares() -> list[int]:
        described = kafka.groups(broker.address, "--describe", "--group", "g", "--members")
        return sorted(int(row["#PARTITIONS"]) for row in table(described))

    def state() -> tuple[str, str]:
        [row] = table(kafka.groups(broker.address, "--describe", "--group", "g", "--state"))
        return row["STATE"], row["#MEMBERS"]

    def lags() -> list[str]:
        return [row["LAG"] for row in table(kafka.groups(broker.address, "--describe", "--group", "g"))]

    with consumers() as start:
        feed(broker, 0, 10)
        first, second = start(broker, properties), start(broker, properties)
        wait_until(lambda: len(first.seen + second.seen) == 40, "the records to be read", [])
        wait_until(lambda: shares() == [2, 2], "both to have a share", [])
        assert state() == ("Stable", "2")
        wait_until(lambda: lags() == ["0"] * 4, "their positions to be committed", [])
        first.kill()
        feed(broker, 10, 10)
        wait_until(lambda: len(first.seen + second.seen) == 80, "the heir to read the rest", [])
        assert sorted(first.seen + second.seen) == sorted(f"{at}/{n}" for at in range(PARTITIONS) for n in range(20))
        wait_until(lambda: (shares(), lags()) == ([4], ["0"] * 4), "the heir to have all", [])
        second.leave()
        assert state() == ("Empty", "0"), "it left before it ended"


def test_positions_are_listed_reset_and_deleted(kafka: KafkaJvm, broker: BrokerProcess) -> None:
    """reset-offsets as a dry run and for good, a member that goes on from there, delete-offsets, delete, list."""

    def command(*words: str) -> str:
        return kafka.groups(broker.address, *words)

    def positions() -> dict[str, tuple[str, str]]:
        rows = table(command("--describe", "--group", "g", "--offsets"))
        return {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LAG"]) for row in rows}

    feed(broker, 0, 10)
    with consumers() as start:
        reader = start(broker, PROTOCOLS["classic"])
        wait_until(lambda: len(reader.seen) == 40, "the records to be read", [])
        refused = command("--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest", "--execute")
        assert "inactive" in refused, "the group has members"
        reader.leave()
        assert positions() == {str(number): ("10", "0") for number in range(PARTITIONS)}
        reset = ("--reset-offsets", "--group", "g", "--topic", "t:1,2", "--to-offset", "5")
        planned = table(command(*reset, "--dry-run"))
        assert {(row["PARTITION"], row["NEW-OFFSET"]) for row in planned} == {("1", "5"), ("2", "5")}
        assert positions()["1"] == ("10", "0"), "it was a dry run"
        command(*reset, "--execute")
        assert (positions()["1"], positions()["0"]) == (("5", "5"), ("10", "0"))
        again = start(broker, PROTOCOLS["classic"], "--max-messages", "10")
        again.ended()
        assert sorted(again.seen) == sorted(f"{at}/{number}" for at in (1, 2) for number in range(5, 10))
    command("--delete-offsets", "--group", "g", "--topic", "t:3")
    assert sorted(positions()) == ["0", "1", "2"]
    assert table(command("--list", "--state", "empty")) == [{"GROUP": "g", "STATE": "Empty"}]
    command("--delete", "--group", "g")
    assert command("--list").split() == []


@contextmanager
def consumers() -> Iterator[Callable[..., ConsoleConsumer]]:
    """Starts console consumers of group `g`; those that are left over end with the test."""
    started: list[ConsoleConsumer] = []

    def start(broker: BrokerProcess, properties: Sequence[str], *options: str) -> ConsoleConsumer:
        started.append(ConsoleConsumer(broker, "g", properties, *options))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.kill()
