"""Rows of a cluster's log with real batches."""

import random
from collections.abc import Sequence

from fencepost.broker.cluster.engine import Placement, Row, RowKind
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.record_batch import build_batch

EPOCH = 5
CHANCE = random.Random(20261124)


def batch(records: int, size: int = 10) -> bytes:
    """As a producer sends it: the first offset is 0."""
    return bytes(build_batch([(1000, None, CHANCE.randbytes(size), ()) for _ in range(records)]))


def run_of(base: int, batches: Sequence[bytes], place: Placement) -> Row:
    count = sum(header.last_offset_delta + 1 for one in batches for _, header in iter_headers(one))
    return Row(base, count, RowKind.RUN, EPOCH, place, 1000, len(batches), (), b"", b"")
