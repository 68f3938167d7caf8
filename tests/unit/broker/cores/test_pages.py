"""The pages of all cores as one."""

import json
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import pytest
import trio

from fencepost.broker.cores.pages import AllPages, merged
from fencepost.broker.metrics.pages import Readiness, pages_of
from fencepost.broker.metrics.server import MetricsServer, Page

ONE = b"""# HELP led Partitions led
# TYPE led gauge
led 3.0
# HELP bytes_total Bytes
# TYPE bytes_total counter
bytes_total{topic="a b"} 7.0
"""
TWO = b"""# HELP led Partitions led
# TYPE led gauge
led 5.0
# HELP other Only here
# TYPE other gauge
other{} 1.0
"""


def test_the_samples_of_a_family_are_together_and_name_their_core() -> None:
    assert merged({0: ONE, 1: TWO}).decode() == (
        "# HELP fencepost_core_up Whether the core answers\n"
        "# TYPE fencepost_core_up gauge\n"
        'fencepost_core_up{core="0"} 1\n'
        'fencepost_core_up{core="1"} 1\n'
        "# HELP led Partitions led\n"
        "# TYPE led gauge\n"
        'led{core="0"} 3.0\n'
        'led{core="1"} 5.0\n'
        "# HELP bytes_total Bytes\n"
        "# TYPE bytes_total counter\n"
        'bytes_total{core="0",topic="a b"} 7.0\n'
        "# HELP other Only here\n"
        "# TYPE other gauge\n"
        'other{core="1"} 1.0\n'
    )


def test_a_core_that_does_not_answer_is_down() -> None:
    assert b'fencepost_core_up{core="1"} 0\n' in merged({0: ONE, 1: None})


def pages(metrics: bytes, reasons: dict[str, str]) -> dict[bytes, Callable[[], Awaitable[Page]]]:
    async def page() -> Page:
        return HTTPStatus.OK, "text/plain", metrics

    return pages_of(page, lambda: Readiness(reasons, {"broker": 7}))


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "1.pages")


async def other_core(socket_path: str, reasons: dict[str, str], nursery: trio.Nursery) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(socket_path)
    listening.listen()
    listening.setblocking(False)
    server = MetricsServer(pages(TWO, reasons))
    server.adopt(listening)
    nursery.start_soon(server.run)


@pytest.mark.trio
async def test_the_core_that_is_asked_asks_the_others(socket_path: str, nursery: trio.Nursery) -> None:
    await other_core(socket_path, {"log_offline": "1 partition"}, nursery)
    both = AllPages(0, pages(ONE, {}), lambda: {1: socket_path}).pages
    status, kind, body = await both[b"/metrics"]()
    assert (status, kind) == (HTTPStatus.OK, "text/plain")
    assert b'led{core="1"} 5.0' in body
    status, _, body = await both[b"/ready"]()
    assert status is HTTPStatus.SERVICE_UNAVAILABLE
    assert json.loads(body)["reasons"] == {"core_1_log_offline": "1 partition"}


@pytest.mark.trio
async def test_ready_names_the_core_that_is_missing(socket_path: str) -> None:
    status, _, body = await AllPages(0, pages(ONE, {}), lambda: {1: socket_path}).pages[b"/ready"]()
    assert status is HTTPStatus.SERVICE_UNAVAILABLE
    assert list(json.loads(body)["reasons"]) == ["core_1"]
