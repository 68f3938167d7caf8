"""The plot of the demo: who starts when, who is killed when, and what must come out at the end."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import trio

import fencepost
from examples.flights import audit, chart, dataset
from examples.flights.cluster import Cluster
from examples.flights.comparison import FoundTable, Row, compare, figures_of_table
from examples.flights.cores import Cores
from examples.flights.dataset import CarrierTotal
from examples.flights.processes import Process
from examples.flights.screen import Screen

BROKER_DIES_AT = 0.45
"""Share of the flights that is committed when the first part of the broker is killed."""
STAND_STILL_IN = 25
"""The transaction in whose middle the first loader is killed."""
LIBRDKAFKA_SLICE = 1


class Setting(NamedTuple):
    """What the command line says."""

    directory: Path
    loaders: int
    transaction_rows: int
    with_spark: bool
    cores: int = 3
    """Of the broker, one of which is killed alone."""
    on_cluster: bool = False
    """Whether PostgreSQL and an object store keep the records, with three brokers; otherwise one broker with files."""


class Play:
    """One run. `bars` and `story` are for the spectator; `found_...` is what came through the log."""

    def __init__(self, setting: Setting, screen: Screen) -> None:
        self._setting = setting
        self._screen = screen
        self._broker = Cluster(setting.directory) if setting.on_cluster else Cores(setting.directory, setting.cores)
        self._loaders: dict[int, Process] = {}
        self._committed: dict[int, int] = {}
        self._aborted_rows = 0
        self._flights = len(dataset.flights())
        self._figures_ready = trio.Event()
        self._broker_must_die = trio.Event()
        self._figures_by = ""
        self.story: list[tuple[float, int]] = [(0.0, 0)]
        self.kills: dict[str, float] = {}
        self.found_figures: dict[Any, Any] = {}
        self.found_totals: dict[str, CarrierTotal] = {}
        self.found_table: FoundTable | None = None

    async def run(self) -> bool:
        """Play it to the end; return whether everything is equal to the row."""
        shutil.rmtree(self._setting.directory, ignore_errors=True)
        self._setting.directory.mkdir(parents=True)
        children: list[Process] = []
        try:
            with self._screen:
                await self._broker.start()
                self._screen.tell(f"[bold]{self._broker.ready_line}[/bold]")
                await self._make_topics()
                await self._work(children)
            counts = await trio.to_thread.run_sync(audit.count, self._broker.address)
            code = await self._broker.stop()
            self._screen.tell(f"the broker was asked to end and did, with exit code {code}")
        finally:
            for child in children:
                child.kill()
            self._broker.kill()
        return self._verdict(counts) and code == 0

    # -- the work

    async def _make_topics(self) -> None:
        async with fencepost.Client(self._broker.address) as kafka, kafka.admin() as admin:
            await admin.create_topics(dataset.FLIGHTS_TOPIC, partitions=dataset.FLIGHTS_PARTITIONS)
            await admin.create_topics(dataset.TOTALS_TOPIC, partitions=3)
            await admin.create_topics(dataset.SOURCE_TOPIC, partitions=self._setting.loaders)

    async def _work(self, children: list[Process]) -> None:
        figures, totals = self._figures_process(), self._child("totals", "examples.flights.totals")
        children += [figures, totals]
        async with trio.open_nursery() as nursery:
            self._screen.bar("figures", "figures per carrier and month", self._flights)
            self._screen.bar("totals", "consume, transform, produce", self._flights)
            nursery.start_soon(figures.work, self._figures_event)
            nursery.start_soon(self._total_up, totals, figures)
            await self._figures_ready.wait()  # so that it reads while others write and die
            async with trio.open_nursery() as loading:
                loading.start_soon(self._kill_the_broker_once)
                for number in range(self._setting.loaders):
                    loading.start_soon(self._load, number, children)
            self._screen.tell("all flights are committed; the readers finish what is left")
            await figures.say("no more input")
            await totals.say("no more input")

    async def _total_up(self, totals: Process, figures: Process) -> None:
        """When the totals are complete, the process with Spark writes them into a table."""
        await totals.work(self._totals_event)
        if self._setting.with_spark:
            await figures.say("the totals are complete")

    def _child(self, name: str, module: str, *arguments: str) -> Process:
        words = ["--bootstrap", self._broker.address, *arguments]
        return Process(name, module, words, self._setting.directory)

    def _figures_process(self) -> Process:
        if not self._setting.with_spark:
            return self._child("figures", "examples.flights.figures_plain")
        checkpoint, table = (str(self._setting.directory / name) for name in ("checkpoint", "totals-table"))
        return self._child("figures", "examples.flights.figures_spark", "--checkpoint", checkpoint, "--table", table)

    async def _load(self, number: int, children: list[Process]) -> None:
        """One slice; the first loader dies in the middle of a transaction and gets a successor."""
        by_others = number == LIBRDKAFKA_SLICE
        module = "examples.flights.load_librdkafka" if by_others else "examples.flights.load"
        client = "confluent-kafka" if by_others else "fencepost"
        rows = len(range(number, self._flights, self._setting.loaders))
        self._screen.bar(f"loader-{number}", f"producer {number} ({client})", rows)
        words = ["--slice", str(number), "--slices", str(self._setting.loaders)]
        words += ["--transaction-rows", str(self._setting.transaction_rows)]
        if number == 0:
            victim = self._child(f"loader-{number}", module, *words, "--stand-still-in", str(STAND_STILL_IN))
            children.append(victim)
            self._loaders[number] = victim
            await victim.start()
            await victim.follow(lambda event: self._loader_event(number, event))
        successor = self._child(f"loader-{number}", module, *words)
        children.append(successor)
        self._loaders[number] = successor
        await successor.work(lambda event: self._loader_event(number, event))

    async def _kill_the_broker_once(self) -> None:
        await self._broker_must_die.wait()
        await self._broker.break_down(self._note_kill, self._screen.tell)

    def _note_kill(self, name: str) -> None:
        self.kills[name] = self._screen.seconds

    # -- what the children tell

    def _loader_event(self, number: int, event: dict[str, Any]) -> None:
        match event["event"]:
            case "loader-started" if event["position"] or number in self._committed:
                position = event["position"]
                self._screen.tell(
                    f"producer {number} has a successor: it fences the dead one, and goes on at {position:,}"
                )
            case "committed":
                self._committed[number] = event["position"]
                self._screen.move(f"loader-{number}", event["position"])
                total = sum(self._committed.values())
                self.story.append((self._screen.seconds, total))
                if total >= BROKER_DIES_AT * self._flights and self._loader_died:
                    self._broker_must_die.set()
            case "aborted":
                self._aborted_rows += event["rows"]
                if event["why"] != "on purpose":
                    self._screen.tell(f"producer {number} aborted and writes again: {event['why']}")
            case "standing-still":
                self._loaders[number].kill()
                self.kills["producer killed"] = self._screen.seconds
                self._screen.tell(
                    f"[bold red]kill -9[/bold red] producer {number} in the middle of a transaction, "
                    f"at row {event['position']:,}"
                )

    @property
    def _loader_died(self) -> bool:
        return "producer killed" in self.kills

    def _figures_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "figures-started":
                self._figures_by = event["by"]
                self._figures_ready.set()
                self._screen.tell(f"{event['by']} reads along, read_committed")
            case "figures-progress":
                note = f"{event['batches']} micro-batches" if event["batches"] else ""
                self._screen.move("figures", event["rows"], note)
            case "figures-restarted":
                self._screen.tell(f"the query starts again from its checkpoint: {event['why']}")
            case "figures":
                self.found_figures = figures_of_table(event["rows"])
            case "table":
                totals = {carrier: CarrierTotal(*total) for carrier, total in event["totals"].items()}
                self.found_table = FoundTable(event["rows"], event["commits"], event["missing"], event["extra"], totals)
                self._screen.tell(
                    f"the totals are in a Delta table, too: {event['rows']:,} rows in {event['commits']} commits"
                )

    def _totals_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "totals-committed":
                self._screen.move("totals", event["rows"])
            case "totals-aborted":
                self._screen.tell(f"totals: a transaction aborted and is done again: {event['why']}")
            case "totals":
                self.found_totals = {carrier: CarrierTotal(*total) for carrier, total in event["totals"].items()}

    # -- the end

    def _verdict(self, counts: audit.Counts) -> bool:
        figures = compare(dataset.expected_figures(), self.found_figures)
        totals = compare(dataset.expected_totals(), self.found_totals)
        self._screen.figures(figures, self._figures_by, "data set")
        self._screen.totals(totals)
        self._screen.counts(counts, self._flights)
        picture = self._setting.directory / "flights.png"
        chart.draw(picture, self.found_figures, counts, self.story, self.kills, self._figures_by, self.found_table)
        self._screen.console.print(f"Chart: {picture}   Logs: {self._setting.directory / 'logs'}")
        faults = self._faults(figures, totals, counts)
        for fault in faults:
            self._screen.console.print(f"[bold red]{fault}[/bold red]")
        if not faults:
            self._screen.console.print(
                f"[bold green]Equal to the row[/bold green]: {len(figures)} figures, {len(totals)} totals, "
                f"in {self._screen.seconds:.0f} s, after {len(self.kills)} kills."
            )
        return not faults

    def _faults(self, figures: list[Row], totals: list[Row], counts: audit.Counts) -> list[str]:
        """Everything that is not as it has to be; each is a reason to fail."""
        faults = [
            f"{row.key}: found {row.found}, expected {row.expected}" for row in (*figures, *totals) if not row.equal
        ]
        faults += self._faults_of_table()
        if counts.read_committed != self._flights:
            faults.append(
                f"read_committed shows {counts.read_committed:,} records, there are {self._flights:,} flights"
            )
        if counts.read_uncommitted < self._flights + self._aborted_rows:
            faults.append("the records that were written in vain are not in the log: nothing was put to the test")
        faults += [
            f"no {name}: that was not put to the test"
            for name in ("producer killed", *self._broker.kills_wanted)
            if name not in self.kills
        ]
        return faults

    def _faults_of_table(self) -> list[str]:
        table = self.found_table
        if table is None:
            return ["no table was written"] if self._setting.with_spark else []
        faults = [
            f"the table has {row.found} for {row.key}, expected {row.expected}"
            for row in compare(dataset.expected_totals(), table.totals)
            if not row.equal
        ]
        if table.missing or table.extra:
            faults.append(f"{table.missing} rows are missing in the table, and {table.extra} are too many")
        return faults
