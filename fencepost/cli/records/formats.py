"""How records are written to standard output: kcat's formats, or one JSON object for each record."""

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.protocol.records import Record
    from fencepost.protocol.topics import TopicPartition

Writer = Callable[["TopicPartition", "Sequence[Record]"], bytes]
"""The bytes of some records of one partition, in order."""
_Part = Callable[["TopicPartition", "Record"], bytes]

_SIMPLE_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_TOKEN = re.compile(r"%(.)", re.DOTALL)


def unescaped(text: str) -> bytes:
    r"""The bytes of a text with \n, \r, \t, \0, \\ and \xNN. Raises ValueError for another escape."""
    found, at = [], 0
    for escape in _ESCAPE.finditer(text):
        found.append(text[at : escape.start()].encode())
        what = escape[1]
        if what not in _SIMPLE_ESCAPES and len(what) == 1:
            raise ValueError(rf"\{what} is unknown; there are \n, \r, \t, \0, \\ and \xNN")
        found.append(bytes([int(what[1:], 16)]) if len(what) > 1 else _SIMPLE_ESCAPES[what])
        at = escape.end()
    return b"".join([*found, text[at:].encode()])


def json_lines(partition: "TopicPartition", records: "Sequence[Record]") -> bytes:
    """One line for each record, with kcat's names.

    Bytes that are no UTF-8 have another name: `payload_base64`, `key_base64`.
    """
    lines = []
    for offset, timestamp_ms, key, value, headers in records:
        line: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        line["ts"] = timestamp_ms
        if headers:
            line["headers"] = [part for name, content in headers for part in (name, _lossy(content))]
        line |= _named("key", key) | _named("payload", value)
        lines.append(json.dumps(line, ensure_ascii=False))
    return "\n".join([*lines, ""]).encode()


def _named(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _lossy(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def values(delimiter: bytes, null: bytes) -> Writer:
    """Values alone, each followed by the delimiter."""

    def write(partition: "TopicPartition", records: "Sequence[Record]") -> bytes:
        found = [null if record[3] is None else record[3] for record in records]
        found.append(b"")
        return delimiter.join(found)

    return write


def keys_and_values(between: bytes, delimiter: bytes, null: bytes) -> Writer:
    """Keys and values, each pair followed by the delimiter."""
    return _writer([_key(null), _constant(between), _value(null), _constant(delimiter)])


def formatted(text: str, null: bytes) -> Writer:
    """kcat's format. Raises ValueError for a token or an escape that it does not have."""
    parts: list[_Part] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(_constant(unescaped(text[at : token.start()])))
        parts.append(_part(token[1], null))
        at = token.end()
    if text[at:].endswith("%"):
        raise ValueError("% at the end is no token; write %% for a percent sign")
    parts.append(_constant(unescaped(text[at:])))
    return _writer(parts)


def _writer(parts: list[_Part]) -> Writer:
    def write(partition: "TopicPartition", records: "Sequence[Record]") -> bytes:
        return b"".join([part(partition, record) for record in records for part in parts])

    return write


def _constant(content: bytes) -> _Part:
    return lambda partition, record: content


def _key(null: bytes) -> _Part:
    return lambda partition, record: null if record.key is None else record.key


def _value(null: bytes) -> _Part:
    return lambda partition, record: null if record.value is None else record.value


def _part(token: str, null: bytes) -> _Part:
    parts: dict[str, _Part] = {
        "%": _constant(b"%"),
        "s": _value(null),
        "k": _key(null),
        "S": lambda partition, record: _size(record.value),
        "K": lambda partition, record: _size(record.key),
        "R": lambda partition, record: len(record.value or b"").to_bytes(4, "big"),
        "t": lambda partition, record: partition.topic.encode(),
        "p": lambda partition, record: b"%d" % partition.partition,
        "o": lambda partition, record: b"%d" % record.offset,
        "T": lambda partition, record: b"%d" % record.timestamp_ms,
        "h": lambda partition, record: b",".join(_header(name, content) for name, content in record.headers),
    }
    if token not in parts:
        raise ValueError(f"%{token} is unknown; there are {', '.join(f'%{name}' for name in parts)}")
    return parts[token]


def _size(content: bytes | None) -> bytes:
    return b"-1" if content is None else b"%d" % len(content)


def _header(name: str, content: bytes | None) -> bytes:
    return name.encode() + b"=" + (b"NULL" if content is None else content)
