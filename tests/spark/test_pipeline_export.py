"""Export to Parquet: each committed record once, over kills and restarts, and refusals where that could not be."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_pipelines import PipelineError, Shape, export, manifests
from fencepost.spark_pipelines.export_store import MANIFEST, ExportStore, next_ends
from tests.spark.conftest import ROOT, Transact, create_again, new_topic
from tests.spark.export_manifests import manifest_of
from tests.spark.killed import kill_when

pytestmark = pytest.mark.timeout(900)


# The store, without Spark

_EXPORTER = """
import os, signal, sys
from pathlib import Path
from fencepost.spark_pipelines import export_store
from tests.spark.export_manifests import manifest_of

deadly = int(sys.argv[2])
calls = 0

def deadly_before(function):
    def call(*arguments):
        global calls
        calls += 1
        if calls == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call

os.rename, os.fsync = deadly_before(os.rename), deadly_before(os.fsync)
store = export_store.ExportStore.open(sys.argv[1])
for _ in range(2):
    last = store.last()
    number, begin = (0, 0) if last is None else (last.batch + 1, last.ends().popitem()[1])
    staging = store.staging()
    staging.mkdir()
    (staging / "part").write_text("".join(f"{n}\\n" for n in range(begin, begin + 10)))
    store.publish(staging, manifest_of(number, begin, begin + 10))
print("calls", calls)
"""


def run_exporter(target: Path, deadly: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _EXPORTER, str(target), str(deadly)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def records_of(target: Path) -> list[int]:
    return [int(line) for path in sorted(target.glob("batch=*/part")) for line in path.read_text().split()]


def test_an_export_killed_at_any_step_has_published_all_of_a_batch_or_nothing_and_goes_on(tmp_path: Path) -> None:
    """kill -9 before each rename and each fsync; whoever comes next finds a whole number of batches, and adds two."""
    whole = run_exporter(tmp_path / "whole", 0)
    steps = int(whole.stdout.split()[1])
    assert steps >= 8, "two batches of files, directory, rename and parent"
    for deadly in range(1, steps + 1):
        target = tmp_path / str(deadly)
        killed = run_exporter(target, deadly)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        published = records_of(target)
        assert published == list(range(len(published)))
        assert len(published) % 10 == 0
        store = ExportStore.open(target)
        assert not list(target.glob("_staging*")), "what was half done is cleared away"
        last = store.last()
        assert (0 if last is None else last.ends()[TopicPartition("t", 0)]) == len(published), (
            "files and position agree"
        )
        store.close()
    assert run_exporter(tmp_path / "1", 0).returncode == 0
    assert records_of(tmp_path / "1") == list(range(20))


def test_two_exports_into_one_directory_are_refused(tmp_path: Path) -> None:
    """By the lock; and where a file system has none that others see, by the rename onto what is there."""
    store = ExportStore.open(tmp_path)
    with pytest.raises(PipelineError, match="another export writes to"):
        ExportStore.open(tmp_path)
    for text in ("mine", "theirs"):
        staging = store.staging()
        staging.mkdir()
        (staging / "part").write_text(text)
        if text == "mine":
            store.publish(staging, manifest_of(0, 0, 4))
            continue
        with pytest.raises(PipelineError, match=r"batch=00000000 was published by another export"):
            store.publish(staging, manifest_of(0, 0, 9))
        assert not staging.exists()
    assert (tmp_path / "batch=00000000" / "part").read_text() == "mine"
    store.close()


def test_directories_of_others_and_damaged_manifests_are_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    store = ExportStore.open(tmp_path)
    with pytest.raises(PipelineError, match=r"holds photo\.jpg, which is not a file of an export"):
        store.last()
    batch = tmp_path / "batch=00000003"
    batch.mkdir()
    (batch / MANIFEST).write_text("{}")
    with pytest.raises(PipelineError, match="cannot be read"):
        store.last()
    store.close()
    with pytest.raises(PipelineError, match="which object stores cannot do"):
        ExportStore.open("s3a://bucket/lake")


def test_a_batch_takes_its_share_of_every_partition_and_one_record_at_least() -> None:
    one, two, three = (TopicPartition("t", number) for number in range(3))
    begin, end = {one: 0, two: 10, three: 5}, {one: 900, two: 110, three: 6}
    assert next_ends(begin, end, 2000) == end
    assert next_ends(begin, end, 100) == {one: 89, two: 19, three: 6}
    assert next_ends(begin, begin, 1) == begin


# With Spark


def rows_of(target: Path) -> list[tuple[str, int, int, bytes | None, bytes | None]]:
    """What is in the published files, read by Arrow and not by Spark."""
    from pyarrow import parquet

    names = ["topic", "partition", "offset", "key", "value"]
    found = []
    for path in sorted(target.glob("batch=*/*.parquet")):
        table = parquet.ParquetFile(path).read(columns=names)
        found += list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    return sorted(found)


@pytest.mark.spark
def test_committed_records_are_exported_once_and_the_next_run_takes_up_where_it_ended(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    kafka = {"bootstrap.servers": bootstrap}
    target = tmp_path / "lake"
    for at in range(0, 90, 30):
        transact([(number % 3, b"%03d" % number) for number in range(at, at + 30)])
    transact([(number % 3, b"x") for number in range(9)], commit=False)
    first = list(export(spark, [topic], target, kafka=kafka, batch_records=50))
    assert [manifest.batch for manifest in first] == list(range(len(first)))
    assert len(first) >= 2, "transactions of 30 in batches of 50 offsets"
    assert sum(manifest.rows for manifest in first) == 90
    assert list(export(spark, [topic], target, kafka=kafka)) == [], "all of it is there"
    transact([(0, b"x")], commit=False)
    assert list(export(spark, [topic], target, kafka=kafka)) == [], "an aborted record makes no batch"
    transact([(1, b"more")])
    (last,) = export(spark, [topic], target, kafka=kafka)
    assert (last.rows, last.batch) == (1, len(first))
    values = sorted(value for *_, value in rows_of(target) if value is not None)
    assert values == sorted([b"%03d" % number for number in range(90)] + [b"more"])
    assert [one.begin for one in manifests(target)][1:] == [one.end for one in manifests(target)][:-1]
    assert spark.read.parquet(str(target)).count() == 91, "any reader of Parquet sees just that"

    with pytest.raises(PipelineError, match="was started with where = None, but this export has 'partition = 0'"):
        list(export(spark, [topic], target, kafka=kafka, shape=Shape(where="partition = 0")))
    other = new_topic(bootstrap, f"{topic}-other")
    with pytest.raises(PipelineError, match="was started with topics"):
        list(export(spark, [other], target, kafka=kafka))


@pytest.mark.spark
def test_a_topic_that_was_created_again_is_not_mixed_into_the_old_ones_export(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    kafka = {"bootstrap.servers": bootstrap}
    transact([(0, b"old")])
    assert [one.rows for one in export(spark, [topic], tmp_path, kafka=kafka, shape=Shape(select="value, offset"))] == [
        1
    ]
    create_again(bootstrap, topic)
    with pytest.raises(PipelineError, match="was deleted and created again since the last export"):
        list(export(spark, [topic], tmp_path, kafka=kafka, shape=Shape(select="value, offset")))


@pytest.mark.spark
@pytest.mark.parametrize("when", ["between two batches", "while a batch is read"])
def test_an_export_that_follows_stops_where_its_topic_is_created_again(
    spark: Any,
    bootstrap: str,
    topic: str,
    transact: Transact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """Also where the new topic is longer than the position: no offset tells the two apart."""
    transact([(0, b"old"), (1, b"old")])
    kafka = {"bootstrap.servers": bootstrap}
    shape = Shape(select="value, offset")
    batches = export(spark, [topic], tmp_path, kafka=kafka, shape=shape, follow_seconds=0.05)
    assert next(batches).rows == 2

    def replace_it() -> None:
        create_again(bootstrap, topic)
        transact([(number % 2, b"new") for number in range(20)])

    if when == "between two batches":
        replace_it()
    else:
        transact([(0, b"old too")])

        def staged_then_created_again(self: ExportStore, frame: Any) -> Path:
            staged = stage(self, frame)
            replace_it()
            return staged

        stage = ExportStore.stage
        monkeypatch.setattr(ExportStore, "stage", staged_then_created_again)
    with pytest.raises(PipelineError, match=f"topic {topic} was deleted and created again under this export"):
        next(batches)
    assert [one.rows for one in manifests(tmp_path)] == [2], "nothing of the new one is there"
    assert not list(tmp_path.glob("_staging*"))


@pytest.mark.spark
def test_an_export_that_is_killed_with_9_and_started_again_has_every_record_once(
    spark: Any, bootstrap: str, topic: str, transact: Transact, tmp_path: Path
) -> None:
    """The command, killed as soon as it has published a batch, wherever it then is; finished in this process."""
    expected = [b"%04d" % number for number in range(600)]
    for at in range(0, 600, 100):
        transact([(number % 3, expected[number]) for number in range(at, at + 100)])
        transact([(2, b"x")] * 5, commit=False)
    target = tmp_path / "lake"
    words = ["spark", "export", topic, "--into", str(target), "--batch-records", "30", "--bootstrap", bootstrap]
    kill_when([*words, "--master", "local[1]"], tmp_path / "log", lambda: list(target.glob("batch=*")))
    before = len(list(target.glob("batch=*")))
    assert sum(1 for _ in export(spark, [topic], target, kafka={"bootstrap.servers": bootstrap})) <= 1
    found = rows_of(target)
    assert before >= 1
    assert sorted(value for *_, value in found if value is not None) == expected
    assert len({row[:3] for row in found}) == len(found) == 600
