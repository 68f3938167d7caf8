"""The number of cores changes at random moments, and a topic is made again meanwhile."""

import json
import random
import time
from collections import Counter
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from fencepost.broker.log.storage.layout import DELETED
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.cores_broker import Cores
from tests.kit.cores_moves import ask_for, wait_for
from tests.kit.waiting import until


class RemadeTopic:
    """A topic that is deleted and made again while its partitions move. Each time it has only its own records."""

    NAME, PARTITIONS = "remade", 4

    def __init__(self, address: str) -> None:
        self._address = address
        self._values: list[bytes] | None = None
        self._made = 0
        self.places = [(self.NAME, number) for number in range(self.PARTITIONS)]

    def make_again(self) -> list[str]:
        """Returns what is wrong with the records since the last time."""
        problems: list[str] = []
        with Client(self._address) as kafka, kafka.admin() as admin:
            if self._values is not None:
                with kafka.consumer(self.NAME) as consumer:
                    found = sorted(record.value or b"" for batch in consumer.read_to_end() for record in batch)
                if found != self._values:
                    problems.append(f"{self.NAME} has {found} instead of {self._values}")
                admin.delete_topics(self.NAME)
            admin.create_topics(self.NAME, partitions=self.PARTITIONS)
            self._made += 1
            self._values = [b"%d-%d" % (self._made, number) for number in range(self.PARTITIONS)]
            with kafka.producer() as producer:
                for number, value in enumerate(self._values):
                    producer.send(self.NAME, value, partition=number)
        return problems


class NumberChanges:
    """Changes of the number of cores of a broker."""

    def __init__(self, broker: BrokerProcess, chance: random.Random, most: int, faults: Counter[str]) -> None:
        self._broker = broker
        self._chance = chance
        self._most = most
        self._faults = faults
        self._count = broker.cores
        self.remade = RemadeTopic(broker.address)

    def running(self) -> list[int]:
        """The cores that have a process."""
        return [number for number in range(self._most) if self._broker.core_pid(number) is not None] or [0]

    def change(self) -> list[str]:
        """At times once more before the last change has ended. Returns what is wrong."""
        problems: list[str] = []
        for _ in range(self._chance.choice([0, 1, 1, 1, 2, 3])):
            count = self._chance.choice([one for one in range(1, self._most + 1) if one != self._count])
            if refused := ask_for(Cores(self._broker), count):
                problems.append(f"{count} cores are refused: {refused}")
                continue
            self._faults["cores fewer" if count < self._count else "cores more"] += 1
            self._set(count)
            if self._chance.random() < 0.3:
                problems += self.remade.make_again()
                self._faults["topic made again"] += 1
            time.sleep(self._chance.choice([0, 0.05, 0.3, 1.5]) * self._chance.random())
        return problems

    def begin(self) -> None:
        """Start the broker, with the number that was wanted, or at times another one."""
        self._set(max(self._chance.randint(2, self._most) if self._chance.random() < 0.3 else self._count, 2))
        self._broker.start()

    def end(self) -> list[str]:
        """Down and up once more in quiet: the directories of cores that are gone have no logs, and all are ready."""
        assert self._broker.data_dir is not None
        problems = self.remade.make_again()
        for count in (self._most, 1, 2, self._most - 1):
            ask_for(Cores(self._broker), count)
            self._set(count)
            wait_for(Cores(self._broker), count)
            url = f"http://{self._broker.facts['metrics']}/ready"
            until(lambda url=url: cores_ready(url), lambda ready, count=count: ready == count, f"{count} are not ready")
            for path in self._broker.data_dir.glob("cores/[0-9]*/*-*/"):
                if int(path.parent.name) >= count and not path.name.endswith(DELETED):
                    problems.append(f"{count} cores: {path} is left")
        return problems + self.remade.make_again()

    def _set(self, count: int) -> None:
        self._count = count
        self._broker.cores = max(count, 2)  # also a single core has a supervisor


def cores_ready(url: str) -> int:
    """How many cores the page says are ready; 0 if any is not."""
    try:
        with urlopen(url) as page:
            return int(json.load(page)["cores"])
    except (HTTPError, URLError):
        return 0
