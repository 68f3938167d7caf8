"""The pages of the console, over HTTP: what they show, what their forms do, and what is refused."""

from itertools import islice

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json
from tests.kit.console import ConsoleProcess, Visitor, wait_for
from tests.kit.open_transactions import begin, hang, write
from tests.kit.share_members import ACCEPT, REJECT, RELEASE, Ack, ShareMember, begin_queue, topic_id_of
from tests.kit.wire import Wire, batch_of

PAGES = [
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/transactions", "Transactions"),
    ("/stuck", "Why do readers make no progress?"),
    ("/hanging", "Hanging transactions"),
    ("/groups", "Groups"),
    ("/queues", "Share groups"),
    ("/metadata", "metadata.version"),
    ("/settings", "all brokers together"),
    ("/settings?kind=broker&name=1", "Change a setting"),
    ("/settings?kind=broker&name=all", "Change a setting"),
    ("/audit", "Fences and refusals"),
]


@pytest.mark.parametrize(("path", "content"), PAGES)
def test_each_page_is_there_and_its_stream_too(visitor: Visitor, path: str, content: str) -> None:
    shown = visitor.get(path)
    assert (shown.status, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert content in shown.words
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http://" not in shown.text.replace("http://www.w3.org/2000/svg", ""), "nothing from elsewhere"
    assert " style=" not in shown.text, "the policy forbids it"
    if "data-live=" in shown.text:
        [(name, html)] = islice(visitor.events(f"/live{path}"), 1)
        assert (name, "<html" in html) == ("html", False)


def test_the_files_of_the_pages_are_the_consoles_own(visitor: Visitor) -> None:
    page = visitor.get("/topics").text
    for path in ("/static/console.css", "/static/console.js", "/static/icon.svg"):
        assert path in page
        assert visitor.get(path).status == 200
    assert visitor.get("/static/../app.py").status == 404
    assert visitor.get("/nowhere").status == 404
    assert visitor.get("/topics?page=2").status == 404
    assert visitor.get("/health").text == "ok\n"


def test_another_name_of_the_host_is_refused(visitor: Visitor, console: ConsoleProcess) -> None:
    """Against DNS rebinding."""
    assert visitor.get("/", host="evil.example").status == 421
    assert visitor.get("/", host=f"localhost:{visitor.port}").status == 200


def test_topics_are_found_by_a_part_of_the_name(visitor: Visitor, wire: Wire) -> None:
    for number in range(120):
        wire.create_topic(f"many-{number:03}")
    wait_for(lambda: "120 topics match" in visitor.get("/topics?q=many-").words)
    first, second = visitor.get("/topics?q=many-").text, visitor.get("/topics?q=many-&page=2").text
    assert ("many-099" in first, "many-100" in first, "many-100" in second) == (True, False, True)
    assert "many-007" in visitor.get("/topics?q=y-007").text
    assert "No topic has this" in visitor.get("/topics?q=<b>none").words
    assert "<b>none" not in visitor.get("/topics?q=<b>none").text


def test_a_topic_that_does_not_exist(visitor: Visitor) -> None:
    for path in ("/topics/none", "/topics/none/0", "/stuck/none/0", "/topics/none/tail", "/data/log/none/0"):
        shown = visitor.get(path)
        assert (shown.status, "none" in shown.words) == (404, True), path


# -- transactions


def test_a_stuck_transaction_is_found_and_ended_by_the_console_alone(
    visitor: Visitor, wire: Wire, broker: BrokerProcess
) -> None:
    held = begin(wire, "stuck", "stuck-1")
    assert wire.commit_offsets("waiting", "stuck", 0) is ErrorCode.NONE
    assert "stuck:0 1 2 1 stuck-1" in visitor.get("/stuck").words
    why = visitor.get("/stuck/stuck/0")
    assert f"Held by producer {held[0]}, epoch {held[1]}" in why.words
    assert "billing at 127.0.0.1" in why.words
    assert "waiting" in why.words
    assert f"fencepost txn abort stuck-1 --bootstrap {broker.address}" in why.words
    assert "Holds readers back on stuck:0" in visitor.get("/transaction?id=stuck-1").words

    unsure = visitor.post("/transaction/abort", {"id": "stuck-1"})
    assert (unsure.status, "tick the box" in unsure.words) == (400, True)
    assert command_json(broker, "txn", "describe", "stuck-1")["state"] == "Ongoing"
    done = visitor.post("/transaction/abort", {"id": "stuck-1", "sure": "yes"})
    assert (done.status, "is aborted. Its producer" in done.words) == (200, True)
    assert "is aborted. Its producer" not in visitor.get("/transaction?id=stuck-1").words, "it is said once"
    wait_for(lambda: "nothing holds readers back" in visitor.get("/stuck/stuck/0").words)
    assert wire.end_txn("stuck-1", held, commit=True).error_code in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    )
    audit = visitor.get("/audit").words
    assert "aborted the transaction of 'stuck-1'" in audit
    assert "refused" in audit
    again = visitor.post("/transaction/abort", {"id": "stuck-1", "sure": "yes"})
    assert (again.status, "not open any more" in again.words) == (409, True)


def test_only_the_transaction_that_was_shown_is_aborted(visitor: Visitor, wire: Wire, broker: BrokerProcess) -> None:
    """The page may be old: its transaction has ended, and the producer, which is well, has begun the next one."""
    held = begin(wire, "next", "next-1")
    visitor.get("/transaction?id=next-1")
    assert wire.end_txn("next-1", held, commit=True).error_code == ErrorCode.NONE
    held = wire.init_producer_id("next-1")
    wire.add_partitions("next-1", held, "next", 1)
    write(wire, "next", "next-1", held, partition=1)
    refused = visitor.post("/transaction/abort", {"id": "next-1", "sure": "yes"})
    assert (refused.status, "this is another one" in refused.words) == (409, True)
    assert wire.end_txn("next-1", held, commit=True).error_code == ErrorCode.NONE


def test_a_hanging_transaction_is_found_and_ended(visitor: Visitor, wire: Wire, broker: BrokerProcess) -> None:
    """Row T20: and a living one is not touched."""
    lost = hang(wire, "hung", "hung-1")
    alive = wire.init_producer_id("hung-2")
    wire.add_partitions("hung-2", alive, "hung", 0)
    write(wire, "hung", "hung-2", alive)
    assert "hung:0" in visitor.get("/hanging").words
    why = visitor.get("/stuck/hung/0")
    assert "It hangs: nothing will end it" in why.words
    other = visitor.post("/stuck/hung/0/repair", {"sure": "yes", "holder": f"{alive[0]}:1"})
    assert (other.status, "does not hang here any more" in other.words) == (409, True)
    done = visitor.post("/stuck/hung/0/repair", {"sure": "yes", "holder": f"{lost[0]}:0"})
    assert (done.status, "The hanging transaction" in done.words) == (200, True)
    [still] = command_json(broker, "txn", "producers", "hung:0", "--open")
    assert still["producer_id"] == alive[0]
    assert wire.end_txn("hung-2", alive, commit=True).error_code == ErrorCode.NONE


def test_a_fenced_client_is_in_the_audit(visitor: Visitor, wire: Wire) -> None:
    held = begin(wire, "fenced", "fenced-1")
    wire.init_producer_id("fenced-1")
    assert wire.end_txn("fenced-1", held, commit=True).error_code != ErrorCode.NONE
    shown = visitor.get("/transaction?id=fenced-1").words
    assert "refused" in shown
    assert "newcomer" in shown
    assert "fenced-1" in visitor.get("/audit").words


# -- the partition log


def test_the_log_of_a_partition_as_the_picture_gets_it(visitor: Visitor, wire: Wire) -> None:
    held = begin(wire, "log", "log-1")
    wire.end_txn("log-1", held, commit=False)
    held = wire.init_producer_id("log-1")
    wire.add_partitions("log-1", held, "log", 0)
    write(wire, "log", "log-1", held)
    wait_for(lambda: visitor.json("/data/log/log/0")["high"] == 4)
    found = visitor.json("/data/log/log/0")
    assert (found["start"], found["stable"], found["high"], found["first"], found["next"]) == (0, 3, 4, 0, 4)
    assert [(one["base"], one["marker"], one["outcome"]) for one in found["batches"]] == [
        (0, None, "plain"),
        (1, None, "aborted"),
        (2, "ABORT", "plain"),
        (3, None, "open"),
    ]
    assert found["batches"][1]["fields"]["transactional"] == "yes"
    later = visitor.json("/data/log/log/0?at=1")
    assert later["batches"][0]["base"] == 1
    empty = visitor.json("/data/log/log/1")
    assert (empty["batches"], empty["high"]) == ([], 0)
    assert visitor.get("/data/log/log/0?at=x").status == 404
    assert visitor.get("/topics/log/0").status == 200


def test_the_picture_moves(visitor: Visitor, wire: Wire) -> None:
    held = begin(wire, "moving", "moving-1")
    start = visitor.json("/data/log/moving/0")["next"]
    events = visitor.events(f"/live-log/moving/0?from={start}")
    first = next(events)
    assert (first[0], first[1]["high"], first[1]["stable"]) == ("more", 2, 1)
    write(wire, "moving", "moving-1", held, sequence=1)
    name, news = next(events)
    assert (name, [one["outcome"] for one in news["batches"]], news["stable"]) == ("more", ["open"], 1)
    wire.end_txn("moving-1", held, commit=True)
    name, news = next(events)
    assert [one["marker"] for one in news["batches"]] == ["COMMIT"]
    events.close()


def test_a_page_of_long_ago_gets_a_new_window(visitor: Visitor, wire: Wire) -> None:
    wire.create_topic("grown")
    for _ in range(4):
        assert wire.produce("grown", batch_of(b"x" * 200_000)).error_code == ErrorCode.NONE
    events = visitor.events("/live-log/grown/0?from=0")
    name, found = next(events)
    assert (name, found["next"]) == ("window", 4)
    events.close()
    assert wire.delete_records("grown", 3) == (0, 3)
    events = visitor.events("/live-log/grown/0?from=1")
    name, found = next(events)
    assert (name, found["start"]) == ("window", 3), "retention deleted what the page would have continued at"
    events.close()


# -- the live tail


def test_the_isolation_of_a_tail(visitor: Visitor, wire: Wire) -> None:
    held = begin(wire, "tailed", "tailed-1")
    committed = visitor.events("/live-tail/tailed?isolation=read_committed")
    uncommitted = visitor.events("/live-tail/tailed?isolation=read_uncommitted")

    def until(events: object, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            name, news = next(events)  # type: ignore[call-overload]
            assert name == "records"
            found += [one["marker"] or one["value"]["text"] for one in news["records"]]
        return found

    assert [next(one)[1]["records"] for one in (committed, uncommitted)] == [[], []]
    assert until(uncommitted, 2) == ["before", "in a transaction"]
    assert until(committed, 1) == ["before"]
    wire.end_txn("tailed-1", held, commit=True)
    assert until(uncommitted, 1) == ["COMMIT"]
    assert until(committed, 1) == ["in a transaction"]
    committed.close()
    uncommitted.close()
    assert visitor.get("/live-tail/tailed?isolation=dirty").status == 404


def test_a_quick_topic_is_sampled(visitor: Visitor, wire: Wire) -> None:
    """A tail must not read all that a busy topic gets: what does not fit is skipped, and counted."""
    wire.create_topic("quick")
    events = visitor.events("/live-tail/quick")
    assert next(events)[1] == {"records": [], "skipped": 0}
    for _ in range(10):
        assert wire.produce("quick", batch_of(*[b"x" * 2000] * 100)).error_code == ErrorCode.NONE
    seen = skipped = 0
    while seen + skipped < 1000:
        _, news = next(events)
        seen, skipped = seen + len(news["records"]), skipped + news["skipped"]
    assert skipped > 0
    assert seen + skipped == 1000
    events.close()


def test_no_partition_of_a_tail_starves(visitor: Visitor, wire: Wire) -> None:
    """Large batches of some partitions must not keep others out of each step."""
    wire.create_topic("crowd", partitions=12)
    events = visitor.events("/live-tail/crowd")
    next(events)
    for _ in range(3):
        for partition in range(12):
            batch = batch_of(*[b"x" * 1000] * 40)
            assert wire.produce("crowd", batch, partition=partition).error_code == ErrorCode.NONE
    seen: set[int] = set()
    while len(seen) < 12:
        seen |= {one["partition"] for one in next(events)[1]["records"]}
    events.close()


# -- groups


def test_true_lag_and_a_reset_with_a_preview(visitor: Visitor, wire: Wire, broker: BrokerProcess) -> None:
    held = begin(wire, "read", "read-1")
    wire.end_txn("read-1", held, commit=False)
    wire.produce("read", batch_of(b"b", b"c"))
    assert wire.commit_offsets("readers", "read", 0) is ErrorCode.NONE
    wait_for(lambda: "read:0 0 5 5 3" in visitor.get("/group?id=readers").words)  # 3 of the 5 offsets are records
    fields = {"id": "readers", "place": "read:0", "way": "to_offset", "value": "3"}
    preview = visitor.post("/group/reset", fields)
    assert (preview.status, "Nothing is changed yet" in preview.words) == (200, True)
    assert f"fencepost group reset readers read:0 --to-offset 3 --bootstrap {broker.address}" in preview.words
    [before] = command_json(broker, "group", "lag", "readers")
    assert before["committed"] == 0
    done = visitor.post("/group/reset", {"id": "readers", "move": "read:0:3", "apply": "yes"})
    assert (done.status, "continues at the new offsets" in done.words) == (200, True)
    [after] = command_json(broker, "group", "lag", "readers")
    assert after["committed"] == 3
    for wrong, why in [
        ({"way": "to_offset", "value": "9" * 5000}, "too long"),
        ({"way": "by_duration", "value": "9" * 30 + "d"}, "not a"),
        ({"way": "to_offset", "value": "x"}, "not a whole number"),
        ({"way": "to_datetime", "value": "x"}, "not a date"),
        ({"way": "sideways"}, "Choose where"),
        ({"place": "other:0"}, "at least one partition"),
        ({"apply": "yes", "move": "read:0:99"}, "no offset 99"),
        ({"apply": "yes", "move": "nonsense"}, "not a place"),
        ({"apply": "yes"}, "no preview"),
    ]:
        refused = visitor.post("/group/reset", {**fields, **wrong})
        assert (refused.status, why in refused.words) == (400, True), (wrong, refused.words)


# -- settings and metadata


def test_a_setting_is_changed_after_a_preview(visitor: Visitor, wire: Wire, broker: BrokerProcess) -> None:
    wire.create_topic("set")
    fields = {"kind": "topic", "name": "set", "setting": "retention.ms", "value": "1000"}
    visitor.get("/settings?kind=topic&name=set")
    preview = visitor.post("/settings/change", fields)
    assert "retention.ms 604800000 1000" in preview.words
    assert "fencepost config set topic set retention.ms=1000" in preview.words
    assert "set here itself" not in visitor.get("/settings?kind=topic&name=set").words
    done = visitor.post("/settings/change", {**fields, "apply": "yes"})
    assert "retention.ms 1000 dynamic topic" in done.words
    wrong = visitor.post("/settings/change", {**fields, "value": "soon"})
    assert (wrong.status, "Nothing was done" in wrong.words) == (400, True)
    unset = visitor.post("/settings/change", {**fields, "unset": "1", "apply": "yes"})
    assert "retention.ms 604800000 default" in unset.words
    assert visitor.get("/settings?kind=shoe&name=x").status == 404


def test_the_history_of_the_metadata(visitor: Visitor, wire: Wire, broker: BrokerProcess) -> None:
    wire.create_topic("remembered")
    shown = visitor.get("/metadata").words
    if broker.data_dir is None or not (broker.data_dir / "__cluster_metadata-0").is_dir():
        assert "with --data DIR" in shown
        return
    assert "/topics/remembered created" in shown
    assert command(broker, "topic", "delete", "remembered").exit_code == 0
    wait_for(lambda: "/topics/remembered deleted" in visitor.get("/metadata").words)


def test_a_partition_is_counted(visitor: Visitor, wire: Wire) -> None:
    held = begin(wire, "counted", "counted-1")
    wire.end_txn("counted-1", held, commit=False)
    wire.produce("counted", batch_of(b"b", b"c"))
    wait_for(lambda: "the whole log from there" in visitor.get("/audit/count?topic=counted&partition=0").words)
    shown = visitor.get("/audit/count?topic=counted&partition=0").words
    assert "Records without a transaction 3" in shown
    assert "Records of aborted transactions 1" in shown
    assert "A read_committed reader gets 3" in shown
    assert visitor.get("/audit/count?topic=counted&partition=7").status == 404
    assert visitor.get("/audit/count?topic=&partition=0").status == 404


# -- share groups


def test_a_share_group_with_its_records_and_members(visitor: Visitor, wire: Wire) -> None:
    wire.create_topic("shared")
    wire.produce("shared", batch_of(*[b"%d" % number for number in range(9)]))
    begin_queue(wire, "sharing", "shared")
    assert "has not begun to read" in visitor.get("/queue?id=sharing").words
    member = ShareMember(wire, "sharing", "one", topic_id_of(wire, "shared"))
    assert len(member.acquire(max_records=6)) == 6
    acks = (Ack(0, 1, 1, ACCEPT), Ack(0, 2, 2, REJECT), Ack(0, 3, 3, RELEASE))
    assert member.acknowledge(*acks) == [0]
    assert 'href="/queue?id=sharing"' in visitor.get("/groups?q=shar").text
    assert "sharing Stable 1 1 7" in visitor.get("/queues?q=shar").words
    shown = visitor.get("/queue?id=sharing&place=shared:0&offset=3")
    for words in (
        "Depth 7",
        "Its own settings: share.auto.offset.reset=earliest",
        "Not done yet: 3 never delivered, 4 delivered once",
        "3 held · 1 waiting · 1 accepted · 1 archived · 3 never delivered · depth 7",
        "one billing /127.0.0.1 3 shared:0",
        "shared:0, offset 3: available It was delivered once, and released.",
    ):
        assert words in shown.words
    assert shown.text.count("<rect") == 6
    assert visitor.get("/queue?id=nothing").status == 404
    assert "offset 3" not in visitor.get("/queue?id=sharing&place=other:0&offset=3").words
