"""What the spectator sees: bars while it works, one line for each thing that happens, and the tables at the end."""

import time
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.audit import Counts
from examples.flights.comparison import Row

WIDTH_OF_A_FILE = 120
BLOCK_WIDTH = 58


class Screen:
    """Progress bars with a story above them."""

    def __init__(self) -> None:
        terminal = Console().is_terminal
        self.console = Console(highlight=False, width=None if terminal else WIDTH_OF_A_FILE)
        self._started = time.monotonic()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._tasks: dict[str, TaskID] = {}

    @property
    def seconds(self) -> float:
        """Since the screen was made."""
        return time.monotonic() - self._started

    def __enter__(self) -> "Screen":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def bar(self, name: str, description: str, total: int) -> None:
        """A new bar."""
        self._tasks[name] = self._progress.add_task(description, total=total, note="")

    def move(self, name: str, completed: int, note: str | None = None) -> None:
        """How far a bar is."""
        changes: dict[str, Any] = {} if note is None else {"note": note}
        self._progress.update(self._tasks[name], completed=completed, **changes)

    def tell(self, text: str, style: str = "") -> None:
        """One line of the story."""
        self.console.print(f"[dim]{self.seconds:6.1f} s[/dim]  {text}", style=style)

    def figures(self, rows: Sequence[Row], left: str, right: str) -> None:
        """The table per carrier and month: what came through the log beside what the data set says."""
        table = Table(
            title=f"Flights and mean departure delay: by {left}, and straight from the {right}",
            box=box.SIMPLE_HEAD,
            padding=(0, 0, 0, 1),
        )
        blocks = max(1, self.console.width // BLOCK_WIDTH)
        for _ in range(blocks):
            for name in ("carrier", "month", "flights", "", "delay, min", "", ""):
                table.add_column(name, justify="right", no_wrap=True)
        height = -(-len(rows) // blocks)
        for line in range(height):
            cells: list[str] = []
            for row in rows[line::height]:
                cells += self._figure_cells(row)
            table.add_row(*cells)
        self.console.print(table)

    def _figure_cells(self, row: Row) -> list[str]:
        flights = [f"{side.flights:,}" if side else "-" for side in (row.found, row.expected)]
        means = [f"{side[1]:.4f}" if side else "-" for side in (row.found, row.expected)]
        return [*(str(part) for part in row.key), *flights, *means, _mark(row.equal)]

    def totals(self, rows: Sequence[Row]) -> None:
        """The table per carrier: what consume-transform-produce wrote beside what the data set says."""
        table = Table(
            title="Totals per carrier: from the second topic, and straight from the data set",
            box=box.SIMPLE_HEAD,
            padding=(0, 0, 0, 1),
        )
        for name in ("carrier", "flights", "", "departed", "", "minutes late", "", ""):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            cells = []
            for index in range(3):
                cells += [f"{side[index]:,}" if side else "-" for side in (row.found, row.expected)]
            table.add_row(str(row.key[0]), *cells, _mark(row.equal))
        self.console.print(table)

    def counts(self, counts: Counts, flights: int) -> None:
        """What the isolation levels show."""
        more = counts.read_uncommitted - counts.read_committed
        self.console.print(
            f"read_committed shows [bold]{counts.read_committed:,}[/bold] records of {flights:,} flights; "
            f"read_uncommitted would have shown [bold]{counts.read_uncommitted:,}[/bold]: "
            f"{more:,} that were aborted, {more / max(1, flights):.1%} too many."
        )


def _mark(equal: bool) -> str:
    return "[green]=[/green]" if equal else "[bold red]differs[/bold red]"
