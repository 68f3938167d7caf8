"""The compiled record code, where a C compiler was there when this was installed; all of it may answer None."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from fencepost.protocol.batch_header import Buffer
from fencepost.protocol.column_types import Column, Lists

INTERFACE: int
R = TypeVar("R", bound=tuple[object, ...])
Columns = tuple[int, bytearray, bytearray, bytearray, Column | None, Column | None, Lists | None]
Span = tuple[int, int, int, int, int, int, int]

def decode(
    data: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    stamp: int | None,
    kind: type[R],
    prefix: tuple[object, ...],
    /,
) -> list[R] | None: ...
def encode(
    records: Iterable[object], base_timestamp: int, base_offset: int, kind: type[tuple[object, ...]], reserve: int, /
) -> tuple[bytearray, int, int] | None: ...
def columns(
    data: Buffer,
    batches: list[Span],
    first_offset: int,
    stop_offset: int,
    key: bool,
    value: bool,
    headers: bool,
    allocate: Callable[[int], Buffer],
    /,
) -> Columns | None: ...
