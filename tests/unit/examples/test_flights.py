"""The demo's judgement: it must not call different things equal, and its plan must not depend on where it starts."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from examples.flights import dataset, play
from examples.flights.audit import Counts
from examples.flights.cluster import Cluster
from examples.flights.comparison import compare, figures_of_table
from examples.flights.dataset import CarrierMonth, CarrierTotal, Figure
from examples.flights.loading import LoadOptions, plan
from examples.flights.screen import Screen
from examples.flights.totals import with_flights

JANUARY = CarrierMonth("AA", 1)


def test_the_figures_of_the_data_set_are_equal_to_themselves() -> None:
    expected = dataset.expected_figures()
    assert len(expected) == 185
    assert sum(figure.flights for figure in expected.values()) == 336_776
    assert all(row.equal for row in compare(expected, expected))


@pytest.mark.parametrize(
    "found",
    [
        {},
        {JANUARY: Figure(2, 1.5)},
        {JANUARY: Figure(3, 1.5 + 1e-9)},
        {JANUARY: Figure(3, math.nan)},
        {JANUARY: Figure(3, 1.5), CarrierMonth("AA", 2): Figure(1, 0.0)},
    ],
    ids=["nothing", "a flight less", "another mean", "no mean", "a row too many"],
)
def test_a_difference_is_seen(found: dict[CarrierMonth, Figure]) -> None:
    rows = compare({JANUARY: Figure(3, 1.5)}, found)
    assert not all(row.equal for row in rows)


def test_a_month_without_departures_has_no_mean_on_either_side() -> None:
    table = [{"carrier": "AA", "month": 1, "flights": 3, "mean_delay_minutes": None}]
    assert compare({JANUARY: Figure(3, math.nan)}, figures_of_table(table))[0].equal


def test_totals_count_cancelled_flights_without_a_delay() -> None:
    values = [json.dumps({"carrier": "AA", "dep_delay": delay}).encode() for delay in (5, None, -2)]
    assert with_flights({"AA": CarrierTotal(1, 1, 10)}, values) == {"AA": CarrierTotal(4, 3, 13)}


def test_a_successor_continues_the_plan_of_the_one_that_died() -> None:
    options = LoadOptions("", 0, 1, 100, None, None)
    whole = list(plan(options, 2050, 0))
    assert list(plan(options, 2050, 1300)) == whole[13:]
    assert [step.start for step in whole if step.written_in_vain_first] == [900, 1900]
    assert (whole[-1].start, whole[-1].end) == (2000, 2050)


class _Silent(Screen):
    def tell(self, text: str, style: str = "") -> None:
        """Nobody looks."""


@pytest.mark.parametrize("lost", ["committed", "in vain", "kill", "nothing"])
def test_the_verdict_fails_where_nothing_was_put_to_the_test(tmp_path: Path, lost: str) -> None:
    show: Any = play.Play(play.Setting(tmp_path, 4, 1000, False), _Silent())
    show.kills = {"producer killed": 1.0, "broker killed": 3.0} | ({} if lost == "kill" else {"core killed": 2.0})
    show._aborted_rows = 1000
    committed = 336_775 if lost == "committed" else 336_776
    counts = Counts(committed, 336_776 if lost == "in vain" else 338_000)
    assert bool(show._faults([], [], counts)) == (lost != "nothing")


def test_a_demo_on_a_cluster_fails_unless_the_database_was_killed_too(tmp_path: Path) -> None:
    show: Any = play.Play(play.Setting(tmp_path, 4, 1000, False), _Silent())
    show._broker.kills_wanted = Cluster.kills_wanted
    show.kills = {"producer killed": 1.0, "broker killed": 2.0}
    (fault,) = show._faults([], [], Counts(336_776, 336_776))
    assert "database killed" in fault
    show.kills["database killed"] = 3.0
    assert show._faults([], [], Counts(336_776, 336_776)) == []
