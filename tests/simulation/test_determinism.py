"""Virtual time: naps and trio's own sleeps end when they should, in one order, and can be cancelled."""

import contextlib
import math
import threading
import time
from functools import partial

import pytest
import trio

from tests.kit.determinism import Endless, ends_within, nap, run_seeded
from tests.kit.sim_network import ClearWeather, SimNetwork


def test_naps_and_sleeps_end_at_their_time_and_in_its_order() -> None:
    woken: list[tuple[float, str]] = []

    async def wake(how: str, seconds: float) -> None:
        await (nap if how == "nap" else trio.sleep)(seconds)
        woken.append((trio.current_time(), how))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for seconds in (3.0, 1.0, 2.0):
                nursery.start_soon(wake, "nap", seconds)
                nursery.start_soon(wake, "sleep", seconds + 0.5)

    run_seeded(0, main)
    assert woken == [(1.0, "nap"), (1.5, "sleep"), (2.0, "nap"), (2.5, "sleep"), (3.0, "nap"), (3.5, "sleep")]


def test_a_nap_is_cancelled_like_a_sleep_and_wakes_no_task_later() -> None:
    async def main() -> float:
        with trio.move_on_after(1.0) as scope:
            await nap(5.0)
        assert scope.cancelled_caught
        await nap(10.0)
        return trio.current_time()

    assert run_seeded(0, main) == 11.0


def test_no_time_is_a_checkpoint_and_real_time_works_too() -> None:
    async def main() -> float:
        before = trio.current_time()
        await nap(0.0)
        await nap(0.01)
        return trio.current_time() - before

    assert run_seeded(0, main) == 0.01
    assert trio.run(main) >= 0.01


def test_no_answer_comes_where_no_broker_is() -> None:
    """A call is refused, as a socket would be."""

    async def main() -> str:
        async with trio.open_nursery() as nursery:
            network = SimNetwork(nursery, ClearWeather())
            try:
                await network.call("somebody")
            except ConnectionRefusedError as error:
                return str(error)
        return ""

    assert "refused" in run_seeded(0, main)


def test_a_loop_in_another_thread_takes_nothing_of_a_seeds_chance() -> None:
    """trio has one source of chance for all loops of a process, and a blocking client's loop lives in a thread."""
    over = threading.Event()
    turns = threading.Semaphore(0)

    async def restless() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(_turn, over, turns)

    async def orders() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []

        async def step(number: int) -> None:
            for turn in range(200):
                seen.append((turn, number))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(step, number)
        return seen

    alone = run_seeded(7, orders)
    thread = threading.Thread(target=trio.run, args=(restless,), daemon=True)
    thread.start()
    try:
        for _ in range(5):
            turns.acquire()  # it does take turns
            assert run_seeded(7, orders) == alone
    finally:
        over.set()
        thread.join()


async def _turn(over: threading.Event, turns: threading.Semaphore) -> None:
    while not over.is_set():
        turns.release()
        await trio.lowlevel.checkpoint()


def test_a_loop_that_lets_nothing_else_run_is_ended() -> None:
    """As a fetch did that read again and again: time stood still, so a whole search for faults did, too."""

    async def spin() -> None:
        while True:
            with contextlib.suppress(Exception):
                math.factorial(20)

    def run() -> None:
        with ends_within(0.2):
            run_seeded(1, spin)

    with pytest.raises(Endless, match=r"did not end within 0\.2 s"):
        run()


def test_what_ends_in_time_is_left_alone() -> None:
    with ends_within(0.3):
        run_seeded(1, partial(trio.sleep, 1000))
    until = time.process_time() + 0.4
    while time.process_time() < until:
        math.factorial(20)
