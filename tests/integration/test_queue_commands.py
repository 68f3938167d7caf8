"""`fencepost queue` against a running broker, as an operator types it (KIP-932)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fencepost.client.admin import ItemsFailedError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from fencepost.sync import Client
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import command, command_json
from tests.kit.share_members import ACCEPT, REJECT, RELEASE, Ack, ShareMember, beat, topic_id_of
from tests.kit.wire import NOW_MS, Wire, batch_of

LEAVE = -1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all."""
    settings = {"storage": "memory", "group.share.assignment.interval.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("queue"), settings=settings) as running:
        yield running


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.connect(), client_id="billing") as connected:
        yield connected


def queue(broker: BrokerProcess, *words: str) -> Result:
    return command(broker, "queue", *words)


def asked(broker: BrokerProcess, *words: str) -> Any:
    return command_json(broker, "queue", *words)


def why(broker: BrokerProcess, group: str, topic: str, offset: int) -> tuple[str, str]:
    """The state of a record and its sentence."""
    found = asked(broker, "why", group, topic, "0", str(offset))
    return found["state"], found["text"]


def begin(broker: BrokerProcess, wire: Wire, topic: str, records: int = 0, **settings: str) -> str:
    """A topic with records, each in its batch, and a group for it that begins at its first record."""
    group = f"{topic}-group"
    wire.create_topic(topic)
    for number in range(records):
        wire.produce(topic, batch_of(b"%d" % number, timestamp_ms=NOW_MS))
    words = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    done = command(broker, "config", "set", "group", group, "share.auto.offset.reset=earliest", *words)
    assert done.exit_code == 0, done.output
    return group


def joined(wire: Wire, group: str, topic: str, name: str = "one") -> ShareMember:
    """A member of the group with a session."""
    beat(wire, group, name, 0, topic)
    return ShareMember(wire, group, name, topic_id_of(wire, topic))


def test_depth_members_and_what_they_hold(broker: BrokerProcess, wire: Wire) -> None:
    group = begin(broker, wire, "seen", records=10)
    member = joined(wire, group, "seen")
    assert len(member.acquire(max_records=6)) == 6
    assert member.acknowledge(Ack(0, 1, 2, ACCEPT), Ack(0, 3, 3, REJECT), Ack(0, 4, 4, RELEASE)) == [0]
    [listed] = [one for one in asked(broker, "list", "--state", "Stable") if one["group_id"] == group]
    assert listed == {"group_id": group, "state": "Stable", "members": 1, "partitions": 1, "depth": 7}
    found = asked(broker, "describe", group)
    assert (found["type"], found["depth"], found["held"]) == ("share", 7, {"one": 2})
    assert found["deliveries"] == {"1": 3}
    assert found["settings"] == {"share.auto.offset.reset": "earliest"}
    [part] = found["partitions"]
    assert (part["start_offset"], part["high_watermark"], part["lag"], part["oldest_ms"]) == (0, 10, 7, NOW_MS)
    assert [(one["first_offset"], one["state"]) for one in part["states"]["ranges"]] == [
        (0, "acquired"), (1, "acknowledged"), (3, "archived"), (4, "available"), (5, "acquired"),
    ]  # fmt: skip
    wrong = command(broker, "group", "lag", group)
    assert (wrong.exit_code, f"use `fencepost queue describe {group}`" in wrong.stderr) == (1, True)
    text = queue(broker, "describe", group).stdout
    assert "3 records once" in text
    assert "seen:0         0     6   10      7     2     1        0     3" in text
    assert "one     billing  /127.0.0.1      2  seen:0" in text
    assert f"fencepost queue why {group} seen 0 0" in text


def test_why_a_record_does_not_move(broker: BrokerProcess, wire: Wire) -> None:
    settings = {"share_isolation_level": "read_committed", "share_partition_max_record_locks": "100"}
    group = begin(broker, wire, "why", records=200, **settings)
    beat(wire, group, "one", 0, "why")
    assert why(broker, group, "why", 0)[0] == "not begun"
    member = ShareMember(wire, group, "one", topic_id_of(wire, "why"))
    assert len(member.acquire(max_records=200)) == 100
    acks = (Ack(0, 0, 0, ACCEPT), Ack(0, 2, 2, ACCEPT), Ack(0, 3, 3, REJECT), Ack(0, 4, 4, RELEASE))
    assert member.acknowledge(*acks) == [0]
    held = wire.init_producer_id("why-1")
    wire.add_partitions("why-1", held, "why", 0)
    header = {"transactional": True, "producer_id": held[0], "producer_epoch": held[1], "base_sequence": 0}
    wire.produce("why", batch_of(b"open", **header), transactional_id="why-1")
    assert why(broker, group, "why", 0)[0] == "done"
    state, text = why(broker, group, "why", 1)
    assert (state, text.startswith("Member one (billing at 127.0.0.1) holds it, delivered once. Its lock ends in")) == (
        "acquired", True,
    )  # fmt: skip
    assert [why(broker, group, "why", offset)[0] for offset in (2, 3, 4)] == ["acknowledged", "archived", "available"]
    state, text = why(broker, group, "why", 150)
    assert (state, "the record at 1 has to be done first" in text) == ("beyond the limit", True)
    assert why(broker, group, "why", 200)[0] == "in an open transaction"
    assert why(broker, group, "why", 201)[0] == "not written"
    assert "fencepost txn why why:0" in queue(broker, "why", group, "why", "0", "200").stdout
    member.acquire(final=True, max_records=0)
    beat(wire, group, "one", LEAVE)
    assert why(broker, group, "why", 1) == (
        "available", "It was delivered once, and released. The group has no members: start one.",
    )  # fmt: skip
    missing = queue(broker, "why", group, "why", "7", "0")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (1, True)


def test_reset_and_delete_take_an_empty_group_only(broker: BrokerProcess, wire: Wire) -> None:
    """GroupMetadataManager.alterShareGroupOffsets, deleteGroups: NON_EMPTY_GROUP."""
    group = begin(broker, wire, "again", records=5)
    member = joined(wire, group, "again")
    assert len(member.acquire()) == 5
    assert member.acknowledge(Ack(0, 0, 3, ACCEPT)) == [0]
    for words in (("reset", group, "again", "--to-earliest"), ("delete", group)):
        refused = queue(broker, *words)
        assert (refused.exit_code, "1 member" in refused.output) == (1, True), words
    assert member.acknowledge(final=True) == []
    beat(wire, group, "one", LEAVE)
    preview = asked(broker, "reset", group, "again", "--to-earliest", "--dry-run")
    assert preview == [{"partition": "again:0", "before": 4, "after": 0, "remark": "", "dry_run": True}]
    assert asked(broker, "describe", group)["depth"] == 1
    done = queue(broker, "reset", group, "again:0", "--to-offset", "2")
    assert (done.exit_code, "begins there, on 1 partition" in done.stderr) == (0, True)
    assert asked(broker, "describe", group)["depth"] == 3
    asked(broker, "reset", group, "again", "--to-time", "2000-01-01")
    again = joined(wire, group, "again", "two")
    assert again.acquire() == [(offset, 1) for offset in range(5)]
    again.acknowledge(final=True)
    beat(wire, group, "two", LEAVE)
    assert asked(broker, "delete", group, "--dry-run") == [{"group": group, "refused": None, "dry_run": True}]
    assert queue(broker, "delete", group).exit_code == 0
    gone = queue(broker, "describe", group)
    assert (gone.exit_code, ErrorCode.GROUP_ID_NOT_FOUND.name in gone.stderr) == (1, True)


def test_a_group_of_another_type_is_none(broker: BrokerProcess, wire: Wire) -> None:
    """GroupCoordinatorService.shareGroupDescribe: GROUP_ID_NOT_FOUND. It is never deleted by this command."""
    wire.create_topic("other")
    assert wire.commit_offsets("classic", "other", 0) is ErrorCode.NONE
    assert "classic" not in [one["group_id"] for one in asked(broker, "list")]
    assert queue(broker, "describe", "classic").exit_code == 1
    kept = queue(broker, "delete", "classic")
    assert (kept.exit_code, "there is no share group of this name" in kept.stdout) == (1, True)
    assert queue(broker, "reset", "classic", "other", "--to-latest").exit_code == 1


def test_what_is_stored_is_shown_while_no_member_reads(broker: BrokerProcess, wire: Wire) -> None:
    """A share partition is forgotten with its last session: its states come from the share coordinator then."""
    group = begin(broker, wire, "stored", records=6)
    member = joined(wire, group, "stored")
    assert len(member.acquire()) == 6
    assert member.acknowledge(Ack(0, 1, 2, ACCEPT), Ack(0, 4, 4, REJECT)) == [0]
    assert member.acknowledge(final=True) == []
    beat(wire, group, "one", LEAVE)
    with Client(broker.address) as kafka, kafka.admin() as admin:
        found = admin.list_share_group_offsets(group, explain=True)
        assert admin.describe_share_groups(group)[group].state == "Empty"
        [(place, offset)] = found.items()
        assert (place, offset.start_offset, offset.lag) == (TopicPartition("stored", 0), 0, 3)
        assert offset.states is not None
        assert [(one.first_offset, one.last_offset, one.state) for one in offset.states.whole()] == [
            (0, 0, "available"), (1, 2, "acknowledged"), (3, 3, "available"), (4, 4, "archived"), (5, 5, "available"),
        ]  # fmt: skip
        assert admin.list_share_group_offsets(group)[place].states is None, "only if it is asked for"
        admin.alter_share_group_offsets(group, {place: 4})
        assert admin.list_share_group_offsets(group, place)[place].lag == 2
        admin.delete_share_group_offsets(group, "stored")
        assert admin.list_share_group_offsets(group) == {}
        with pytest.raises(ItemsFailedError) as missing:
            admin.delete_share_group_offsets(group, "stored")
        assert missing.value.errors["stored"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        admin.delete_groups(group)
        with pytest.raises(ItemsFailedError) as gone:
            admin.describe_share_groups(group)
        assert gone.value.errors[group].code is ErrorCode.GROUP_ID_NOT_FOUND


def test_records_that_were_given_up_are_listed_and_sent_again(broker: BrokerProcess, wire: Wire) -> None:
    """KIP-1191: what a member rejects is in the dead-letter topic; a redrive brings it back once."""
    letters = "dlq.redrive-jobs"
    wire.create_topic(letters, errors_deadletterqueue_group_enable="true")
    group = begin(broker, wire, "redrive-jobs", 3, errors_deadletterqueue_topic_name=letters)
    member = joined(wire, group, "redrive-jobs")
    held: list[tuple[int, int]] = []
    while len(held) < 3:
        held += member.acquire()
    assert member.acknowledge(Ack(0, 0, 1, REJECT), Ack(0, 2, 2, ACCEPT)) == [0]
    found: list[Any] = []
    while len(found) < 2:
        found = asked(broker, "dead-letters", group)
    assert [(one["partition"], one["offset"], one["reason"]) for one in found] == [
        ("redrive-jobs:0", offset, "Offset rejected by client.") for offset in (0, 1)
    ]
    assert (
        "redrive-jobs:0       1           1  Offset rejected by client.  no"
        in queue(broker, "dead-letters", group).stdout
    )
    planned = queue(broker, "redrive", group, "--dry-run").stdout
    assert "redrive-jobs:0        2  0, 1" in planned
    assert planned.endswith("Would send 2 records of dlq.redrive-jobs again.\n")
    wanted = {"dead_letter_topic": letters, "sent": 2, "partitions": {"redrive-jobs:0": 2}, "lost": []}
    assert asked(broker, "redrive", group, "--dry-run") == {**wanted, "dry_run": True}
    assert asked(broker, "redrive", group) == {**wanted, "dry_run": False}
    assert asked(broker, "redrive", group) == {**wanted, "sent": 0, "partitions": {}, "dry_run": False}
    assert wire.fetch("redrive-jobs").high_watermark == 6, "two records, and the marker"
    refused = queue(broker, "dead-letters", "no-letters")
    assert refused.exit_code == 1
    assert "has no dead-letter topic" in refused.output
    for words in (("dead-letters", group), ("redrive", group), ("redrive", group, "--dry-run")):
        refused = queue(broker, *words, "--topic", "dlq.missing")
        assert refused.exit_code == 1
        assert "the dead-letter topic 'dlq.missing' does not exist" in refused.output


def test_commands_of_consumer_groups_point_to_those_of_share_groups(broker: BrokerProcess, wire: Wire) -> None:
    name = begin(broker, wire, "pointed")
    joined(wire, name, "pointed")
    for words in (
        ("describe", name),
        ("lag", name),
        ("reset", name, "pointed", "--to-earliest"),
        ("reset", name, "pointed", "--to-earliest", "--dry-run"),
        ("delete", name),
        ("delete", name, "--dry-run"),
    ):
        done = command(broker, "group", *words)
        assert (done.exit_code, f"{name!r} is a share group: use `fencepost queue" in done.stderr) == (1, True), words


def test_the_lag_of_all_groups_leaves_share_groups_out(tmp_path: Path) -> None:
    """Its own broker, because a consumer group with positions would hide what is said without any."""
    with BrokerProcess(tmp_path, settings={"storage": "memory"}) as broker, Wire(broker.connect()) as wire:
        joined(wire, begin(broker, wire, "left-out"), "left-out")
        listed = [one["group_id"] for one in command_json(broker, "group", "list", "--type", "share")]
        assert listed == ["left-out-group"]
        done = command(broker, "group", "lag", "--all")
    said = "No positions: no consumer group exists; `fencepost queue list` shows share groups.\n"
    assert (done.exit_code, done.stdout) == (0, said)
