"""Forged, odd and hostile requests to the console: what is refused, and that nothing else happens."""

from urllib.parse import quote

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command_json
from tests.kit.console import ConsoleProcess, Visitor
from tests.kit.open_transactions import begin
from tests.kit.wire import Wire


def test_a_forged_form_is_refused(visitor: Visitor, wire: Wire, broker: BrokerProcess) -> None:
    held = begin(wire, "forged", "forged-1")
    visitor.get("/transaction?id=forged-1")
    fields = {"id": "forged-1", "sure": "yes"}
    assert visitor.post("/transaction/abort", {**fields, "token": "x"}).status == 403
    assert visitor.post("/transaction/abort", fields, origin="http://evil.example").status == 403
    other = Visitor(f"http://{visitor.host}:{visitor.port}")
    other.get("/")
    other.token = visitor.token
    assert other.post("/transaction/abort", fields).status == 403, "each session has its own token"
    assert visitor.post("/transaction/abort", {**fields, "more": "x" * 1_100_000}).status == 413
    assert visitor.post("/transaction/abort", {**fields, "more": "x" * 9_000}).status == 400
    assert visitor.get("/topics", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert visitor.get("/topics", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert visitor.get("/transaction/abort").status == 405
    assert command_json(broker, "txn", "describe", "forged-1")["state"] == "Ongoing"
    assert wire.end_txn("forged-1", held, commit=True).error_code == ErrorCode.NONE


def test_names_that_look_like_html_are_shown_as_they_are(visitor: Visitor, wire: Wire) -> None:
    name = "<img src=x onerror=alert(1)>/'\"&"
    wire.init_producer_id(name)
    assert wire.commit_offsets(name, "nowhere", 0) is not None
    for path in ("/transactions", "/audit", "/groups"):
        page = visitor.get(path)
        assert "<img src=x" not in page.text, path
    assert name in visitor.get("/transactions").words.replace("&quot;", '"')
    found = visitor.get("/transaction?id=%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%2F%27%22%26")
    assert (found.status, "<img src=x" in found.text) == (200, False)


@pytest.mark.parametrize(
    "path",
    [
        "/topics?page=",
        "/topics/log/",
        "/topics/log/0?at=",
        "/data/log/log/0?at=",
        "/live-log/log/0?from=",
        "/live-tail/log?partition=",
        "/audit/count?topic=log&from=",
        "/settings?kind=broker&name=",
    ],
)
def test_a_number_that_is_none_is_no_error_of_ours(visitor: Visitor, path: str) -> None:
    assert visitor.get("/", host="localhost:99999").status == 200
    for number in ("9" * 19, "9" * 3000, "-1", "1e3", "²"):
        assert visitor.get(path + quote(number)).status in (404, 502), number


def test_a_proxy_with_tls_may_stand_before_it(visitor: Visitor, wire: Wire) -> None:
    wire.create_topic("proxied")
    visitor.get("/settings?kind=topic&name=proxied")
    fields = {"kind": "topic", "name": "proxied", "setting": "retention.ms", "value": "1000"}
    assert visitor.post("/settings/change", fields, origin=f"https://{visitor.host}:{visitor.port}").status == 200


def test_the_log_has_what_was_changed(visitor: Visitor, wire: Wire, console: ConsoleProcess) -> None:
    begin(wire, "logged", "logged-1")
    visitor.get("/transaction?id=logged-1")
    visitor.post("/transaction/abort", {"id": "logged-1", "sure": "yes"})
    assert "console action user=- address=127.0.0.1 what=aborted the transaction of 'logged-1'" in console.said()
