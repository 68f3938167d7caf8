"""The picture of the demo: mean delay per carrier and month, what each isolation level shows, and how the load went."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.flights.audit import Counts
from examples.flights.comparison import FoundTable
from examples.flights.dataset import CarrierMonth, Figure

Story = Sequence[tuple[float, int]]
"""Seconds since the start, and flights committed by then."""
INK, ACCENT, PALE = "#1b2a41", "#c8553d", "#d9dde3"


def draw(
    path: Path,
    figures: Mapping[CarrierMonth, Figure],
    counts: Counts,
    story: Story,
    kills: Mapping[str, float],
    by: str,
    table: FoundTable | None = None,
) -> None:
    """Write the PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = picture(figures, counts, story, kills, by, table)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def picture(
    figures: Mapping[CarrierMonth, Figure],
    counts: Counts,
    story: Story,
    kills: Mapping[str, float],
    by: str,
    table: FoundTable | None = None,
) -> Any:
    """The matplotlib figure: the delays, the load over time, what each isolation level shows, and the table."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": PALE, "text.color": INK, "axes.labelcolor": INK})
    figure = plt.figure(figsize=(13, 7.5), layout="constrained")
    lines = 2 if table is None else 3
    grid = figure.add_gridspec(lines, 2, width_ratios=(2.1, 1), height_ratios=(1, 1.35, 0.8)[:lines])
    _heat_map(figure, figure.add_subplot(grid[:, 0]), figures)
    _load(figure.add_subplot(grid[0, 1]), story, kills)
    _isolation(figure.add_subplot(grid[1, 1]), counts)
    if table is not None:
        _table(figure.add_subplot(grid[2, 1]), table)
    flights = sum(one.flights for one in figures.values())
    figure.suptitle(
        f"{flights:,} flights out of New York, 2013: through transactions, aborts and kills, read by {by}",
        fontsize=13,
        fontweight="bold",
        color=INK,
    )
    return figure


def _heat_map(figure: Any, axes: Any, figures: Mapping[CarrierMonth, Figure]) -> None:
    carriers = sorted({key.carrier for key in figures})
    table = np.full((len(carriers), 12), np.nan)
    for key, one in figures.items():
        table[carriers.index(key.carrier), key.month - 1] = one.mean_delay_minutes
    scale = _scale(table)
    image = axes.imshow(table, aspect="auto", cmap="RdBu_r", norm=scale)
    for (line, column), value in np.ndenumerate(table):
        if not np.isnan(value):
            shade = "white" if abs(scale(value) - 0.5) > 0.28 else INK
            axes.text(column, line, f"{value:.0f}", ha="center", va="center", color=shade, fontsize=8)
    axes.set_xticks(range(12), ["J", "F", "M", "A", "M", "J", "J", "A", "S", "O", "N", "D"])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.tick_params(length=0)
    axes.set_title("Mean departure delay in minutes, by carrier and month", loc="left", color=INK)
    bar = figure.colorbar(image, ax=axes, shrink=0.5, label="minutes")
    bar.ax.set_ylim(float(np.nanmin(table)), float(np.nanmax(table)))


def _scale(table: Any) -> Any:
    """Colours by the root of the minutes: the longest delay has a colour of its own, and short ones differ still."""
    from matplotlib.colors import FuncNorm

    limit = float(np.nanmax(np.abs(table)))
    roots = (lambda minutes: np.sign(minutes) * np.sqrt(np.abs(minutes)), lambda root: np.sign(root) * root**2)
    return FuncNorm(roots, vmin=-limit, vmax=limit)


def _load(axes: Any, story: Story, kills: Mapping[str, float]) -> None:
    began = next((moment for moment, rows in story if rows), 0.0)
    seconds = [max(0.0, moment - began) for moment, _ in story]
    committed = [rows / 1000 for _, rows in story]
    axes.step(seconds, committed, where="post", color=INK)
    axes.fill_between(seconds, committed, step="post", color=PALE, alpha=0.6)
    _kills(axes, sorted((moment - began, name) for name, moment in kills.items()), max(committed, default=1))
    axes.set_title("Thousand flights committed, by second", loc="left", color=INK)
    axes.set_xlabel("seconds after the first commit")
    axes.spines[["top", "right"]].set_visible(False)


def _kills(axes: Any, kills: Sequence[tuple[float, str]], top: float) -> None:
    """A line for each kill, up to its name above the curve. A later line is shorter, so that no name crosses a line."""
    for number, (moment, name) in enumerate(kills):
        height = (1.08 + 0.11 * (len(kills) - number)) * top
        axes.plot([moment, moment], [0, height], color=ACCENT, linewidth=1, linestyle="--")
        axes.annotate(f" {name}", (moment, height), color=ACCENT, va="top", fontsize=8)
    if kills:
        end = axes.get_xlim()[1]
        axes.set_xlim(right=max(end, kills[-1][0] + 0.35 * end))  # room for the last name


def _isolation(axes: Any, counts: Counts) -> None:
    shown = [counts.read_committed / 1000, counts.read_uncommitted / 1000]
    aborted = counts.read_uncommitted - counts.read_committed
    bars = axes.bar(["read_committed", "read_uncommitted"], shown, color=[INK, PALE], width=0.55)
    axes.bar(["read_uncommitted"], [aborted / 1000], bottom=[shown[0]], color=ACCENT, width=0.55)
    labels = axes.bar_label(
        bars, [f"{counts.read_committed:,}", f"{counts.read_uncommitted:,}\n{aborted:,} of them aborted"], padding=2
    )
    labels[1].set_color(ACCENT)
    axes.margins(y=0.15)
    axes.set_title("Thousand records a consumer sees", loc="left", color=INK)
    axes.spines[["top", "right"]].set_visible(False)


def _table(axes: Any, table: FoundTable) -> None:
    carriers = sorted(table.totals)
    axes.bar(carriers, [table.totals[carrier].delay_minutes / 60_000 for carrier in carriers], color=INK, width=0.6)
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.axhline(0, color=PALE, linewidth=1)
    same = "equal to the topic" if table.missing == table.extra == 0 else "DIFFERENT from the topic"
    axes.set_title(
        f"Thousand hours late, from the Delta table:\n{table.rows:,} rows in {table.commits} commits, {same}",
        loc="left",
        color=INK,
    )
    axes.spines[["top", "right"]].set_visible(False)
