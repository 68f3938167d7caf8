"""The picture of the demo: mean delay per carrier and month, what each isolation level shows, and how the load went."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.flights.audit import Counts
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
) -> None:
    """Write the PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": PALE, "text.color": INK, "axes.labelcolor": INK})
    figure = plt.figure(figsize=(13, 7.5), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(2.1, 1), height_ratios=(1, 1.35))
    _heat_map(figure, figure.add_subplot(grid[:, 0]), figures)
    _load(figure.add_subplot(grid[0, 1]), story, kills)
    _isolation(figure.add_subplot(grid[1, 1]), counts)
    flights = sum(one.flights for one in figures.values())
    figure.suptitle(
        f"{flights:,} flights out of New York, 2013: through transactions, aborts and kills, read by {by}",
        fontsize=13,
        fontweight="bold",
        color=INK,
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _heat_map(figure: Any, axes: Any, figures: Mapping[CarrierMonth, Figure]) -> None:
    carriers = sorted({key.carrier for key in figures})
    table = np.full((len(carriers), 12), np.nan)
    for key, one in figures.items():
        table[carriers.index(key.carrier), key.month - 1] = one.mean_delay_minutes
    limit = float(np.nanpercentile(np.abs(table), 97))
    image = axes.imshow(table, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
    for (line, column), value in np.ndenumerate(table):
        if not np.isnan(value):
            shade = "white" if abs(value) > 0.6 * limit else INK
            axes.text(column, line, f"{value:.0f}", ha="center", va="center", color=shade, fontsize=8)
    axes.set_xticks(range(12), ["J", "F", "M", "A", "M", "J", "J", "A", "S", "O", "N", "D"])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.tick_params(length=0)
    axes.set_title("Mean departure delay in minutes, by carrier and month", loc="left", color=INK)
    figure.colorbar(image, ax=axes, shrink=0.5, label="minutes")


def _load(axes: Any, story: Story, kills: Mapping[str, float]) -> None:
    began = next((moment for moment, rows in story if rows), 0.0)
    seconds = [max(0.0, moment - began) for moment, _ in story]
    committed = [rows / 1000 for _, rows in story]
    axes.step(seconds, committed, where="post", color=INK)
    axes.fill_between(seconds, committed, step="post", color=PALE, alpha=0.6)
    for number, (name, moment) in enumerate(kills.items()):
        axes.axvline(moment - began, color=ACCENT, linewidth=1, linestyle="--")
        axes.annotate(
            f"{name} ",
            (moment - began, (0.97 - 0.09 * number) * max(committed, default=1)),
            color=ACCENT,
            va="top",
            ha="right",
            fontsize=8,
        )
    axes.set_title("Thousand flights committed, by second", loc="left", color=INK)
    axes.set_xlabel("seconds after the first commit")
    axes.spines[["top", "right"]].set_visible(False)


def _isolation(axes: Any, counts: Counts) -> None:
    shown = [counts.read_committed / 1000, counts.read_uncommitted / 1000]
    aborted = counts.read_uncommitted - counts.read_committed
    bars = axes.bar(["read_committed", "read_uncommitted"], shown, color=[INK, PALE], width=0.55)
    axes.bar(
        ["read_uncommitted"],
        [aborted / 1000],
        bottom=[shown[0]],
        color=ACCENT,
        width=0.55,
        label=f"aborted: {aborted:,}",
    )
    labels = [f"{counts.read_committed:,}", f"{counts.read_uncommitted:,}"]
    axes.bar_label(bars, labels, padding=2, color=INK)
    axes.legend(frameon=False, loc="lower right")
    axes.margins(y=0.12)
    axes.set_title("Thousand records a consumer sees", loc="left", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
