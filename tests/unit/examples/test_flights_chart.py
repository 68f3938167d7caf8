"""The demo's picture: what is written in it can be read, and different delays have different colours."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.patches import Rectangle

from examples.flights import chart, dataset
from examples.flights.audit import Counts

STORY = [(3.0 + tenth / 10, 4000 * tenth) for tenth in range(85)]
COUNTS = Counts(336_776, 369_276)


@pytest.fixture(
    scope="module", params=[(5.1, 5.6), (5.6, 5.1), (3.2, 11.3)], ids=["close together", "the other way", "at the ends"]
)
def axes(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, Any]]:
    """The three plots, laid out as in the file."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    kills = dict(zip(("producer killed", "broker killed"), request.param, strict=True))
    figure = chart.picture(dataset.expected_figures(), COUNTS, STORY, kills, "Spark")
    figure.draw_without_rendering()
    delays, _, load, isolation = figure.axes
    yield delays, load, isolation
    plt.close(figure)


def test_no_label_of_a_kill_crosses_a_line_or_leaves_the_plot(axes: tuple[Any, Any, Any]) -> None:
    load = axes[1]
    labels = [text.get_window_extent() for text in load.texts]
    lines = [line.get_path().transformed(line.get_transform()) for line in load.lines]
    assert (len(labels), len(lines)) == (2, 3), "both kills, and the curve"
    for label in labels:
        assert not any(line.intersects_bbox(label.padded(-1), filled=False) for line in lines)
        assert label.x1 <= load.get_window_extent().x1
    assert not labels[0].overlaps(labels[1])


def test_no_label_of_a_bar_lies_on_a_bar(axes: tuple[Any, Any, Any]) -> None:
    isolation = axes[2]
    bars = [patch.get_window_extent() for patch in isolation.patches if isinstance(patch, Rectangle)]
    assert len(bars) == 3
    assert isolation.get_legend() is None
    for text in isolation.texts:
        assert not any(bar.overlaps(text.get_window_extent().padded(-1)) for bar in bars), text.get_text()
    assert "32,500 of them aborted" in isolation.texts[1].get_text()


def test_every_ten_minutes_more_are_another_colour(axes: tuple[Any, Any, Any]) -> None:
    (image,) = axes[0].images
    colours = [image.cmap(image.norm(minutes)) for minutes in range(-5, 67, 10)]
    for one, other in pairwise(colours):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.05
