"""Memory of large answers that is used again: never while anything refers to it, and never more than is promised."""

import gc
import os
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import fencepost
from fencepost.client.network import frames
from fencepost.client.network.frames import LARGE_BYTES, FramePool
from tests.kit.certificates import Authority
from tests.kit.fetch_broker import FetchBroker, ScriptedCluster
from tests.kit.scripted_broker import ScriptedBroker

FRAME = 1 << 20


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def as_view(frame: memoryview) -> Any:
    return frame


def as_part(frame: memoryview) -> Any:
    return frame[1000:2000].toreadonly()


def as_numpy(frame: memoryview) -> Any:
    return np.frombuffer(frame, np.uint8)[7:]


def as_arrow(frame: memoryview) -> Any:
    return pa.Array.from_buffers(pa.uint8(), 100, [None, pa.py_buffer(frame)])


def as_object(frame: memoryview) -> Any:
    return frame.obj


HOLDERS = [as_view, as_part, as_numpy, as_arrow, as_object]


@pytest.mark.parametrize("hold", HOLDERS)
def test_a_block_is_used_again_only_when_nothing_refers_to_it(hold: Any) -> None:
    pool = FramePool()
    first = pool.take(FRAME)
    where, held = address(first), hold(first)
    del first
    other = pool.take(FRAME)
    assert address(other) != where
    del held
    assert address(pool.take(FRAME - 10)) == where, "and for an answer of another size"
    assert pool.kept_bytes == 2 * FRAME


@given(
    st.lists(
        st.tuples(st.integers(LARGE_BYTES - 1, 3 * LARGE_BYTES), st.sampled_from([None, *HOLDERS]), st.integers(0, 5)),
        max_size=40,
    )
)
def test_what_is_held_stays_equal_and_what_is_kept_stays_bounded(steps: list[tuple[int, Any, int]]) -> None:
    """Frames come, parts of them are held by somebody for a while or for ever, later ones are written over and over."""
    pool = FramePool(6 * LARGE_BYTES)
    held: list[tuple[Any, bytes]] = []
    for number, (size, hold, dropped) in enumerate(steps):
        frame = pool.take(size)
        assert len(frame) == size
        assert len(frame.obj) <= size + max(size // 8, 4096), "little is spare"
        frame[:] = bytes([number + 1]) * size
        if hold is not None:
            kept = hold(frame)
            held.append((kept, bytes(as_bytes(kept))))
        del frame
        del held[:dropped]
        assert pool.kept_bytes <= 6 * LARGE_BYTES
        assert all(as_bytes(kept) == content for kept, content in held)


def as_bytes(kept: Any) -> bytes:
    return bytes(kept.buffers()[1]) if isinstance(kept, pa.Array) else bytes(memoryview(kept))


def test_a_pool_whose_blocks_are_all_held_goes_on_with_others() -> None:
    """A program may hold its arrays for ever: those blocks leave the pool, and it is none the larger."""
    pool = FramePool(4 * FRAME)
    for_ever = [pool.take(FRAME) for _ in range(20)]
    assert len({address(frame) for frame in for_ever}) == 20
    assert pool.kept_bytes <= 4 * FRAME
    assert len(pool.take(50 << 20)) == 50 << 20
    assert pool.kept_bytes <= 4 * FRAME, "a giant is not kept at all"


@pytest.fixture
def small_pool(monkeypatch: pytest.MonkeyPatch) -> FramePool:
    pool = FramePool()
    monkeypatch.setattr("fencepost.client.network.connection.FRAMES", pool)
    return pool


@pytest.fixture
def tls(tmp_path: Any) -> Authority:
    return Authority(tmp_path)


async def test_memory_is_free_again_without_the_garbage_collector(nursery: trio.Nursery, small_pool: FramePool) -> None:
    """A circle of a request and its response would keep each frame until the collector comes."""
    broker = ScriptedBroker(partitions=20_000)
    await nursery.start(broker.serve)
    async with fencepost.Client(broker.address) as kafka:
        gc.disable()
        try:
            kept = []
            for _ in range(3):
                await kafka._cluster.refresh(["t"])
                kept.append(small_pool.kept_bytes)
        finally:
            gc.enable()
    assert LARGE_BYTES < kept[0] == kept[2]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_what_a_program_holds_stays_equal_after_later_fetches(
    nursery: trio.Nursery, small_pool: FramePool, tls: Authority, secure: bool
) -> None:
    """Arrays, and the raw bytes of answers, which are views of the frames themselves."""
    cluster = ScriptedCluster()
    broker = FetchBroker(cluster)
    await nursery.start(partial(broker.serve, tls=tls.server_context() if secure else None))
    options: Any = {"security_protocol": "ssl", "ssl_cafile": str(tls.ca)} if secure else {}
    written = [os.urandom(300_000) for _ in range(24)]
    for value in written:
        cluster.write(0, [value])
    taken: list[int] = []
    take = small_pool.take

    def noted(size: int) -> memoryview:
        frame = take(size)
        if size >= LARGE_BYTES:
            taken.append(address(frame))
        return frame

    small_pool.take = noted  # type: ignore[method-assign]
    async with fencepost.Client(broker.address, **options) as kafka:
        async with kafka.consumer("t", max_partition_fetch_bytes=400_000) as consumer:
            found: list[pa.RecordBatch] = []
            with trio.fail_after(100):
                async for batch in consumer.arrow():
                    found.append(batch)
                    if sum(entry.num_rows for entry in found) == len(written):
                        break
        assert len(set(taken)) < len(taken), "memory was used again"
        assert pa.Table.from_batches(found)["value"].to_pylist() == written
        raws: list[tuple[memoryview, bytes]] = []
        async with kafka.consumer("t", max_partition_fetch_bytes=400_000) as consumer:
            consumer._reader.keep_all()
            with trio.fail_after(100):
                reached = 0
                while reached < len(written):
                    raw = await consumer._reader.next_raw()
                    raws.append((memoryview(raw.buffer), bytes(raw.buffer)))
                    reached = raw.next_offset
        assert all(held == copied for held, copied in raws)
        assert b"".join(copied for _, copied in raws) == b"".join(cluster.logs[0].batches)
        assert small_pool.kept_bytes <= frames.MOST_BYTES
