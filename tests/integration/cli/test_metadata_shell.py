"""`fencepost metadata-shell` on the directories of living, stopped and killed brokers (rows M2, M6)."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.broker.log.recovery.scanning import batches
from fencepost.broker.log.verify.files import ReadSegment
from fencepost.broker.metadata.reader import MetadataReader
from fencepost.cli.main import cli
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json, whom_to_ask

METADATA = "__cluster_metadata-0"
HEED = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from fencepost.__main__ import main; main()"
)
"""Who runs the tests in the background ignores Ctrl-C, and so would every process that comes of it."""
PLAN = "".join(f"[topics.many-{number}]\npartitions = 100\n" for number in range(120))
"""More records than fit one append (10,000): Begin, several batches, End."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A living broker with a topic that has a past."""
    work_dir = tmp_path_factory.mktemp("shell")
    with BrokerProcess(work_dir, data_dir=work_dir / "data") as running:
        command(running, "topic", "create", "orders", "-p", "3", "--set", "retention.ms=1000")
        command(running, "topic", "add-partitions", "orders", "--by", "1")
        command(running, "config", "set", "topic", "orders", "retention.ms=2000")
        command(running, "config", "set", "group", "a/b", "consumer.session.timeout.ms=50000")
        command(running, "topic", "create", "gone")
        command(running, "topic", "delete", "gone")
        yield running


def shell(directory: Path | None, *words: str, typed: str | None = None) -> Result:
    """One command, or what is typed."""
    return CliRunner().invoke(cli, ["metadata-shell", str(directory), *words], input=typed)


def lines(broker: BrokerProcess, *words: str) -> list[str]:
    """What one command tells."""
    result = shell(broker.data_dir, *words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_metadata_of_a_living_broker_is_folders_and_values(broker: BrokerProcess) -> None:
    """Row M6: ls, cat, find and tree, while the broker runs."""
    assert lines(broker, "ls") == [
        "offset",
        *(f"{name}/" for name in ("topics", "topic-ids", "brokers", "groups", "client-metrics", "features")),
        *(f"{name}/" for name in ("producer-ids", "acls", "quotas", "scram")),
    ]
    assert lines(broker, "ls", "/topics") == ["__consumer_offsets/", "__transaction_state/", "orders/"]
    orders = json.loads("\n".join(lines(broker, "cat", "/topics/orders")))
    (told,) = command_json(broker, "topic", "describe", "orders")
    assert (orders["id"], orders["configs"]) == (told["topic_id"], {"retention.ms": "2000"})
    assert list(orders["partitions"]) == ["0", "1", "2", "3"]
    assert orders["partitions"]["3"]["isr"] == [1]
    assert lines(broker, "cat", f"/topic-ids/{told['topic_id']}") == ["orders"]
    assert lines(broker, "cat", "/topics/orders/configs/retention.ms") == ["2000"]
    assert lines(broker, "cat", "/groups/a%2Fb/configs/consumer.session.timeout.ms") == ["50000"]
    assert lines(broker, "find", "/topics", "retention*") == ["/topics/orders/configs/retention.ms"]
    assert lines(broker, "find", "*/orders/part*/[12]") == [f"/topics/orders/partitions/{n}" for n in (1, 2)]
    assert lines(broker, "tree", "/features")[1:] == [
        f"{'|' if last is False else '`'}-- {name}: {level}"
        for name, level, last in (
            ("group.version", 1, False),
            ("metadata.version", 25, False),
            ("share.version", 2, False),
            ("transaction.version", 2, True),
        )
    ]
    assert [line.split()[0] for line in lines(broker, "ls", "-l", "/topics/orders")] == [
        "id",
        "configs/",
        "partitions/",
    ]


def test_any_offset_can_be_looked_at(broker: BrokerProcess) -> None:
    """Row M6: the image as of an offset is that of what was committed below it."""
    found = [json.loads(line) for line in lines(broker, "history", "/topics/orders", "--json")]
    created, grown, changed = found
    assert [record["type"] for record in created["records"]][:2] == ["Topic", "Config"]
    before, then = str(created["first_offset"]), str(grown["first_offset"])
    assert "orders/" not in lines(broker, "--at", before, "ls", "/topics")
    assert lines(broker, "ls", "/topics/orders/partitions", "--at", then) == ["0", "1", "2"]
    last = str(changed["first_offset"])
    assert lines(broker, "--at", last, "cat", "/topics/orders/configs/retention.ms") == ["1000"]
    assert len(lines(broker, "--at", last, "ls", "/topics/orders/partitions")) == 4
    late = shell(broker.data_dir, "--at", before, "cat", "/topics/orders")
    assert (late.exit_code, late.stderr) == (1, "fencepost: there is no /topics/orders\n")


def test_history_tells_what_each_change_brought(broker: BrokerProcess) -> None:
    text = "\n".join(lines(broker, "history"))
    assert re.search(r"^0-\d+  \d{4}-\d\d-\d\d \S+Z  transaction 'Bootstrap records', \d+ records$", text, re.MULTILINE)
    assert re.search(
        r"^ +\d+  /topics/orders/partitions  0 to 2: leader 1, replicas \[1\], isr \[1\]$", text, re.MULTILINE
    )
    assert re.search(r"^ +\d+  /topics/orders/configs/retention.ms  = 2000$", text, re.MULTILINE)
    assert re.search(r"^ +\d+  /topics/gone  deleted$", text, re.MULTILINE)
    of_one = "\n".join(lines(broker, "history", "/topics/gone"))
    assert ("/topics/gone  created" in of_one, "/topics/orders" in of_one) == (True, False)


def test_commands_can_be_typed_one_after_the_other(broker: BrokerProcess) -> None:
    typed = (
        "ls topics\ncd topics/orders\npwd\ncat configs/retention.ms\ncat nope\nfly\nat 1\nls\nat end\nls\nexit\nls\n"
    )
    result = shell(broker.data_dir, typed=typed)
    assert result.exit_code == 0
    assert "there is no /topics/orders/nope" in result.stderr
    assert "'fly' is not a command" in result.stderr
    assert "there is no /topics" in result.stderr, "at offset 1 there was none"
    told = result.stdout.splitlines()
    assert told[:3] == ["__consumer_offsets/", "__transaction_state/", "orders/"]
    assert told[3].startswith("/topics/orders, at offset ")
    assert told[4:] == ["2000", "id", "configs/", "partitions/"]


class Following:
    """`metadata-shell ... --follow` in a process of its own, read line by line and ended by Ctrl-C."""

    def __init__(self, broker: BrokerProcess, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HEED, "metadata-shell", str(broker.data_dir), "--follow", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def line(self) -> str:
        """The next line that it tells."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def __enter__(self) -> "Following":
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self.code = self._process.wait(60)
        finally:
            self._process.kill()
            self._process.communicate()


def test_what_comes_is_followed(broker: BrokerProcess) -> None:
    """Row M6: --follow on a living directory; each change shows when it is decided."""
    with (
        Following(broker, "history", "/topics/followed") as history,
        Following(broker, "cat", "/topics/followed/configs/segment.bytes") as watched,
    ):
        assert watched.line().startswith("-- at offset ")
        assert watched.line() == "there is no /topics/followed"
        command(broker, "topic", "create", "followed", "--set", "segment.bytes=1048576")
        assert history.line().endswith(" records")
        assert "  /topics/followed  created" in history.line()
        assert watched.line().startswith("-- at offset ")
        assert watched.line() == "1048576"
        command(broker, "topic", "alter", "followed", "--set", "segment.bytes=2097152")
        assert watched.line().startswith("-- at offset ")
        assert watched.line() == "2097152"
    assert (history.code, watched.code) == (130, 130)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("fly",), 2, "'fly' is not a command; the commands are ls, cat, find, tree, history"),
        (("cat",), 2, "cat needs a path: cat PATH"),
        (("ls", "-x"), 2, "'-x' is not an option here: ls [-l]"),
        (("ls", "--follow", "--at", "3"), 2, "--follow shows future changes"),
        (("cat", "/offset", "--json"), 2, "--json needs history"),
        (("tree", "--depth", "x"), 2, "wrong arguments: tree"),
        (("ls", "/topics/orders/id/x"), 1, "there is no /topics/orders/id/x"),
    ],
)
def test_what_can_not_be_done_is_explained(broker: BrokerProcess, words: tuple[str, ...], code: int, says: str) -> None:
    result = shell(broker.data_dir, *words)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output


def test_who_has_read_enough_is_no_failure_to_read(broker: BrokerProcess) -> None:
    """As `... find | head -1`: the pipe is closed before all is written."""
    words = [sys.executable, "-m", "fencepost", "metadata-shell", str(broker.data_dir), "find"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as finding:
        assert finding.stdout is not None
        finding.stdout.close()
        assert finding.stderr is not None
        assert finding.stderr.read() == ""


def test_a_directory_without_metadata_is_told(tmp_path: Path) -> None:
    result = shell(tmp_path, "ls")
    assert (result.exit_code, "holds no metadata log" in result.stderr) == (1, True), result.output


# -- partial transactions


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    """A broker that was killed behind a plan which took several appends."""
    work_dir = tmp_path_factory.mktemp("planned")
    with BrokerProcess(work_dir, data_dir=work_dir / "data") as running:
        command(running, "topic", "create", "before")
        applied = CliRunner().invoke(cli, ["topic", "apply", "-", *whom_to_ask(running)], input=PLAN)
        assert applied.exit_code == 0, applied.output
        running.kill()
    return running


def _cuts(log: Path) -> list[int]:
    """Positions behind each batch of the plan's transaction but the last."""
    assert log.name == METADATA
    *_, plan = MetadataReader(log).moments()
    assert plan.in_transaction
    segment = ReadSegment(log, 0)
    found = []
    for position, header, _ in batches(segment, 0):
        if header.next_offset >= plan.next_offset:
            break  # behind it, room is reserved
        if header.base_offset >= plan.first_offset:
            found.append(position + header.size_bytes)
    segment.file.close()
    return found


def test_nothing_of_a_plan_shows_before_its_end(planned: BrokerProcess, tmp_path: Path) -> None:
    """Rows D9, M2 and M6: a kill between any two appends of a plan leaves nothing of it, for shell and broker."""
    assert planned.data_dir is not None
    cuts = _cuts(planned.data_dir / METADATA)
    assert cuts, "the plan took one append only"
    for number, cut in enumerate(cuts):
        killed = tmp_path / f"killed-{number}"
        (killed / METADATA).mkdir(parents=True)
        for name in ("meta.properties", f"{METADATA}/00000000000000000000.log", f"{METADATA}/partition.metadata"):
            shutil.copyfile(planned.data_dir / name, killed / name)
        os.truncate(killed / METADATA / "00000000000000000000.log", cut)
        topics = ["__consumer_offsets/", "__transaction_state/", "before/"]
        assert shell(killed, "ls", "/topics").stdout.splitlines() == topics
        hidden = shell(killed, "history")
        assert "many" not in hidden.stdout
        assert "1 aborted or open, not shown; --all shows them" in hidden.stderr
        assert re.search(r"transaction 'plan', \d+ records, OPEN\n", shell(killed, "history", "--all").stdout)
    with BrokerProcess(tmp_path, data_dir=tmp_path / f"killed-{len(cuts) - 1}") as again:
        assert [one["name"] for one in command_json(again, "topic", "list")] == ["before"]
        aborted = shell(again.data_dir, "history", "/topics/many-0", "--all").stdout
        assert re.search(r"transaction 'plan', \d+ records, ABORTED: Controller failover\n", aborted), aborted
        assert shell(again.data_dir, "ls", "/topics").stdout.splitlines() == topics


def test_a_broker_killed_in_the_middle_of_a_plan_has_all_of_it_or_nothing(tmp_path: Path) -> None:
    """Rows D9 and M2: kill -9, whenever it comes, as soon as something of the plan is in the log."""
    with BrokerProcess(tmp_path, data_dir=tmp_path / "data") as broker:
        assert broker.data_dir is not None
        follower = MetadataReader(broker.data_dir).follow()
        follower.poll()
        before = follower.next_offset
        words = [sys.executable, "-m", "fencepost", "topic", "apply", "-", *whom_to_ask(broker)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(words, **pipes) as applying:  # type: ignore[call-overload]
            applying.stdin.write(PLAN)
            applying.stdin.close()
            while follower.next_offset == before and applying.poll() is None:
                follower.poll()
                time.sleep(0.002)
            broker.kill()
            applying.kill()
        seen = len([name for name in MetadataReader(broker.data_dir).image().topics_by_name if "many" in name])
        broker.restart()
        there = command_json(broker, "topic", "list", "many-*")
        assert len(there) == seen, "the shell saw what the broker came back with"
        assert (len(there), {one["partitions"] for one in there}) in ((0, set()), (120, {100}))
