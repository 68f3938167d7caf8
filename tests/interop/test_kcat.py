"""kcat lists, produces and consumes, alone and as a member of a group."""

import json
import os
import shutil
import subprocess

import pytest

from tests.interop.confluent_steps import WAIT_SECONDS, create_topic, transactional_producer
from tests.kit.stores import alone

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]


def kcat(bootstrap: str, *words: str, stdin: str = "") -> str:
    """Run kcat and return its standard output. Its configuration file and environment are kept out."""
    run = subprocess.run(
        ["kcat", "-F", os.devnull, "-b", bootstrap, "-m", "100", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@alone("it expects the address of one")
def test_lists_brokers_topics_and_partitions(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name, partitions=3)
    listed = json.loads(kcat(bootstrap, "-L", "-J", "-t", name))
    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]
    (topic,) = listed["topics"]
    assert topic["topic"] == name
    leader = listed["brokers"][0]["id"]
    assert [(part["partition"], part["leader"]) for part in topic["partitions"]] == [(p, leader) for p in range(3)]
    assert f'topic "{name}" with 3 partitions' in kcat(bootstrap, "-L")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produces_and_consumes_every_codec(bootstrap: str, name: str, codec: str) -> None:
    create_topic(bootstrap, name)
    lines = "".join(f"key-{number}:value-{number}\n" for number in range(500))
    kcat(bootstrap, "-P", "-t", name, "-p", "0", "-K", ":", "-z", codec, stdin=lines)
    shown = kcat(bootstrap, "-C", "-t", name, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert shown == lines
    assert kcat(bootstrap, "-C", "-t", name, "-o", "-2", "-e", "-q", "-f", "%o\n") == "498\n499\n"


def test_shows_envelopes_as_json(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    kcat(bootstrap, "-P", "-t", name, "-p", "0", "-k", "k", "-H", "trace=7", stdin="with header")
    kcat(bootstrap, "-P", "-t", name, "-p", "0", "-K", ":", "-Z", stdin="gone:\n")
    shown = [json.loads(line) for line in kcat(bootstrap, "-C", "-t", name, "-e", "-q", "-J").splitlines()]
    assert [(one["offset"], one["key"], one["payload"]) for one in shown] == [
        (0, "k", "with header"),
        (1, "gone", None),
    ]
    assert shown[0]["headers"] == ["trace", "7"]
    assert shown[0]["tstype"] == "create"
    assert shown[0]["broker"] >= 0


def test_asks_for_offsets_by_time(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    kcat(bootstrap, "-P", "-t", name, "-p", "0", stdin="a\nb\n")
    answer = kcat(bootstrap, "-Q", "-t", f"{name}:0:1")
    assert answer.split() == [name, "[0]", "offset", "0"]


def test_a_group_goes_on_where_it_stood(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name, partitions=2)
    options = ["-G", name, "-q", "-e", "-X", "auto.offset.reset=earliest", "-f", "%s\n", name]
    kcat(bootstrap, "-P", "-t", name, stdin="a\nb\nc\n")
    assert sorted(kcat(bootstrap, *options).split()) == ["a", "b", "c"]
    kcat(bootstrap, "-P", "-t", name, stdin="d\n")
    assert kcat(bootstrap, *options) == "d\n"


def test_reads_committed_records_only_where_it_is_asked_to(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    producer = transactional_producer(bootstrap, name)
    for value, commits in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.produce(name, value, partition=0)
        producer.flush(WAIT_SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(WAIT_SECONDS)
    words = ["-C", "-t", name, "-e", "-q", "-f", "%s\n"]
    assert kcat(bootstrap, *words, "-X", "isolation.level=read_committed") == "kept\n"
    assert kcat(bootstrap, *words, "-X", "isolation.level=read_uncommitted") == "kept\ndropped\n"


def test_produces_in_a_transaction_of_its_own(bootstrap: str, name: str) -> None:
    create_topic(bootstrap, name)
    kcat(bootstrap, "-P", "-t", name, "-p", "0", "-X", f"transactional.id={name}", stdin="one\ntwo\n")
    words = ["-C", "-t", name, "-e", "-q", "-f", "%o %s\n", "-X", "isolation.level=read_committed"]
    assert kcat(bootstrap, *words) == "0 one\n1 two\n"
