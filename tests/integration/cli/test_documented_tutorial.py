"""docs/tutorial.md as a reader spends it: its commands by one bash, in an empty directory, with its two kills."""

import re
import time
from pathlib import Path
from subprocess import Popen

import pytest

from fencepost.testing.reserved_port import reserve_port
from tests.architecture.project_files import ROOT
from tests.kit.shell import run, shell

pytestmark = pytest.mark.long
DOCUMENT = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PREPARE, START, KILL, LOOK, AGAIN, KILL_BROKER, END, COUNT, ABORTED, CHECK = re.findall(
    r"^```sh\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL
)
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
COMMITTED = "committed up to order "
WAIT_S = 100.0
ORDERS = "450"
"""Fewer than the page has, and slower: then a kill has more room in a transaction."""


class Owner:
    """Reserves a port while it exists."""

    def __init__(self) -> None:
        self.port = reserve_port(self, "127.0.0.1")


def read_until(bash: Popen[str], enough: str) -> list[str]:
    """The lines of the program in the background, up to the one with what is waited for."""
    assert bash.stdout is not None
    ends = time.monotonic() + WAIT_S
    lines = [""]
    while enough not in lines[-1]:
        lines.append(bash.stdout.readline())
        assert lines[-1]
        assert time.monotonic() < ends, lines
    return lines


def last_order(lines: list[str]) -> int:
    return int(lines[-1].rpartition(" ")[2])


def test_the_ten_minutes(tmp_path: Path) -> None:
    """Both kills fall into an open transaction, and each order has one invoice."""
    owner = Owner()

    def adapted(text: str) -> str:
        slower = text.replace("asyncio.sleep(0.01)", "asyncio.sleep(0.04)").replace("1000", ORDERS)
        return slower.replace("127.0.0.1:9092", f"127.0.0.1:{owner.port}")

    (tmp_path / "bill.py").write_text(adapted(PROGRAM))
    with shell(tmp_path) as bash:
        run(bash, adapted(PREPARE))
        run(bash, START)
        read_until(bash, COMMITTED)
        lines = read_until(bash, COMMITTED)
        time.sleep(1)  # a transaction takes two seconds here, so the kill falls into one also on a busy machine
        run(bash, KILL)
        looked = run(bash, LOOK)
        assert re.search(r"^billing-1 .* Ongoing ", looked, re.MULTILINE), looked
        committed, with_open = map(int, re.findall(r"^(\d+)$", looked, re.MULTILINE))
        assert committed == last_order(lines)
        assert committed % 50 == 0
        assert with_open > committed
        run(bash, AGAIN)
        assert last_order(read_until(bash, COMMITTED)) == committed + 50, "it continues behind the last commit"
        time.sleep(1)
        run(bash, adapted(KILL_BROKER))
        lines = read_until(bash, f"{COMMITTED}{ORDERS}\n")
        assert not any("aborted" in line for line in lines), "it continues in the same transaction"
        ended = run(bash, END)
        assert "billing: 0 records to come" in ended, ended
        counted = run(bash, adapted(COUNT))
        assert "each order has one invoice\n" in counted, counted
        aborted = run(bash, ABORTED)
        assert "aborted" in aborted, aborted
        checked = run(bash, CHECK)
        assert "0 damaged, 0 warnings" in checked, checked
    found = "data had an unclean shutdown: each partition is checked when it is opened"
    assert found in DOCUMENT
    assert found in (tmp_path / "broker.log").read_text()
