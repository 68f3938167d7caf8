"""The programs of docs/queues.md, as they stand there: each in a process of its own, against a broker."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fencepost.client.config import QueueConfig
from fencepost.client.config_parsing import defaults_of
from fencepost.sync import Client
from tests.architecture.project_files import ROOT
from tests.kit.broker_process import BrokerProcess

PAGE = (ROOT / "docs" / "queues.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SENDER, FIRST, EXACTLY_ONCE, RETRIES, SCHEDULER, WORKERS, BLOCKING = PROGRAMS
WAIT_S = 60
WRITTEN = "127.0.0.1:9092"
UNSTABLE = {"unstable.api.versions.enable": "true"}
ORDERS = ("tea", "bread", "salt")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """All that work on messages, begun together; the page's sender has run before, in this process."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings=UNSTABLE) as broker, ExitStack() as stack:
        address = broker.address
        exec(compile(SENDER.replace(WRITTEN, address), "docs/queues.md", "exec"), {})
        with Client(address) as kafka, kafka.admin() as admin:
            for group in ("billing", "checkers", "cooks", "printers"):
                admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group=group)
            admin.create_topics("invoices")
        begun: dict[str, subprocess.Popen[str]] = {}
        for program in (FIRST, EXACTLY_ONCE, RETRIES, WORKERS, BLOCKING):
            path = tmp_path_factory.mktemp("program") / "program.py"
            path.write_text(program.replace(WRITTEN, address), encoding="utf-8")
            command, environment = [sys.executable, str(path)], {**os.environ, "PYTHONPATH": str(ROOT)}
            begun[program] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            stack.enter_context(begun[program])
            stack.callback(begun[program].kill)
        yield begun


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker on which the page's program has scheduled records."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        exec(compile(SCHEDULER.replace(WRITTEN, broker.address), "docs/queues.md", "exec"), {})
        yield broker.address


def test_the_program_that_schedules(scheduled: str) -> None:
    sent_at = time.monotonic()
    with Client(scheduled) as kafka:
        with kafka.admin() as admin:
            admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group="reminders")
        with kafka.queue("reminders", group="reminders", fetch_max_wait=0.1) as queue:
            message = next(iter(queue))
            with message:
                assert (message.value, message.delivery_count) == (b"in two seconds", 1)
    assert 0.5 < time.monotonic() - sent_at < WAIT_S


def lines_of(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip() for _ in range(count)]


def test_the_first_program(programs: dict[str, "subprocess.Popen[str]"]) -> None:
    assert lines_of(programs[FIRST], 3) == [f"b'{order}' delivery 1" for order in ORDERS]


def test_the_program_of_exactly_once(programs: dict[str, "subprocess.Popen[str]"]) -> None:
    assert lines_of(programs[EXACTLY_ONCE], 3) == [f"billed: b'{order}'" for order in ORDERS]


def test_the_program_with_retries(programs: dict[str, "subprocess.Popen[str]"]) -> None:
    assert lines_of(programs[RETRIES], 4) == [
        "b'tea' delivery 1",
        "b'bread' delivery 1",
        "again later: the warehouse does not answer",
        "b'salt' delivery 2",
    ]


@pytest.mark.parametrize("program", [WORKERS, BLOCKING], ids=["run", "blocking"])
def test_the_programs_that_sigterm_stops(program: str, programs: dict[str, "subprocess.Popen[str]"]) -> None:
    process = programs[program]
    assert sorted(lines_of(process, 3)) == sorted(f"done: b'{order}'" for order in ORDERS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    assert process.stdout is not None
    assert process.stdout.read() == ("stopped\n" if program == WORKERS else "")


def test_the_options_have_the_defaults_of_the_page() -> None:
    shown = defaults_of(QueueConfig)
    assert (shown["max_in_flight"], shown["retry_delay"], shown["retry_delay_max"]) == ("100", "1 s", "60 s")
    table = PAGE.split("## Options")[1]
    assert [name for name in shown if not name.endswith("deserializer") and f"`{name}`" not in table] == []
