"""How many cores `--cores` means."""

import os
import re

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli
from fencepost.cli.serve_cores import count_cores


def refusal(*words: str) -> str:
    """The output of a start that is refused because of its options, in one line."""
    found = CliRunner().invoke(cli, ["serve", "--memory", *words])
    assert found.exit_code == 2
    return re.sub(r"\W*\s+\W*", " ", found.output)


def test_a_system_without_fork_has_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Windows: a clear word, and `auto` is one."""
    monkeypatch.delattr(os, "fork")
    assert "which Windows cannot" in refusal("--cores", "2")
    assert count_cores("auto") == count_cores("1") == 1


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_what_is_no_number_of_cores_is_refused(text: str) -> None:
    assert "neither a number of cores nor auto" in refusal("--cores", text)


def test_auto_is_what_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cpuset of a container or a unit restricts it; a quota of CPU time does not."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 5}, raising=False)
    monkeypatch.setattr(os, "fork", lambda: 0, raising=False)
    assert count_cores("auto") == 3
