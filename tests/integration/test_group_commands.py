"""`fencepost group` against a running broker, as an operator types it (rows G7, G11)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import Result

from fencepost.client.core.consumer_protocol import Subscription, encode_assignment, encode_subscription
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api11_join_group as m11
from fencepost.protocol.messages import api14_sync_group as m14
from fencepost.protocol.messages import api25_add_offsets_to_txn as m25
from fencepost.protocol.messages import api68_consumer_group_heartbeat as m68
from fencepost.protocol.topics import TopicPartition
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json
from tests.kit.wire import NOW_MS, Wire, batch_of

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all."""
    with BrokerProcess(tmp_path_factory.mktemp("group"), settings={"storage": "memory"}) as running:
        yield running


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.connect(), client_id="billing") as connected:
        yield connected


def group(broker: BrokerProcess, *words: str) -> Result:
    """One command."""
    return command(broker, "group", *words)


def told(broker: BrokerProcess, *words: str) -> Any:
    """One command's JSON."""
    return command_json(broker, "group", *words)


def commit(wire: Wire, name: str, topic: str, *offsets: int, member: tuple[str, int] = ("", -1), **how: int) -> None:
    """Commit one offset for each partition from the first on."""
    identity = {"member_id": member[0], "generation_id_or_member_epoch": member[1]}
    assert wire.commit_offsets(name, topic, *offsets, **how, **identity) is ErrorCode.NONE


def join(wire: Wire, name: str, topic: str, instance_id: str | None = None) -> tuple[str, int]:
    """Become the only member of a group, and be given the topic's first partition."""
    protocols = [m11.JoinGroupRequestProtocol(name="range", metadata=encode_subscription(Subscription((topic,))))]
    fields = {"group_id": name, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    fields |= {"protocol_type": "consumer", "protocols": protocols, "group_instance_id": instance_id}
    joined = wire.call(11, 9, m11.JoinGroupRequest(member_id="", **fields))
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = wire.call(11, 9, m11.JoinGroupRequest(member_id=joined.member_id, **fields))
    assignment = encode_assignment([TopicPartition(topic, 0)])
    request = m14.SyncGroupRequest(
        group_id=name,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[m14.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    )
    assert wire.call(14, 5, request).error_code == ErrorCode.NONE
    return joined.member_id, joined.generation_id


def transact(wire: Wire, topic: str, name: str, *values: bytes, commit: bool | None) -> None:
    """Write a transaction of as many records; None leaves it open."""
    held = wire.init_producer_id(name)
    wire.add_partitions(name, held, topic, 0)
    header = {"transactional": True, "producer_id": held[0], "producer_epoch": held[1], "base_sequence": 0}
    wire.produce(topic, batch_of(*values, timestamp_ms=NOW_MS, **header), transactional_id=name)
    if commit is not None:
        assert wire.end_txn(name, held, commit=commit).error_code == ErrorCode.NONE


def test_lag_counts_what_a_reader_will_get_and_says_so(broker: BrokerProcess, wire: Wire) -> None:
    """Markers, aborted records and what is open have offsets, too: 11 offsets, of which 5 records will come."""
    wire.create_topic("lagging", partitions=2)
    wire.produce("lagging", batch_of(b"0", b"1", b"2"))
    transact(wire, "lagging", "lag-aborts", b"3", b"4", commit=False)
    transact(wire, "lagging", "lag-commits", b"6", b"7", b"8", commit=True)
    transact(wire, "lagging", "lag-open", b"10", commit=None)
    commit(wire, "behind", "lagging", 1, 0)
    first, second = told(broker, "lag", "behind")
    assert (first["partition"], first["committed"], first["last_stable_offset"]) == ("lagging:0", 1, 10)
    assert (first["lag_records"], first["exact"], first["held_back"]) == (5, True, 1)
    assert first["counts"] == "visible committed records"
    assert (second["lag_records"], second["exact"]) == (0, True)
    text = group(broker, "lag", "behind").stdout
    assert re.search(r"behind +lagging:0 +1 +10 +5 +1", text)
    assert "behind: 5 records to come" in text
    assert "LAG counts visible committed records: no transaction markers, nothing aborted." in text


def test_counting_is_bounded_and_an_estimate_is_called_one(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("long", partitions=2)
    for _ in range(3):
        transact(wire, "long", "long-aborts", b"x" * 700_000, commit=False)
    wire.produce("long", batch_of(b"a"), partition=1)
    commit(wire, "estimated", "long", 0, 0)
    whole = told(broker, "lag", "estimated")
    assert [(one["lag_records"], one["exact"]) for one in whole] == [(0, True), (1, True)]
    some = told(broker, "lag", "estimated", "--read", "0.5")
    assert [(one["lag_records"], one["exact"]) for one in some] == [(5, False), (1, True)]
    none = told(broker, "lag", "estimated", "--read", "0")
    assert [(one["lag_records"], one["exact"]) for one in none] == [(6, False), (1, False)]
    text = group(broker, "lag", "estimated", "--read", "0.5").stdout
    assert "<=5" in text
    assert "estimated: at most 6 records to come" in text
    assert "--read MIB reads more" in text


def test_what_retention_took_is_told(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("short")
    wire.produce("short", batch_of(b"a", b"b", b"c", b"d"))
    commit(wire, "slow", "short", 1)
    assert wire.delete_records("short", 3) == (ErrorCode.NONE, 3)
    result = group(broker, "lag", "slow")
    assert result.exit_code == 1
    assert re.search(r"slow +short:0 +1 +4 +1 +- +2", result.stdout)
    assert "records were deleted before their group read them" in result.stderr


def test_a_middle_of_a_batch_counts_from_there(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("middle")
    wire.produce("middle", batch_of(*[b"v"] * 10))
    commit(wire, "midway", "middle", 7)
    assert told(broker, "lag", "midway")[0]["lag_records"] == 3


def test_list_and_describe(broker: BrokerProcess, wire: Wire) -> None:
    """Row G11: states and types filter, a member is shown with its static place and its partitions."""
    wire.create_topic("described", partitions=2)
    member = join(wire, "described-1", "described", "place-1")
    commit(wire, "described-2", "described", 0)
    found = {one["group_id"]: one for one in told(broker, "list")}
    assert found["described-1"]["state"] == "Stable"
    assert (found["described-2"]["state"], found["described-2"]["type"]) == ("Empty", "classic")
    assert "described-2" not in {one["group_id"] for one in told(broker, "list", "--state", "stable")}
    assert "described-1" in {one["group_id"] for one in told(broker, "list", "--type", "Classic")}
    assert re.search(r"described-1 +classic +consumer +Stable", group(broker, "list").stdout)
    text = group(broker, "describe", "described-1").stdout
    assert re.search(rf"{member[0]} +place-1 +billing +/127.0.0.1 +described:0", text)
    assert f"fencepost group lag described-1 --bootstrap {broker.host}:{broker.port}" in text
    [read, *_] = told(broker, "lag", "described-1")
    assert (read["partition"], read["committed"], read["lag_records"], read["read_by"]) == (
        "described:0",
        None,
        None,
        member[0],
    )
    unknown = group(broker, "describe", "nobody")
    assert (unknown.exit_code, "`fencepost group list` shows all groups" in unknown.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "after", "remark"),
    [
        (("--to-earliest",), 0, ""),
        (("--to-latest",), 5, ""),
        (("--to-offset", "3"), 3, ""),
        (("--to-offset", "99"), 5, "the last stable offset"),
        (("--shift-by", "-1"), 1, ""),
        (("--shift-by", "-9"), 0, "the log begins there"),
        (("--shift-by", "2"), 4, ""),
        (("--by-duration", "90m"), 2, ""),
        (("--by-duration", "PT2H30M"), 1, ""),
        (("--by-duration", "7d"), 0, ""),
        (("--to-datetime", "2999-01-01"), 5, "no visible record is that late"),
        (("--to-datetime", "1999-01-01T00:00:00+05:00"), 0, ""),
    ],
)
def test_reset_goes_where_it_is_told(
    broker: BrokerProcess, wire: Wire, words: tuple[str, ...], after: int, remark: str
) -> None:
    """Each way; what is asked for beyond the log is brought within, and an open transaction is not skipped."""
    topic = "reset" + "".join(c for c in "".join(words) if c.isalnum())
    wire.create_topic(topic, partitions=2)
    for hours in (3, 2, 1, 0):
        wire.produce(topic, batch_of(b"v", timestamp_ms=NOW_MS - hours * HOUR_MS))
    wire.produce(topic, batch_of(b"v", timestamp_ms=NOW_MS))
    transact(wire, topic, topic, b"open", commit=None)
    commit(wire, topic, topic, 2, 0)
    dry = told(broker, "reset", topic, f"{topic}:0", *words, "--dry-run")
    expected = {"partition": f"{topic}:0", "before": 2, "after": after, "remark": remark, "dry_run": True}
    assert dry == [expected]
    assert told(broker, "lag", topic)[0]["committed"] == 2
    result = group(broker, "reset", topic, f"{topic}:0", *words)
    assert result.exit_code == 0, result.output
    assert [one["committed"] for one in told(broker, "lag", topic)] == [after, 0]


def test_reset_of_many_partitions_and_of_a_group_that_is_not_there_yet(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("many", partitions=3)
    wire.produce("many", batch_of(b"a", b"b"), partition=2)
    result = group(broker, "reset", "fresh", "many", "--to-latest")
    assert result.exit_code == 0, result.output
    assert re.search(r"many:2 +none +2", result.stdout)
    assert [one["committed"] for one in told(broker, "lag", "fresh")] == [0, 0, 2]
    assert [one["after"] for one in told(broker, "reset", "fresh", "--all", "--to-earliest")] == [0, 0, 0]


def test_reset_is_refused_while_somebody_reads_or_a_transaction_decides(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("busy")
    join(wire, "busy", "busy")
    refused = group(broker, "reset", "busy", "busy", "--to-earliest")
    assert refused.exit_code == 1
    assert "is Stable with 1 member: stop them first" in refused.stderr
    assert f"fencepost group describe busy --bootstrap {broker.host}:{broker.port}" in refused.stderr
    held = wire.init_producer_id("undecided")
    request = m25.AddOffsetsToTxnRequest(
        transactional_id="undecided", producer_id=held[0], producer_epoch=held[1], group_id="undecided"
    )
    assert wire.call(25, 3, request).error_code == ErrorCode.NONE
    commit(wire, "undecided", "busy", 0)
    assert wire.commit_in_transaction("undecided", "busy", 1, "undecided", held, version=3) is ErrorCode.NONE
    for seconds in ("0.5", "5", "50"):  # on a busy machine even the way to the broker may take too long
        undecided = group(broker, "reset", "undecided", "busy", "--to-latest", "--timeout", seconds)
        assert undecided.exit_code == 1
        if "wait until" in undecided.stderr:
            break
    assert "wait until that transaction has ended" in undecided.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("reset", "g", "t"), "give exactly one of --to-earliest"),
        (("reset", "g", "t", "--to-earliest", "--to-latest"), "give exactly one of --to-earliest"),
        (("reset", "g", "--to-earliest"), "name topics or partitions, or use --all"),
        (("reset", "g", "t:x", "--to-earliest"), "write TOPIC or TOPIC:PARTITION"),
        (("reset", "g", "t", "--by-duration", "soon"), "write 90m, 2h30m, 7d, 2w, or PT2H30M"),
        (("reset", "g", "t", "--to-datetime", "soon"), "write it as 2026-11-21T18:00:00"),
        (("lag",), "name one or more groups, or use --all"),
        (("delete", "a", "b", "--offsets", "t"), "--offsets goes with one GROUP"),
    ],
)
def test_wrong_usage_is_explained(broker: BrokerProcess, words: tuple[str, ...], says: str) -> None:
    result = group(broker, *words)
    assert (result.exit_code, says in result.stderr) == (2, True), result.output


def test_a_topic_or_partition_that_is_not_there_is_told(broker: BrokerProcess, wire: Wire) -> None:
    wire.create_topic("two", partitions=2)
    for place in ("nowhere", "two:2"):
        result = group(broker, "reset", "g", place, "--to-earliest")
        assert (result.exit_code, "the topic or partition does not exist" in result.stderr) == (1, True), result.output


def test_delete_takes_empty_groups_only_and_a_dry_run_nothing(broker: BrokerProcess, wire: Wire) -> None:
    """Rows G7 and G11: NON_EMPTY_GROUP and GROUP_ID_NOT_FOUND in words."""
    wire.create_topic("deleted", partitions=2)
    commit(wire, "old", "deleted", 4, 5)
    join(wire, "alive", "deleted")
    dry = group(broker, "delete", "old", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "Would delete group 'old' with 2 committed offsets.\n")
    result = group(broker, "delete", "old", "alive", "nobody")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "Deleted group 'old' with 2 committed offsets.",
        "Kept group 'alive' with 0 committed offsets: it has 1 member.",
        "Kept group 'nobody': it does not exist.",
    ]
    assert {"old", "alive"} & {one["group_id"] for one in told(broker, "list")} == {"alive"}


def test_some_offsets_go_while_the_group_lives(broker: BrokerProcess, wire: Wire) -> None:
    """Row G7: OffsetDelete (KIP-496); a topic that members read keeps its offsets."""
    wire.create_topic("read")
    wire.create_topic("unread", partitions=2)
    member = join(wire, "lives", "read")
    commit(wire, "lives", "read", 0, member=member)
    commit(wire, "lives", "unread", 7, 8, member=member)
    refused = group(broker, "delete", "lives", "--offsets", "read")
    assert refused.exit_code == 1
    assert "Kept offset 0 of read:0: members of the group read this topic." in refused.stdout
    dry = group(broker, "delete", "lives", "--offsets", "unread:1", "--dry-run")
    assert dry.stdout == "Would delete offset 8 of unread:1.\n"
    assert group(broker, "delete", "lives", "--offsets", "unread:1").stdout == "Deleted offset 8 of unread:1.\n"
    assert [one["partition"] for one in told(broker, "lag", "lives")] == ["read:0", "unread:0"]
    nothing = group(broker, "delete", "lives", "--offsets", "unread:1")
    assert (nothing.exit_code, "has no committed offset there" in nothing.stderr) == (1, True)


def test_groups_of_the_consumer_protocol_are_looked_at_and_left_alone_like_any_other(
    broker: BrokerProcess, wire: Wire
) -> None:
    """KIP-848: who reads what comes from ConsumerGroupDescribe; reset and delete are refused while somebody reads."""
    wire.create_topic("modern")
    wire.create_topic("aside")
    wants: dict[str, Any] = {"subscribed_topic_names": ["modern"], "topic_partitions": [], "rebalance_timeout_ms": 9000}
    request = m68.ConsumerGroupHeartbeatRequest(group_id="modern", member_id="m-1", instance_id="place", **wants)
    joined = wire.call(68, 1, request)
    assert joined.error_code == ErrorCode.NONE
    member = ("m-1", joined.member_epoch)
    for topic in ("modern", "aside"):
        commit(wire, "modern", topic, 0, member=member, version=9)
    assert "modern" in {one["group_id"] for one in told(broker, "list", "--type", "consumer")}
    assert re.search(r"m-1 +place +billing", group(broker, "describe", "modern").stdout)
    assert [one["partition"] for one in told(broker, "lag", "modern")] == ["aside:0", "modern:0"]
    assert "with 1 member: stop them first" in group(broker, "reset", "modern", "--all", "--to-earliest").stderr
    assert "it has 1 member" in group(broker, "delete", "modern").stdout
    assert "members of the group read this topic" in group(broker, "delete", "modern", "--offsets", "modern").stdout
    assert group(broker, "delete", "modern", "--offsets", "aside").exit_code == 0
    left = m68.ConsumerGroupHeartbeatRequest(group_id="modern", member_id="m-1", instance_id="place", member_epoch=-1)
    assert wire.call(68, 1, left).error_code == ErrorCode.NONE
    wire.produce("modern", batch_of(b"a", b"b"))
    assert group(broker, "reset", "modern", "modern", "--to-latest").exit_code == 0
    assert told(broker, "lag", "modern")[0]["committed"] == 2
    assert group(broker, "delete", "modern").stdout == "Deleted group 'modern' with 1 committed offset.\n"
