"""The same figures without Spark, for machines without Java: a read_committed consumer and a dictionary."""

import argparse
import json
import sys
from collections import Counter

import trio

import fencepost
from examples.flights.dataset import FLIGHTS_TOPIC
from examples.flights.events import tell
from examples.flights.totals import caught_up, next_batch


class Figures:
    """Counts and sums per (carrier, month)."""

    def __init__(self) -> None:
        self._flights: Counter[tuple[str, int]] = Counter()
        self._departed: Counter[tuple[str, int]] = Counter()
        self._minutes: Counter[tuple[str, int]] = Counter()
        self._no_more_input = False

    async def run(self, bootstrap: str) -> None:
        """Read along until no more input comes and all of it is used."""
        used = 0
        async with (
            fencepost.Client(bootstrap, client_id="flights-figures") as kafka,
            kafka.consumer(FLIGHTS_TOPIC, isolation="read_committed") as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(self._listen)
            batches = consumer.batches(max_records=10_000)
            while True:
                batch = await next_batch(batches)
                for record in batch:
                    self._add(json.loads(record.value))
                if batch:
                    used += len(batch)
                    tell("figures-progress", rows=used, batches=0)
                elif self._no_more_input and await caught_up(consumer):
                    break
            nursery.cancel_scope.cancel()

    def _add(self, flight: dict[str, object]) -> None:
        group = (str(flight["carrier"]), int(str(flight["month"])))
        self._flights[group] += 1
        if flight["dep_delay"] is not None:
            self._departed[group] += 1
            self._minutes[group] += int(str(flight["dep_delay"]))

    def table(self) -> list[dict[str, object]]:
        """One row a group, as Spark's table has them."""
        return [
            {
                "carrier": carrier,
                "month": month,
                "flights": flights,
                "mean_delay_minutes": self._mean((carrier, month)),
            }
            for (carrier, month), flights in self._flights.items()
        ]

    def _mean(self, group: tuple[str, int]) -> float | None:
        departed = self._departed[group]
        return self._minutes[group] / departed if departed else None

    async def _listen(self) -> None:
        await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        self._no_more_input = True


async def main() -> None:
    """Count until standard input has a line or ends, and tell the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    options = parser.parse_args()
    figures = Figures()
    tell("figures-started", by="a plain consumer")
    await figures.run(options.bootstrap)
    tell("figures", rows=figures.table())


if __name__ == "__main__":
    trio.run(main)
