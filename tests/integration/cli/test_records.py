"""`fencepost produce` and `consume` against a running broker, as users of kcat type them."""

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kit.command_line import command, command_json
from tests.kit.record_commands import SECONDS, Broker, consume, process, produce, topic


def test_lines_become_records(broker: Broker) -> None:
    name = topic(broker)
    done = produce(broker, name, text="one\n\nthree\nno end")
    assert (done.exit_code, done.output) == (0, "")
    done = command(broker, "consume", name, "-e")
    assert done.stdout == "one\n\nthree\nno end\n"
    assert done.stderr == f"% Reached end of topic {name} [0] at offset 4\n"
    assert command(broker, "consume", name, "-e", "-q").stderr == ""


def test_any_bytes_come_back(broker: Broker, tmp_path: Path) -> None:
    """A file is one record; nothing is added with -f %s."""
    name, content = topic(broker), bytes(range(256)) * 300
    for number in (1, 2):
        (tmp_path / f"{number}").write_bytes(content * number)
    assert produce(broker, name, str(tmp_path / "1"), str(tmp_path / "2"), "-k", "bytes").exit_code == 0
    done = command(broker, "consume", name, "-e", "-f", "%s")
    assert done.stdout_bytes == content * 3
    line = json.loads(consume(broker, name, "-c", "1", "--json"))
    assert "payload" not in line
    assert (line["key"], line["payload_base64"][:8]) == ("bytes", "AAECAwQF")


def test_keys_values_and_nulls(broker: Broker) -> None:
    """As kcat: a line without the delimiter has no key, and -Z makes nulls of empty parts."""
    name = topic(broker)
    assert produce(broker, name, "-K", ":", "-Z", text="k:v\nk:\n:v:w\nalone\n").exit_code == 0
    assert consume(broker, name, "-K", ":") == "k:v\nk:\n:v:w\n:alone\n"
    assert consume(broker, name, "-K", ":", "-Z") == "k:v\nk:NULL\nNULL:v:w\nNULL:alone\n"
    assert consume(broker, name, "-f", "%K %S|") == "1 1|1 -1|-1 3|-1 5|"
    lines = [json.loads(line) for line in consume(broker, name, "-J").splitlines()]
    assert [(line["key"], line["payload"]) for line in lines] == [
        ("k", "v"),
        ("k", None),
        (None, "v:w"),
        (None, "alone"),
    ]


def test_other_delimiters(broker: Broker, tmp_path: Path) -> None:
    name = topic(broker)
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    assert produce(broker, name, "-D", r"\x00", text=b"a\nb\0c\0").exit_code == 0
    assert produce(broker, name, "-l", str(tmp_path / "lines")).exit_code == 0
    assert consume(broker, name, "-D", "--") == "a\nb--c--one--two--"
    assert produce(broker, name, "-D", "", text="x").exit_code == 2


def test_formats(broker: Broker) -> None:
    name = topic(broker, 2)
    assert produce(broker, name, "-p", "1", "-k", "k", "-H", "a=1", "-H", "b=", text="value\n").exit_code == 0
    shown = consume(broker, name, "-f", r"%t[%p]@%o\t%k=%s %h %%\x21\n")
    assert shown == f"{name}[1]@0\tk=value a=1,b= %!\n"
    done = command(broker, "consume", name, "-e", "-f", "%R%s")
    assert done.stdout_bytes == b"\0\0\0\x05value"
    age_ms = time.time() * 1000 - int(consume(broker, name, "-f", "%T"))
    assert 0 <= age_ms < SECONDS * 1000
    for wrong in ("%z", r"\q", "100%"):
        assert command(broker, "consume", name, "-f", wrong).exit_code == 2


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-o beginning", "0 1 2 3 4 5 6 7 8 9"),
        ("-o end", ""),
        ("-o 7", "7 8 9"),
        ("-o -2", "8 9"),
        ("-o -200", "0 1 2 3 4 5 6 7 8 9"),
        ("-o +8", "8 9"),
        ("-o 2:5", "2 3 4"),
        ("-o 5:5", ""),
        ("-o 8:2000", "8 9"),
        ("-o 3 -c 2", "3 4"),
        ("-o s@1000000003000", "3 4 5 6 7 8 9"),
        ("-o @2001-09-09T01:46:47.5", "8 9"),
        ("-o s@1000000002500 -o e@1000000005000", "3 4"),
        ("-o e@2001-09-09T01:46:42", "0 1"),
        ("-p 0 -o 9", "9"),
    ],
)
def test_where_reading_begins_and_ends(broker: Broker, numbered: str, words: str, wanted: str) -> None:
    """Times are ms since 1970, or ISO 8601 in UTC: 1,000,000,000 s after 1970 was at 01:46:40."""
    assert consume(broker, numbered, "-q", "-D", " ", *words.split()).split() == wanted.split()


@pytest.fixture(scope="module")
def numbered(broker: Broker) -> str:
    """Ten records, one for each second."""
    name = topic(broker)
    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(10):
        producer.produce(name, str(number), timestamp=1_000_000_000_000 + number * 1000)
    assert producer.flush(SECONDS) == 0
    return name


@pytest.mark.parametrize("words", ["-o 2:5", "-o s@1000000002000 -o e@1000000005000"])
def test_a_range_ends_without_exit(broker: Broker, numbered: str, words: str) -> None:
    """Nothing has to come after it."""
    assert command(broker, "consume", numbered, *words.split()).stdout == "2\n3\n4\n"


@pytest.mark.parametrize(
    "words", [["-o", "x"], ["-o", "1", "-o", "2"], ["-o", "@noon"], ["-G", "g", "-p", "0"], ["-G", "g", "-o", "5"]]
)
def test_what_cannot_be_meant_is_refused(broker: Broker, numbered: str, words: list[str]) -> None:
    assert command(broker, "consume", numbered, *words).exit_code == 2


def test_aborted_records_are_left_out(broker: Broker) -> None:
    """Rows I1 and I3: read_committed leaves out aborted records, and ends at the last stable offset."""
    name = topic(broker)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(SECONDS)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(SECONDS)
        end(SECONDS)
    producer.begin_transaction()
    producer.produce(name, "open")
    producer.flush(SECONDS)
    assert consume(broker, name) == "committed\n"
    assert consume(broker, name, "--isolation", "read_uncommitted") == "aborted\ncommitted\nopen\n"
    producer.abort_transaction(SECONDS)


def test_one_transaction(broker: Broker) -> None:
    name = topic(broker)
    done = produce(broker, name, "--transaction", "--json", text="a\nb\n")
    assert json.loads(done.stdout) == {"records": 2, "transactions": 1}
    done = produce(broker, name, "--txn-size", "2", "--json", text="c\nd\ne\nf\n")
    assert json.loads(done.stdout) == {"records": 4, "transactions": 2}
    done = produce(broker, name, "--transactional-id", name, "--txn-size", "1", "-H", "h=1", text="g\n")
    assert done.exit_code == 0, done.output
    assert consume(broker, name, "-D", " ") == "a b c d e f g "
    offsets = command_json(broker, "topic", "offsets", name)
    assert offsets[0]["high_watermark"] == 7 + 4, "each transaction has its marker"
    assert command_json(broker, "txn", "describe", name)["state"] == "CompleteCommit"


@pytest.mark.parametrize("transactional", [False, True])
def test_a_record_that_is_too_large_is_named(broker: Broker, transactional: bool) -> None:
    """What comes before it is in the topic, or, in a transaction, nothing is."""
    name = topic(broker)
    words = ["--transaction"] if transactional else []
    done = produce(broker, name, *words, text="a\nb\n" + "x" * 2_000_000 + "\nd\n")
    assert done.exit_code == 1
    assert "record 3 is refused: it is larger than max.request.size allows (1048576) (MESSAGE_TOO_LARGE)" in done.stderr
    assert "-X max.request.size=" in done.stderr
    assert "d" not in consume(broker, name)
    if transactional:
        assert consume(broker, name) == ""


def test_the_brokers_refusal_is_shown(broker: Broker) -> None:
    """A compacted topic takes no record without a key (INVALID_RECORD)."""
    name = topic(broker, 1, "--set", "cleanup.policy=compact")
    done = produce(broker, name, "--json", text="no key\n")
    assert done.exit_code == 1
    shown = json.loads(done.stderr)
    assert shown["error"] == "INVALID_RECORD"
    assert "-k KEY" in shown["hint"]
    assert produce(broker, name, "-K", ":", text="k:v\n").exit_code == 0


def test_an_unknown_topic_is_an_error(broker: Broker) -> None:
    done = command(broker, "consume", "missing", "-e")
    assert (done.exit_code, "topic 'missing' does not exist" in done.stderr) == (1, True)
    done = command(broker, "consume", topic(broker), "-p", "7")
    assert (done.exit_code, "-7 does not exist" in done.stderr) == (1, True)


def test_a_group_continues_where_it_was(broker: Broker) -> None:
    """What was written is committed, not what was fetched."""
    name, group = topic(broker, 2), f"g{uuid.uuid4().hex}"
    assert produce(broker, name, "-p", "0", text="0\n1\n2\n3\n").exit_code == 0
    assert consume(broker, name, "-G", group, "-c", "3") == "0\n1\n2\n"
    assert consume(broker, name, "-G", group) == "3\n"
    assert consume(broker, name, "-G", group) == ""
    assert consume(broker, name, "-G", f"{group}-2", "-o", "end") == ""


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_group_commits_what_was_written(broker: Broker, by: signal.Signals) -> None:
    name, group = topic(broker), f"g{uuid.uuid4().hex}"
    assert produce(broker, name, text="0\n1\n").exit_code == 0
    with process(broker, "consume", name, "-G", group) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"0\n"
        assert running.stdout.readline() == b"1\n"
        running.send_signal(by)
        assert running.wait(SECONDS) == 0, running.communicate()[1]
    assert consume(broker, name, "-G", group) == ""


def test_records_appear_as_they_come(broker: Broker) -> None:
    """Lines that are typed are sent at once, not at the end of the input; and errors are reported then."""
    name = topic(broker)
    with (
        process(broker, "consume", name, "-c", "2") as reading,
        process(broker, "produce", name, stdin=subprocess.PIPE) as writing,
    ):
        assert reading.stdout is not None
        assert writing.stdin is not None
        for line in (b"first\n", b"second\n"):
            writing.stdin.write(line)
            writing.stdin.flush()
            assert reading.stdout.readline() == line
        assert reading.wait(SECONDS) == 0
        writing.stdin.close()
        assert writing.wait(SECONDS) == 0


def test_an_error_is_reported_before_the_input_ends(broker: Broker) -> None:
    name = topic(broker, 1, "--set", "cleanup.policy=compact")
    with process(broker, "produce", name, stdin=subprocess.PIPE) as writing:
        assert writing.stdin is not None
        writing.stdin.write(b"no key\n")
        writing.stdin.flush()
        assert writing.wait(SECONDS) == 1


def test_a_closed_pipe_ends_the_command_quietly(broker: Broker) -> None:
    name = topic(broker)
    assert produce(broker, name, text="\n".join(map(str, range(200_000)))).exit_code == 0
    with process(broker, "consume", name) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"0\n"
        reading.stdout.close()
        assert reading.wait(SECONDS) == 1
        assert reading.stderr is not None
        assert reading.stderr.read() == b""


def test_ctrl_c_ends_a_command_whose_output_is_not_read(broker: Broker) -> None:
    """As with `fencepost consume orders | less`: the thread that writes is left behind."""
    name = topic(broker)
    assert produce(broker, name, text="\n".join(map(str, range(200_000)))).exit_code == 0
    with process(broker, "consume", name, "-e") as reading:
        assert reading.stdout is not None
        assert reading.stdout.read(1) == b"0"
        time.sleep(0.5)
        reading.send_signal(signal.SIGINT)
        assert reading.wait(SECONDS) == 0
        assert reading.stderr is not None
        assert b"Fatal" not in reading.stderr.read()


def test_many_records_and_every_codec(broker: Broker, tmp_path: Path) -> None:
    lines = b"".join(b"%d\n" % number for number in range(30_000))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        name = topic(broker)
        assert produce(broker, name, "-z", codec, text=lines).exit_code == 0
        assert command(broker, "consume", name, "-e", "-q").stdout_bytes == lines


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_and_writes_the_same(broker: Broker) -> None:
    name = topic(broker)
    kcat = ["kcat", "-F", os.devnull, "-b", broker.address, "-t", name]
    assert produce(broker, name, "-K", ":", "-H", "h=1", text="ours:1\n").exit_code == 0
    subprocess.run([*kcat, "-P", "-K", ":", "-H", "h=1"], input=b"theirs:2\n", check=True, timeout=SECONDS)
    shape = r"%t %p %o %k=%s %K %S %h\n"
    done = subprocess.run([*kcat, "-C", "-e", "-q", "-f", shape], capture_output=True, check=True, timeout=SECONDS)
    assert consume(broker, name, "-f", shape).encode() == done.stdout
    done = subprocess.run([*kcat, "-C", "-e", "-q", "-J"], capture_output=True, check=True, timeout=SECONDS)
    for ours, theirs in zip(consume(broker, name, "-J").splitlines(), done.stdout.splitlines(), strict=True):
        assert json.loads(ours).items() <= json.loads(theirs).items()
