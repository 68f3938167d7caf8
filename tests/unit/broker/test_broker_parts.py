"""Smaller parts of the machine room: identity, log lines, the table of handlers, the metrics server's manners."""

import base64
import json
import logging
import socket
import sys
from http import HTTPStatus
from pathlib import Path

import pytest
import trio

from fencepost.broker.metadata.identity import WrongDirectory, cluster_id_of, new_topic_id
from fencepost.broker.metrics.server import HEAD_BYTES_MAX, MetricsServer, Page
from fencepost.broker.network.dispatch import Dispatch, UnservedRequest
from fencepost.cli.log_format import TEXT_MAX, JsonFormatter, TextFormatter
from fencepost.protocol.api_keys import ApiKey
from tests.kit.stable_apis import STABLE_APIS


def test_the_cluster_id_stays_and_binds_the_directory(tmp_path: Path) -> None:
    first = cluster_id_of(tmp_path, 1, None)
    assert len(first) == 22
    assert cluster_id_of(tmp_path, 1, None) == cluster_id_of(tmp_path, 1, first) == first
    with pytest.raises(WrongDirectory, match="node 1, not 2"):
        cluster_id_of(tmp_path, 2, None)
    with pytest.raises(WrongDirectory, match=first):
        cluster_id_of(tmp_path, 1, "another")


def test_no_topic_id_looks_like_an_option() -> None:
    """As Kafka's `Uuid.randomUuid`: `--topic-id -x...` is no id to a command line."""
    made = {new_topic_id(lambda size, first=first: bytes([first]) + bytes(size - 1)) for first in range(256)}
    assert {len(one) for one in made} == {16}
    assert len(made) == 252
    assert not [one for one in made if base64.urlsafe_b64encode(one).startswith(b"-")]


def test_a_kafka_directory_keeps_its_identity(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Sat Nov 21\ncluster.id=abc\nversion=1\ndirectory.id=xyz\nnode.id=4\n"
    )
    assert cluster_id_of(tmp_path, 4, None) == "abc"


def test_no_cluster_id_begins_with_a_dash() -> None:
    """Kafka's tools would take it for an option."""
    assert cluster_id_of(None, 1, None, lambda count: b"\xfb" + bytes(count - 1)).startswith("A")
    assert cluster_id_of(None, 1, "given") == "given"


def record(message: str, *arguments: object, error: bool = False) -> logging.LogRecord:
    trace = None
    if error:
        try:
            raise ValueError("boom")
        except ValueError:
            trace = sys.exc_info()
    return logging.LogRecord("fencepost.x", logging.WARNING, "x.py", 1, message, arguments, trace)


def test_a_log_line_can_not_be_forged_by_a_name_in_it() -> None:
    line = TextFormatter().format(record("closing peer=%s", "a\n2026-11-21 ERROR forged"))
    assert "\n" not in line
    assert "WARNING" in line
    assert len(TextFormatter().format(record("%s", "x" * 10_000))) < TEXT_MAX + 100


def test_json_lines_are_json() -> None:
    entry = json.loads(JsonFormatter().format(record("what key=%s", 'a"b\n', error=True)))
    assert entry["level"] == "warning"
    assert entry["message"].startswith("what key=")
    assert "ValueError: boom" in entry["traceback"]
    assert entry["time"].endswith("Z")


def test_every_declared_api_has_its_handler() -> None:
    dispatch = Dispatch()
    stable = [api for _, api in sorted(STABLE_APIS.items())]
    named = [api for api in stable if api.key != ApiKey.ENVELOPE]
    assert dispatch.served == named, "Envelope is for brokers, and as in Kafka ApiVersions does not name it"
    for api in stable:
        for version in {api.served[0], api.served[1]}:
            assert callable(dispatch.route(api.key, version).handle)
        with pytest.raises(UnservedRequest, match=f"{api.name} version {api.served[1] + 1}"):
            dispatch.route(api.key, api.served[1] + 1)
    with pytest.raises(UnservedRequest, match="999"):
        dispatch.route(999, 0)


async def ask(server: MetricsServer, request: bytes, nursery: trio.Nursery) -> bytes:
    endpoint = await server.listen("", 0)
    nursery.start_soon(server.run)
    async with await trio.open_tcp_stream(endpoint.host, endpoint.port) as stream:
        await stream.send_all(request)
        answer = b""
        async for part in stream:
            answer += part
    return answer


async def test_an_address_of_the_metrics_that_is_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"metrics.listen: cannot listen on 127.0.0.1:{port}: "):
            await MetricsServer({}).listen("", port)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"HEAD /metrics HTTP/1.0", b"200"),
        (b"GET /metrics?x=1 HTTP/1.1", b"200"),
        (b"GET HTTP://any:1/metrics?x=1 HTTP/1.1", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"nonsense", b"400"),
    ],
)
async def test_the_metrics_server_answers_only_what_it_should(
    nursery: trio.Nursery, request_line: bytes, status: bytes
) -> None:
    async def page() -> Page:
        return HTTPStatus.OK, "text/plain", b"metric 1\n"

    server = MetricsServer({b"/metrics": page})
    answer = await ask(server, request_line + b"\r\nHost: x\r\n\r\n", nursery)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.endswith(b"metric 1\n") == (status == b"200" and request_line.startswith(b"GET"))


async def test_an_endless_head_is_cut_off(nursery: trio.Nursery) -> None:
    server = MetricsServer({})
    assert (await ask(server, b"G" * HEAD_BYTES_MAX, nursery)).startswith(b"HTTP/1.1 400")
