"""What the metadata shell says of records: nothing that tells two of them apart is left out (row M6)."""

import json

from fencepost.cli.metadata.history_text import HistoryText, moment_json
from fencepost.cli.metadata.tree import root, whole
from fencepost.coordinator.metadata.history import MetadataHistory
from fencepost.protocol.metadata_record_types import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)

PREFIXED = AccessControlEntryRecord(bytes(16), 2, "orders", 4, "User:a", "*", 3, 3)
LITERAL = PREFIXED._replace(id=bytes(15) + b"\1", pattern_type=3)
SAID = "User:a READ TOPIC orders"


def told(history: MetadataHistory, *records: object, text: HistoryText | None = None) -> list[str]:
    """What the history says of records that come in one batch, without the offsets."""
    text = text or HistoryText([], everything=False)
    moments = history.take(history.next_offset, 0, records)  # type: ignore[arg-type]
    return [line.split(None, 1)[1] for moment in moments for line in list(text.lines(moment))[1:]]


def test_a_rule_for_a_prefix_is_told_from_one_for_a_name() -> None:
    """KIP-290: the same words with PREFIXED are another rule."""
    history = MetadataHistory()
    text = HistoryText([], everything=False)
    assert told(history, PREFIXED, LITERAL, text=text) == [
        f"/acls/AAAAAAAAAAAAAAAAAAAAAA  {SAID} (PREFIXED), ALLOW from *",
        f"/acls/AAAAAAAAAAAAAAAAAAAAAQ  {SAID}, ALLOW from *",
    ]
    gone = RemoveAccessControlEntryRecord(PREFIXED.id)
    assert told(history, gone, text=text) == [f"/acls/AAAAAAAAAAAAAAAAAAAAAA  deleted {SAID} (PREFIXED), ALLOW from *"]


def test_a_rule_that_goes_is_named_where_history_begins_behind_its_coming() -> None:
    """As behind a snapshot: the image knows it."""
    history = MetadataHistory()
    told(history, PREFIXED)
    gone = RemoveAccessControlEntryRecord(PREFIXED.id)
    assert told(MetadataHistory(history.image), gone) == [
        f"/acls/AAAAAAAAAAAAAAAAAAAAAA  deleted {SAID} (PREFIXED), ALLOW from *"
    ]


def test_names_that_clients_chose_do_not_break_a_line() -> None:
    history = MetadataHistory()
    (line,) = told(history, PREFIXED._replace(principal="User:a\nb"))
    assert "User:a\\nb READ" in line


def test_quotas_and_users_stand_at_the_paths_of_the_tree() -> None:
    history = MetadataHistory()
    whom = (QuotaEntity("client-id", None), QuotaEntity("user", "a/b"))
    user = UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4096)
    lines = told(history, ClientQuotaRecord(whom, "request_percentage", 50.0), user)
    assert lines == [
        "/quotas/client-id=<default>,user=a%2Fb/request_percentage  = 50",
        "/scram/u/SCRAM-SHA-256  iterations 4096",
    ]
    tree = whole(root(history.image))
    assert tree["quotas"] == {"client-id=<default>,user=a%2Fb": {"request_percentage": 50.0}}
    assert tree["scram"] == {"u": {"SCRAM-SHA-256": {"iterations": 4096}}}


def test_what_brokers_log_in_with_is_shown_nowhere() -> None:
    """Kafka's controllers keep settings of type PASSWORD in the metadata log as they are (kafka-rules D2)."""
    history = MetadataHistory()
    settings = [
        ConfigRecord(4, "1", "listener.name.out.ssl.keystore.password", "hunter2"),
        ConfigRecord(4, "1", "log.cleaner.threads", "2"),
    ]
    moments = history.take(0, 0, settings)
    text = [line for one in moments for line in HistoryText([], everything=False).lines(one)]
    assert text[1].endswith("/brokers/1/configs/listener.name.out.ssl.keystore.password  = (secret)")
    assert text[2].endswith("/brokers/1/configs/log.cleaner.threads  = 2")
    tree = whole(root(history.image))
    assert list(tree["brokers"]["1"]["configs"].values()) == ["(secret)", "2"]
    assert "hunter2" not in "".join([*text, json.dumps(tree), *(json.dumps(moment_json(one)) for one in moments)])
    assert moment_json(moments[0])["records"][1]["value"] == "2"
