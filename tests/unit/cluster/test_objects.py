"""Objects in every kind of store: durable or an error, the right bytes or an error."""

import errno
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import pytest

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.object_store import (
    ObjectExists,
    ObjectMissing,
    Objects,
    object_name,
    open_objects,
)
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.log.storage.store import CorruptLogFile
from tests.kit.s3_server import S3Server

CLUSTER = "RkNQY2x1c3Rlcl9pZF8xMQ"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(params=["file", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "file":
        return open_objects(f"file://{tmp_path}", CLUSTER)
    if request.param == "memory":
        return open_objects("memory://", CLUSTER)
    server: S3Server = request.getfixturevalue("s3")
    return open_objects(f"{server.url}/{tmp_path.name}", CLUSTER, server.options())


def test_an_object_is_put_in_parts_and_read_in_ranges(objects: Objects) -> None:
    objects.put(17, [b"first ", bytearray(b"second "), memoryview(b"third")])
    assert objects.get(17, 0, 18) == b"first second third"
    assert objects.get(17, 6, 6) == b"second"
    assert objects.counters.puts == 1
    assert objects.counters.put_bytes == 18
    assert (objects.counters.gets, objects.counters.get_bytes) == (2, 24)
    assert objects.counters.put_times.sum_seconds > 0


def test_a_large_object_of_many_parts_comes_back_whole(objects: Objects) -> None:
    parts = [os.urandom(3001) for _ in range(3000)]
    objects.put(1, parts)
    whole = b"".join(parts)
    assert objects.get(1, 0, len(whole)) == whole
    assert objects.get(1, 5_000_000, 4000) == whole[5_000_000:5_004_000]


def test_what_does_not_exist_is_reported_with_its_name(objects: Objects) -> None:
    with pytest.raises(ObjectMissing, match=f"{CLUSTER}/{object_name(404)} at byte 7: the object does not exist"):
        objects.get(404, 7, 1)
    assert objects.counters.failures == 1


@pytest.mark.parametrize(("position", "size"), [(0, 11), (8, 3), (10, 1), (50, 5)])
def test_a_range_behind_the_end_raises_and_returns_no_bytes(objects: Objects, position: int, size: int) -> None:
    objects.put(3, [b"0123456789"])
    with pytest.raises(CorruptLogFile, match="but the database names") as caught:
        objects.get(3, position, size)
    assert not isinstance(caught.value, ObjectMissing)


def test_an_empty_object_cannot_be_read(objects: Objects) -> None:
    objects.put(3, [])
    with pytest.raises(CorruptLogFile):
        objects.get(3, 0, 1)


@pytest.mark.parametrize("other", [b"shorter", b"a longer one, and more", b"A longer one", b""])
def test_a_second_put_under_an_id_never_replaces_the_first(objects: Objects, other: bytes) -> None:
    """Another database may have given the same id. A repeated request has the same bytes, and succeeds."""
    objects.put(3, [b"a longer", b" one"])
    objects.put(3, [b"a longer one"])
    with pytest.raises(ObjectExists, match=f"{CLUSTER}/{object_name(3)} exists already and has other bytes"):
        objects.put(3, [other])
    assert objects.get(3, 0, 12) == b"a longer one"
    objects.put(4, [other])
    assert set(objects.ids()) == {3, 4}


def test_a_broker_puts_an_object_under_another_id_if_its_name_is_taken(objects: Objects) -> None:
    """The rest of the block is given up, too: the same database gave all of it."""

    class Database:
        claims = 0

        def claim(self, count: int) -> list[int]:
            self.claims += 1
            return [self.claims * 1000 + number for number in range(count)]

    objects.put(1000, [b"of another database"])
    rows = RowObjects(objects, ClaimPool(Database()))
    with pytest.raises(ObjectExists):
        rows.put([b"x"])
    assert rows.put([b"x"]) == 2000
    assert objects.get(1000, 0, 19) == b"of another database"


class Unconditional(BaseHTTPRequestHandler):
    """A store that does not know `If-None-Match`."""

    protocol_version = "HTTP/1.1"
    held: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        known = self.headers["If-None-Match"] is None
        if known:
            self.held[self.path] = body
        self.send_response(200 if known else 501)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def test_a_store_that_cannot_refuse_to_replace_an_object_is_used_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Names are random, so no two objects have one. The log has one warning."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Unconditional) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
        options = {"endpoint": f"http://127.0.0.1:{server.server_port}", **keys}
        objects = open_objects("s3://bucket", CLUSTER, options, retry_s=1)
        for object_id in (1, 2):
            objects.put(object_id, [b"x"])
        server.shutdown()
    assert len(Unconditional.held) == 2
    assert caplog.text.count("cannot refuse to replace an object") == 1


def test_objects_are_listed_and_deleted_by_id(objects: Objects) -> None:
    ids = {*range(1, 40), 2**62}
    for object_id in ids:
        objects.put(object_id, [b"x"])
    assert set(objects.ids()) == ids
    objects.delete([2**62, 5, 6, 404])
    objects.delete([5])
    objects.delete([])
    assert set(objects.ids()) == ids - {2**62, 5, 6}
    with pytest.raises(ObjectMissing):
        objects.get(5, 0, 1)


def test_more_objects_than_one_request_lists_or_deletes(tmp_path: Path, s3: S3Server) -> None:
    """S3 lists and deletes at most 1000 in one request."""
    objects = open_objects(f"{s3.url}/many", CLUSTER, s3.options())
    for object_id in range(1, 1103):
        objects.put(object_id, [b"x"])
    assert sum(objects.ids()) == sum(range(1, 1103))
    objects.delete(range(1, 1102))
    assert list(objects.ids()) == [1102]


def test_a_store_is_checked_with_an_object_that_does_not_stay(objects: Objects) -> None:
    objects.put(1, [b"x"])
    objects.check()
    assert list(objects.ids()) == [1]
    assert list(objects._backend.names()) == [object_name(1)]


def test_names_spread_over_prefixes() -> None:
    assert object_name(1) == "5a/1"
    assert len({object_name(object_id)[:2] for object_id in range(5000)}) == 256


def test_clusters_in_one_bucket_do_not_see_each_other(tmp_path: Path) -> None:
    one, other = (open_objects(f"file://{tmp_path}", name) for name in ("one", "other"))
    one.put(1, [b"of one"])
    assert list(other.ids()) == []
    other.delete([1])
    assert one.get(1, 0, 6) == b"of one"


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("file://host/directory", {}, "a directory is given as file:///DIRECTORY"),
        ("file:///tmp", {"region": "eu"}, "without options"),
        ("ftp://bucket", {}, "Unable to recognise URL"),
        ("s3://bucket", {"colour": "blue"}, "'colour' is not valid"),
        ("no url", {}, "no url"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_reason(url: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        open_objects(url, CLUSTER, options)


def test_a_directory_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot create .*/absent/.*: No such file or directory"):
        open_objects(f"file://{tmp_path}/absent", CLUSTER)


def test_a_directory_that_is_no_longer_mounted_is_unavailable_not_damaged(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}", CLUSTER)
    objects.put(1, [b"x"])
    (tmp_path / CLUSTER).rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnavailable, match=r"cannot read .*: No such file or directory"):
        objects.get(1, 0, 1)
    with pytest.raises(StoreUnavailable, match="cannot write"):
        objects.put(1, [b"x"])
    with pytest.raises(StoreUnavailable, match="cannot list"):
        list(objects.ids())
    assert not (tmp_path / CLUSTER).exists()


def test_a_file_is_synced_before_it_has_its_name_and_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, link = os.fsync, os.link

    def traced_fsync(fd: int) -> None:
        calls.append(f"sync {Path(os.readlink(f'/proc/self/fd/{fd}')).name}")
        fsync(fd)

    def traced_link(path: str, to: Path) -> None:
        calls.append(f"link {Path(path).name} {to.name}")
        link(path, to)

    objects = open_objects(f"file://{tmp_path}", CLUSTER)
    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "link", traced_link)
    objects.put(1, [b"x"])
    assert calls == [f"sync {CLUSTER}", "sync 1.part", "link 1.part 1", "sync 5a"]
    calls.clear()
    objects.put(261, [b"x"])
    assert calls == ["sync 261.part", "link 261.part 261", "sync 5a"]
    assert sorted(path.name for path in (tmp_path / CLUSTER / "5a").iterdir()) == ["1", "261"]


@pytest.mark.parametrize("taken", [False, True])
def test_a_file_system_without_links_renames(tmp_path: Path, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(path: str, to: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    objects = open_objects(f"file://{tmp_path}", CLUSTER)
    if taken:
        objects.put(1, [b"x"])
    monkeypatch.setattr(os, "link", no_links)
    objects.put(1, [b"x"])
    if taken:
        with pytest.raises(ObjectExists):
            objects.put(1, [b"y"])
    assert objects.get(1, 0, 1) == b"x"
    assert [path.name for path in (tmp_path / CLUSTER / "5a").iterdir()] == ["1"]


def test_an_interrupted_write_is_invisible_until_it_is_deleted(tmp_path: Path) -> None:
    objects = open_objects(f"file://{tmp_path}", CLUSTER)
    objects.put(1, [b"x"])
    part = tmp_path / CLUSTER / "5a" / "1.part"
    (tmp_path / CLUSTER / "5a" / "1").rename(part)
    with pytest.raises(ObjectMissing):
        objects.get(1, 0, 1)
    (tmp_path / CLUSTER / "5a" / "notes.txt").touch()
    assert list(objects.ids()) == [1]
    objects.delete([1])
    assert not part.exists()
    assert (tmp_path / CLUSTER / "5a" / "notes.txt").exists()


def test_a_full_disk_is_an_error_and_leaves_no_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, views: object) -> int:
        raise OSError(28, "No space left on device")

    objects = open_objects(f"file://{tmp_path}", CLUSTER)
    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StoreUnavailable, match=r"cannot write .*/5a/1 .*: No space left on device"):
        objects.put(1, [b"x"])
    with pytest.raises(ObjectMissing):
        objects.get(1, 0, 1)


class Google(BaseHTTPRequestHandler):
    """Google's answers to the deletion of objects: 204, and 404 for one that is missing."""

    there: ClassVar[set[str]] = set()

    def do_DELETE(self) -> None:
        found = self.path in self.there
        self.there.discard(self.path)
        self.send_response(204 if found else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def test_a_missing_object_of_google_does_not_end_the_deletion_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google and Azure answer 404 where S3 says nothing. Most claims are of objects that were never put."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Google) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)  # allows HTTP
        account = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": ""}
        key = json.dumps(account | {"private_key_id": ""})
        objects = open_objects("gs://bucket", CLUSTER, {"google_service_account_key": key})
        Google.there.update(f"/bucket/{quote(f'{CLUSTER}/{object_name(number)}', safe='')}" for number in (2, 30))
        objects.delete(range(1, 31))
        assert not Google.there
        objects.delete([7])
        server.shutdown()


def test_files_that_only_look_like_objects_are_skipped(tmp_path: Path) -> None:
    """A sweep asks the database for what is listed, and deletes what the database does not know."""
    objects = open_objects(f"file://{tmp_path}", CLUSTER)
    objects.put(1, [b"x"])
    for name in ("5a/2", "5a/01", "5a/-1", f"5a/{1 << 63}", f"5a/{1 << 64}", "5a/" + 200 * "9", "owner/database"):
        path = tmp_path / CLUSTER / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert list(objects.ids()) == [1]
