"""What DumpLogSegments prints, read strictly: a line of a kind that is not known here is a complaint of the tool's."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) baseSequence: (?P<sequence>-?\d+)"
    r" lastSequence: -?\d+ producerId: (?P<pid>-?\d+) producerEpoch: (?P<epoch>-?\d+) partitionLeaderEpoch: -?\d+"
    r" isTransactional: (?P<txn>true|false) isControl: (?P<control>true|false)"
    r" deleteHorizonMs: OptionalLong(?P<horizon>\S+) position: (?P<position>\d+)"
    r" (?:CreateTime|LogAppendTime|NoTimestampType): -?\d+ size: (?P<size>\d+) magic: 2"
    r" compresscodec: (?P<codec>\w+) crc: \d+ isvalid: true"
)
_MARKER = re.compile(r"\| offset: (\d+) .*endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (\d+)")
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:CreateTime|LogAppendTime): -?\d+ keySize: -?\d+ valueSize: -?\d+"
    r" sequence: -?\d+ headerKeys: \[.*?\](?: key: (?P<key>.*?))?(?: payload: (?P<payload>.*))?"
)
_TXN = re.compile(r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
_PRODUCER = re.compile(
    r"producerId: (?P<pid>\d+) producerEpoch: (?P<epoch>-?\d+) coordinatorEpoch: (?P<coordinator>-?\d+)"
    r" currentTxnFirstOffset: OptionalLong(?:\.empty|\[(?P<begun>\d+)\]) lastTimestamp: (?P<time>-?\d+)"
    r"(?: firstSequence: (?P<first>-?\d+) lastSequence: (?P<sequence>-?\d+) lastOffset: (?P<offset>-?\d+)"
    r" offsetDelta: (?P<delta>-?\d+) timestamp: (?P<batch_time>-?\d+))?"
)
_INDEX = re.compile(r"(offset: \d+ position: \d+|timestamp: -?\d+ offset: \d+)")
_SAID = re.compile(r"(Log starting offset: \d+|\S+ passed sanity check\.|\S+\.index is empty\.|)")


@dataclass(slots=True)
class DumpedFile:
    """One file as the tool sees it."""

    batches: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    """Data records in order, each with its `batch`."""
    markers: Counter[str] = field(default_factory=Counter)
    entries: int = 0
    """Lines of an index."""
    aborted: list[tuple[int, ...]] = field(default_factory=list)
    """Producer id, first offset, last offset, last stable offset."""
    producers: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Dumped:
    """A whole run of the tool."""

    files: dict[str, DumpedFile] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def read_dump(text: str) -> Dumped:
    """Understand every line, or keep it as a complaint."""
    dumped = Dumped()
    file = DumpedFile()
    for line in text.split("\n"):
        line = line.strip()
        if line.startswith("Dumping "):
            file = dumped.files[line.removeprefix("Dumping ")] = DumpedFile()
        elif not _take(file, line):
            dumped.complaints.append(line)
    return dumped


def newest_by_key(dumped: Dumped) -> dict[str, str]:
    """The last payload of each key that a read_committed reader of all these files sees."""
    undecided: dict[str, dict[str, tuple[int, str]]] = {}
    newest: dict[str, tuple[int, str]] = {}
    for file in dumped.files.values():
        records = iter(file.records)
        for batch in file.batches:
            own = [next(records) for _ in range(0 if batch["control"] == "true" else int(batch["count"]))]
            pairs = {record["key"]: (int(record["offset"]), record["payload"] or "") for record in own}
            if batch["control"] == "true":
                ended = undecided.pop(batch["pid"], {})
                pairs = ended if batch.get("marker") == "COMMIT" else {}
            elif batch["txn"] == "true":
                undecided.setdefault(batch["pid"], {}).update(pairs)
                continue
            newest |= {key: pair for key, pair in pairs.items() if newest.get(key, (-1,)) < pair}
    return {key: payload for key, (_, payload) in newest.items()}


def _take(file: DumpedFile, line: str) -> bool:
    if found := _BATCH.fullmatch(line):
        file.batches.append(found.groupdict())
    elif found := _MARKER.fullmatch(line):
        file.markers[found[2]] += 1
        file.batches[-1]["marker"] = found[2]
    elif found := _RECORD.fullmatch(line):
        file.records.append({**found.groupdict(), "batch": file.batches[-1]})
    elif found := _TXN.fullmatch(line):
        file.aborted.append(tuple(map(int, found.groups())))
    elif found := _PRODUCER.fullmatch(line):
        file.producers.append(found.groupdict())
    elif _INDEX.fullmatch(line):
        file.entries += 1
    else:
        return _SAID.fullmatch(line) is not None
    return True
