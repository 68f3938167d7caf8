"""The keys by which brokers find the coordinator of a share partition (KIP-932)."""

import pytest

from fencepost.coordinator.share.key_text import key_text, parse_key
from fencepost.coordinator.share.values import ShareKey

TOPIC_ID = bytes.fromhex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0")
TEXT = "__79_Pv6-fj39vX08_Lx8A"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"g:{TEXT}:3", ShareKey("g", TOPIC_ID, 3)),
        (f"a:b::{TEXT}:0", ShareKey("a:b:", TOPIC_ID, 0)),
        (f"g:{TEXT}==:+3", ShareKey("g", TOPIC_ID, 3)),
        (f"g:{TEXT}:-1", ShareKey("g", TOPIC_ID, -1)),
    ],
)
def test_a_key_is_read_from_the_right(text: str, key: ShareKey) -> None:
    """`SharePartitionKey.getInstance`: a group's name may have colons."""
    assert parse_key(text) == key


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be empty"),
        ("k", "Invalid key format"),
        (f"g:{TEXT}", "Invalid key format"),
        (f"g:{TEXT}:", "Invalid key format"),  # Java's split drops what is empty at the end
        (f" :{TEXT}:0", "GroupId must not be empty"),
        ("g:AAAA:0", "Invalid topic ID: AAAA"),
        (f"g:{TEXT}===:0", "Invalid topic ID"),
        ("g:__79/Pv6+fj39vX08_Lx8A:0", "Invalid topic ID"),
        (f"g:{TEXT}:x", "Invalid partition: x"),
        (f"g:{TEXT}:2147483648", "Invalid partition"),
    ],
)
def test_what_names_no_share_partition_is_refused(text: str, problem: str) -> None:
    """`SharePartitionKey.validate`, which FindCoordinator answers with INVALID_REQUEST."""
    with pytest.raises(ValueError, match=problem):
        parse_key(text)


def test_a_key_has_one_text() -> None:
    """`SharePartitionKey.asCoordinatorKey`: URL-safe base64 without padding, as Kafka's `Uuid.toString`."""
    assert key_text(parse_key(f"a:b:{TEXT}==:+3")) == f"a:b:{TEXT}:3"
