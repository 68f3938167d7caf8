"""The table of a benchmark: medians per broker, and the ratio of the first to the reference."""

import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from bench.cases import LESS_IS_BETTER

UNITS_OF_COST = ("s", "ms", "MB")


class Measured(NamedTuple):
    """One number of one run."""

    case: str
    metric: str
    broker: str
    value: float


def table(measured: list[Measured], pairs: list[tuple[str, str]]) -> str:
    """A markdown table with a row for each case and metric; `pairs` are (broker, what it is compared with)."""
    brokers = list(dict.fromkeys(one.broker for one in measured))
    pairs = [pair for pair in pairs if set(pair) <= set(brokers)]
    heads = ["case", "metric", *brokers, *(f"{ours} / {theirs}" for ours, theirs in pairs)]
    lines = ["| " + " | ".join(heads) + " |", "|---|---" + "|---:" * (len(heads) - 2) + "|"]
    for case, metric in dict.fromkeys((one.case, one.metric) for one in measured):
        medians = {
            broker: statistics.median(found)
            for broker in brokers
            if (found := [one.value for one in measured if one[:3] == (case, metric, broker)])
        }
        less = metric in LESS_IS_BETTER or "CPU" in metric or metric.split()[0] in UNITS_OF_COST
        better = "less" if less else "more"
        cells = [case, f"{metric} ({better} is better)", *(_number(medians.get(name)) for name in brokers)]
        for ours, theirs in pairs:
            ratio = medians[ours] / medians[theirs] if ours in medians and medians.get(theirs) else None
            cells.append("" if ratio is None else f"**{ratio:.2f}x**")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def circumstances(command: str) -> str:
    """Where and how it was measured."""
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    return (
        f"`{command}`, {time.strftime('%Y-%m-%d %H:%M')}, {platform.system()} {platform.release()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, load average {load}."
    )


def write(directory: Path, measured: list[Measured], text: str, prefix: str = "") -> Path:
    """Keep the table and every single number; return the table's path."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = prefix + time.strftime("%Y%m%d-%H%M%S")
    rows = "".join(json.dumps(one._asdict()) + "\n" for one in measured)
    (directory / f"{stem}.jsonl").write_text(rows, encoding="utf-8")
    path = directory / f"{stem}.md"
    path.write_text(text + "\n", encoding="utf-8")
    return path
