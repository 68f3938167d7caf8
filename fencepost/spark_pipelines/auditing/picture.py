"""The audit's report as one HTML file: figures, strips of offsets as SVG, faults, holes. It loads no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fencepost.spark_pipelines.auditing.findings import (
    ABORTED,
    CLASSES,
    COMMITTED,
    HOLES,
    MARKERS,
    OPEN,
    AuditReport,
    PartitionReport,
    counted,
)

COLOURS = {COMMITTED: "#2a9d63", ABORTED: "#e0a83a", OPEN: "#4a86d8", MARKERS: "#9aa3ad", HOLES: "#e6e9ec"}
FAULT = "#d62839"
WORDS = {
    COMMITTED: "committed records",
    ABORTED: "aborted records, which no read_committed reader sees",
    OPEN: "records of open transactions",
    MARKERS: "markers: COMMIT and ABORT",
    HOLES: "no record",
}
_CELL, _HEIGHT, _TICK = 4, 44, 10
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 1em;color:#1d2329;background:#fff}
h1{font-size:1.5em;margin-bottom:.2em} h2{font-size:1.05em;margin:1.6em 0 .3em}
.sound{color:#1e7d4d} .broken{color:#c01f30} .quiet{color:#68727c}
table{border-collapse:collapse;margin:.6em 0} td,th{padding:.15em .8em .15em 0;text-align:right}
td:first-child,th:first-child{text-align:left} th{font-weight:600;border-bottom:1px solid #c9d0d6}
ul{margin:.3em 0;padding-left:1.2em} .key span{display:inline-block;width:.9em;height:.9em;margin:0 .35em -.1em 1em}
svg{width:100%;height:auto;display:block;margin:.4em 0}
@media(prefers-color-scheme:dark){
body{background:#14181c;color:#dfe4e8} th{border-color:#3a434c} svg rect.bg{fill:#20262c}}
"""
_HEAD = ("partition", "offsets", "committed", "aborted", "open", "commits", "aborts", "LSO", "faults")


def html(report: AuditReport) -> str:
    verdict = "sound" if report.sound else "broken"
    rows = [
        (
            one.name,
            f"{one.start:,} to {one.end:,}",
            one.committed,
            one.aborted,
            one.open_records,
            one.commits,
            one.aborts,
            one.last_stable_offset,
            one.faults_in_all,
        )
        for one in report.partitions
    ]
    key = "".join(f'<span style="background:{COLOURS[name]}"></span>{escape(WORDS[name])}' for name in CLASSES)
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>fencepost audit</title>',
        f"<style>{_STYLE}</style><h1>Exactly-once audit of {escape(report.source)}</h1>",
        f'<p class="{verdict}"><b>{escape(report.verdict())}</b></p>',
        f'<p class="quiet">{counted(report.total("batches"), "batch")},'
        f" {report.total('size_bytes') / (1 << 20):,.1f} MiB, {report.seconds:.1f} s."
        f" Checked rules: {escape('; '.join(report.rules))}.</p>",
        _table(_HEAD, rows),
        f'<p class="key">{key}<span style="background:{FAULT}"></span>fault</p>',
        *(_partition(one) for one in report.partitions),
        "</html>",
    ]
    return "\n".join(parts)


def strip_svg(one: PartitionReport) -> str:
    """The partition's offsets from left to right. Each column stacks its classes; faults are ticks below."""
    count = max(1, len(one.strip))
    width = count * _CELL
    per_cell = one.cell_offsets
    parts = [
        f'<svg viewBox="0 0 {width} {_HEIGHT + _TICK}" preserveAspectRatio="none" role="img"'
        f' aria-label="offsets {one.start} to {one.end} of {escape(one.name)}">',
        f'<rect class="bg" width="{width}" height="{_HEIGHT}" fill="#f4f6f7"/>',
    ]
    for number, cell in enumerate(one.strip):
        total = sum(cell.values())
        first = one.start + number * per_cell
        counts = ", ".join(f"{cell[name]:,} {name}" for name in CLASSES if cell.get(name))
        parts.append(f"<g><title>from offset {first:,}: {counts}</title>")
        top = float(_HEIGHT)
        for name in CLASSES:
            if cell.get(name):
                height = _HEIGHT * cell[name] / total
                top -= height
                x = number * _CELL
                parts.append(
                    f'<rect x="{x}" y="{top:.2f}" width="{_CELL}" height="{height:.2f}" fill="{COLOURS[name]}"/>'
                )
        parts.append("</g>")
    for fault in one.faults:
        x = min(max(0, fault.offset - one.start) // per_cell, count - 1) * _CELL
        parts.append(
            f'<rect x="{x}" y="{_HEIGHT + 1}" width="{_CELL}" height="{_TICK - 1}" fill="{FAULT}">'
            f"<title>{escape(fault.what)}</title></rect>"
        )
    parts.append("</svg>")
    return "".join(parts)


def _partition(one: PartitionReport) -> str:
    lines = [f"<h2>{escape(one.name)}</h2>", strip_svg(one)]
    lines += _list("Faults", map(str, one.faults), "broken")
    if one.faults_in_all > len(one.faults):
        lines.append(f'<p class="broken">and {one.faults_in_all - len(one.faults):,} more</p>')
    lines += _list("What follows, and what to do", one.meanings(), "broken")
    lines += _list("Explained holes", (f"{h.first:,} to {h.last:,}: {h.why}" for h in one.holes))
    lines += _list(
        "Open transactions",
        (
            f"producer {o.producer_id} epoch {o.producer_epoch} since offset {o.first_offset:,},"
            f" {counted(o.records, 'record')}: {o.why}"
            for o in one.open
        ),
    )
    lines += _list("Notes", one.notes)
    return "\n".join(lines)


def _list(title: str, items: Iterable[str], kind: str = "quiet") -> list[str]:
    entries = [f"<li>{escape(item)}</li>" for item in items]
    return [f'<div class="{kind}">{title}<ul>{"".join(entries)}</ul></div>'] if entries else []


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def cells(row: Sequence[object], tag: str) -> str:
        shown = (f"{value:,}" if isinstance(value, int) else escape(str(value)) for value in row)
        return "".join(f"<{tag}>{text}</{tag}>" for text in shown)

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{cells(head, 'th')}</tr>{body}</table>"
