"""The console in a real Chromium: the picture moves, a stuck transaction is ended, keys, looks, a phone."""

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from matplotlib.image import imread

from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.chromium import chromium
from tests.kit.command_line import command_json
from tests.kit.console import ConsoleProcess, wait_for
from tests.kit.open_transactions import begin, write
from tests.kit.share_members import ACCEPT, Ack, ShareMember, begin_queue, topic_id_of
from tests.kit.wire import Wire, batch_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ALL_PAGES = [
    "/",
    "/topics",
    "/topics/seen",
    "/topics/seen/0",
    "/topics/seen/tail?isolation=read_uncommitted",
    "/transactions",
    "/transaction?id=seen-1",
    "/stuck",
    "/stuck/seen/0",
    "/hanging",
    "/groups",
    "/group?id=seen-readers",
    "/queues",
    "/queue?id=seen-workers&place=seen:0&offset=1",
    "/metadata",
    "/settings",
    "/settings?kind=topic&name=seen",
    "/audit",
    "/audit/count?topic=seen&partition=0",
]
PHONE = {"width": 390, "height": 844}
PLENTY_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: "Browser", console: ConsoleProcess) -> Iterator["Page"]:
    """A page of the console; afterwards: no script failed, and the policy forbade nothing."""
    context = browser.new_context(base_url=console.url)
    opened = context.new_page()
    opened.set_default_timeout(PLENTY_MS)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def seen(broker: BrokerProcess) -> Iterator[Wire]:
    """A topic with an open transaction, and a group that waits for it."""
    with Wire(broker.connect(), client_id="billing") as wire:
        begin(wire, "seen", "seen-1")
        assert wire.commit_offsets("seen-readers", "seen", 0) is ErrorCode.NONE
        begin_queue(wire, "seen-workers", "seen")
        yield wire


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ALL_PAGES)
def test_every_page_in_both_looks_and_on_a_phone(
    browser: "Browser", console: ConsoleProcess, seen: Wire, path: str, scheme: str
) -> None:
    """Text differs enough from its ground (WCAG AA), nothing is wider than a phone, and no script fails."""
    context = browser.new_context(base_url=console.url, viewport=PHONE, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto(path)
    page.wait_for_selector("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "the page itself scrolls sideways"
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNLABELLED) == []
    assert wrong == []
    context.close()


def test_a_table_that_goes_on_says_so_on_a_phone(browser: "Browser", console: ConsoleProcess, seen: Wire) -> None:
    """Tables were cut at the edge without a hint. The edge is shaded until the table is scrolled to its end."""
    context = browser.new_context(base_url=console.url, viewport=PHONE, color_scheme="light")
    page = context.new_page()
    page.goto("/topics/seen")
    table = page.locator(".scroll").first
    table.wait_for()
    assert table.evaluate("one => one.scrollWidth > one.clientWidth"), (
        "this table fits; the test needs one that does not"
    )
    shades = []
    for left in (0, 10_000):
        table.evaluate(f"one => {{ one.scrollLeft = {left}; }}")
        pixels = imread(BytesIO(table.screenshot()), format="png")
        middle = pixels.shape[0] * 3 // 4
        shades.append([pixels[middle, column, :3].min() < 0.8 for column in (3, pixels.shape[1] - 4)])
    assert shades == [[False, True], [True, False]]
    context.close()


CONTRAST = """() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > .5) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("main *, header *, footer *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const unseen = element.closest("svg, .hidden, option, datalist, noscript") || !element.getClientRects().length;
    if (!own || unseen) continue;
    const a = light(parts(getComputedStyle(element).color)), b = light(ground(element));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const name = `${element.tagName} ${element.className} ${element.textContent.trim().slice(0, 30)}`;
    if (ratio < 4.5) poor.push(`${name}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""
UNLABELLED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, button")]
  .filter((one) => !(one.labels?.length || one.textContent.trim() || one.title || one.getAttribute("aria-label")))
  .map((one) => one.outerHTML)"""


def test_the_picture_follows_the_log(page: "Page", wire: Wire) -> None:
    held = begin(wire, "drawn", "drawn-1")
    page.goto("/topics/drawn/0")
    page.wait_for_selector("rect.batch.open")
    assert page.locator("rect.batch.plain").count() == 1
    assert (page.inner_text("#stable"), page.inner_text("#high"), page.inner_text("#held")) == ("1", "2", "1")
    write(wire, "drawn", "drawn-1", held, sequence=1)
    wait_for(lambda: page.locator("rect.batch.open").count() == 2)
    wire.end_txn("drawn-1", held, commit=True)
    page.wait_for_selector("rect.commit-mark")
    assert page.locator("rect.batch.open").count() == 0
    assert page.locator("rect.batch.committed").count() == 2
    wait_for(lambda: page.inner_text("#held") == "0")
    held = wire.init_producer_id("drawn-1")
    wire.add_partitions("drawn-1", held, "drawn", 0)
    write(wire, "drawn", "drawn-1", held)
    page.wait_for_selector("rect.batch.open")
    wire.end_txn("drawn-1", held, commit=False)
    page.wait_for_selector("rect.abort-mark")
    assert page.locator("rect.batch.aborted").count() == 1


def test_a_batch_is_selected_by_a_click_and_by_keys(page: "Page", seen: Wire) -> None:
    page.goto("/topics/seen/0")
    page.wait_for_selector("rect.batch.open")
    page.locator("rect.batch.open").click()
    assert "transactional\nyes" in page.inner_text("#batch")
    page.focus("#picture")
    page.keyboard.press("ArrowLeft")
    assert "data, no transaction" in page.inner_text("#batch")
    page.keyboard.press("End")
    assert "data, open" in page.inner_text("#batch")
    page.keyboard.press("Home")
    assert "base offset\n0" in page.inner_text("#batch")


def test_a_stuck_transaction_is_ended_from_the_overview_with_the_keyboard(
    page: "Page", wire: Wire, broker: BrokerProcess
) -> None:
    begin(wire, "blocked", "blocked-1")
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.wait_for_url("**/stuck")
    page.locator("tr", has_text="blocked:0").get_by_role("link", name="Why, and what to do").press("Enter")
    page.wait_for_selector("text=Held by producer")
    page.get_by_label("I am sure").press("Space")
    page.get_by_role("button", name="Abort the transaction").press("Enter")
    page.wait_for_selector("text=is aborted. Its producer")
    assert command_json(broker, "txn", "describe", "blocked-1")["state"] != "Ongoing"


def test_the_switch_of_a_live_tail(page: "Page", wire: Wire) -> None:
    held = begin(wire, "switched", "switched-1")
    page.goto("/topics/switched/tail")
    page.wait_for_selector("#tail tr >> text=before")
    assert page.locator("#tail tr").count() == 1
    page.get_by_label("read_uncommitted").check()
    page.wait_for_selector("#tail tr >> text=in a transaction")
    wire.end_txn("switched-1", held, commit=False)
    page.wait_for_selector("#tail tr >> text=ABORT")
    page.get_by_label("read_committed").check()
    wait_for(lambda: page.locator("#tail tr").count() == 1)
    wire.produce("switched", batch_of(b"needle"))
    wire.produce("switched", batch_of(b"hay"))
    page.wait_for_selector("#tail tr >> text=hay")
    page.fill("#search", "needle")
    page.get_by_label("read_uncommitted").check()
    page.wait_for_selector("#tail tr >> text=needle")
    assert page.locator("#tail tr >> text=hay").count() == 0


def test_the_picture_of_a_queue_follows_its_members(page: "Page", wire: Wire) -> None:
    wire.create_topic("queued")
    wire.produce("queued", batch_of(*[b"%d" % number for number in range(10)]))
    begin_queue(wire, "queued-workers", "queued")
    page.goto("/groups")
    page.get_by_role("link", name="queued-workers").click()
    page.wait_for_selector("h1 >> text=queued-workers")
    member = ShareMember(wire, "queued-workers", "one", topic_id_of(wire, "queued"))
    assert len(member.acquire(max_records=4)) == 4
    page.wait_for_selector("rect.q.acquired", state="attached")
    assert page.locator("rect.q.new title").text_content() == "4 to 9: new"
    assert member.acknowledge(Ack(0, 1, 2, ACCEPT)) == [0]
    page.wait_for_selector("rect.q.acknowledged", state="attached")
    page.get_by_label("Offset").fill("3")
    page.get_by_role("button", name="Why?").click()
    page.wait_for_selector("#why >> text=Member one (billing at 127.0.0.1) holds it, delivered once.")


def test_pages_refresh_themselves(page: "Page", wire: Wire) -> None:
    page.goto("/stuck")
    assert page.locator("text=fresh:0").count() == 0
    held = begin(wire, "fresh", "fresh-1")
    page.wait_for_selector("text=fresh:0")
    wire.end_txn("fresh-1", held, commit=True)
    page.wait_for_selector("text=fresh:0", state="detached")


def test_more_tabs_than_a_browser_has_connections(browser: "Browser", console: ConsoleProcess, seen: Wire) -> None:
    """A page holds a stream while it is visible only: six to a host is all that HTTP/1.1 gets."""
    context = browser.new_context(base_url=console.url)
    hide = "Object.defineProperty(document, 'hidden', {value: true});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))"
    for number in range(9):
        tab = context.new_page()
        tab.set_default_timeout(PLENTY_MS)
        tab.goto("/topics/seen/0")
        tab.wait_for_selector("rect.batch.open")
        if number < 8:
            tab.evaluate(hide)  # Chromium without a screen has only visible tabs
    context.close()


def test_a_far_time_is_shown(page: "Page", wire: Wire) -> None:
    """JavaScript has no date after the year 275760."""
    wire.create_topic("far", **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    wire.produce("far", batch_of(b"far", timestamp_ms=9 * 10**15))
    wire.produce("far", batch_of(b"near"))
    page.goto("/topics/far/tail")
    page.wait_for_selector("#tail tr >> text=near")
    page.wait_for_selector("#tail tr >> text=far")
    page.goto("/topics/far/0")
    page.locator("rect.batch").first.click()
    assert "9000000000000000" in page.inner_text("#batch")


def test_light_and_dark_by_a_key(page: "Page") -> None:
    page.goto("/audit")
    grounds = set()
    for _ in range(3):
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.keyboard.press("d")
    assert len(grounds) == 2
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_a_command_is_copied(page: "Page", seen: Wire) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/stuck/seen/0")
    page.get_by_role("button", name="Copy").click()
    page.wait_for_selector("text=Copied")
    assert "fencepost txn abort seen-1" in page.evaluate("navigator.clipboard.readText()")
