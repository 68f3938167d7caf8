"""The blocking client and what happens to processes: Ctrl-C at any place, forks, an end without closing."""

import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

import fencepost

CTRL_C = """
import sys
from fencepost.sync import Client

address, name, where = sys.argv[1:]
with Client(address) as kafka:
    with kafka.admin() as admin:
        admin.create_topics(name, partitions=1)
    with kafka.consumer(name) as consumer, kafka.transactional_producer(name) as producer:
        try:
            with producer.transaction() as txn:
                txn.send(name, b"never")
                producer.flush()
                print("open", flush=True)
                if where == "in a call":
                    next(iter(consumer))       # waits for ever: what is open is not visible
                while True:
                    pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        with kafka.admin() as admin:
            print(admin.describe_transactions(name)[name].state, flush=True)
"""

FORK = """
import os, sys
from fencepost.sync import Client

address, name = sys.argv[1:]
with Client(address) as kafka, kafka.admin() as admin:
    before = admin.list_topics()
    child = os.fork()
    if not child:
        try:
            admin.list_topics()
        except RuntimeError as error:
            print("child:", error, flush=True)
        with Client(address) as own, own.admin() as fresh:
            print("its own:", isinstance(fresh.list_topics(), list), flush=True)
        os._exit(7)
    print("exit code:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    print("parent:", isinstance(admin.list_topics(), list), flush=True)
    if not os.fork():
        try:
            kafka.__exit__(None, None, None)
        except RuntimeError as error:
            print("leaving:", "fork" in str(error), flush=True)
        os._exit(0)
    os.wait()
"""

LEFT_OPEN = """
import sys
from fencepost.sync import Client

kafka = Client(sys.argv[1]).__enter__()
print(isinstance(kafka.admin().__enter__().list_topics(), list), flush=True)
"""


STORM = """
import os, random, signal, sys, threading, time
from fencepost import OutcomeUnknownError, TopicPartition
from fencepost.sync import Client, TimedOutError, fail_after

address, name = sys.argv[1:]
committed, open_at, interrupts, over, armed = set(), set(), 0, threading.Event(), False

def interrupt(*_):                      # Ctrl-C, but not in the lines of this program that are no part of the test
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)

def storm():
    pauses = random.Random(7)
    while not over.wait(pauses.uniform(0.005, 0.06)):
        os.kill(os.getpid(), signal.SIGINT)

with Client(address) as kafka:
    with kafka.admin() as admin:
        admin.create_topics(name, partitions=1)
    with kafka.transactional_producer(name) as producer:
        thread = threading.Thread(target=storm)
        thread.start()
        turn, end = 0, time.monotonic() + 4
        while time.monotonic() < end or interrupts <= 10:
            turn += 1
            try:
                try:
                    armed = True
                    with producer.transaction() as txn:
                        open_at.add(turn)
                        for n in range(5):
                            txn.send(name, b"%d" % turn)
                    committed.add(turn)
                finally:
                    armed = False
            except KeyboardInterrupt:
                interrupts += 1
            except RuntimeError:
                pass                    # two in a row: the abort of the last one is still under way
            except OutcomeUnknownError:
                producer.reinitialise() # there or not, as a whole
        over.set()
        thread.join()
    seen = {}
    with kafka.consumer(name) as consumer:
        here = TopicPartition(name, 0)
        batches, end = consumer.batches(), consumer.end_offsets()[here]
        while consumer.position(here) < end:
            try:
                with fail_after(0.5):   # the last may be a marker, behind which no record comes
                    for record in next(batches):
                        seen[int(record.value)] = seen.get(int(record.value), 0) + 1
            except TimedOutError:
                pass
print(interrupts > 10, set(seen.values()) == {5}, committed <= set(seen) <= open_at, flush=True)
"""


# Whoever runs the tests in the background ignores Ctrl-C, and so would every process that comes of it.
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def run(program: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", HEED + program, *words], stdout=subprocess.PIPE, text=True)


def finished(process: "subprocess.Popen[str]") -> Sequence[str]:
    """What it printed; it has to end well."""
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0, out
    return out.splitlines()


@pytest.mark.parametrize("where", ["in a call", "in the program"])
def test_ctrl_c_aborts_the_transaction(address: str, name: str, where: str) -> None:
    process = run(CTRL_C, address, name, where)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    process.send_signal(signal.SIGINT)
    interrupted, state = finished(process)
    assert interrupted == "interrupted"
    assert state in ("CompleteAbort", "PrepareAbort", "Empty")


async def test_after_ctrl_c_nothing_is_left_open(address: str, name: str) -> None:
    process = run(CTRL_C, address, name, "in a call")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    process.send_signal(signal.SIGINT)
    finished(process)
    async with fencepost.Client(address) as kafka, kafka.admin() as admin:
        assert name not in {one.transactional_id for one in await admin.list_transactions(states="Ongoing")}


def test_a_storm_of_ctrl_c_cuts_no_transaction(address: str, name: str) -> None:
    """Whatever moment it comes at: each transaction is there as a whole or not at all, and what committed is there."""
    assert finished(run(STORM, address, name)) == ["True True True"]


def test_a_fork_is_told_to_open_its_own(address: str, name: str) -> None:
    child, own, code, parent, leaving = finished(run(FORK, address, name))
    assert "belongs to process" in child
    assert "Open a Client of its own in each process" in child
    assert own == "its own: True"
    assert code == "exit code: 7"
    assert parent == "parent: True"
    assert leaving == "leaving: True"


def test_a_program_may_end_without_closing(address: str) -> None:
    assert finished(run(LEFT_OPEN, address)) == ["True"]
