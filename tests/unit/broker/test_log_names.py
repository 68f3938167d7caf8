"""Names in log lines: unambiguous and of bounded length."""

import pytest

from fencepost.broker.security.log_names import NAME_CHARS_MAX, principal_text, quoted
from fencepost.broker.security.principal import Principal


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("alice", "User:alice"),
        ("alice@example.com", "User:alice@example.com"),
        ("a b", "'User:a b'"),
        ("CN=alice", "'User:CN=alice'"),
        ("a\nLOGIN", r"'User:a\nLOGIN'"),
        ("a'b", '"User:a\'b"'),
        ("\u202eecila", r"'User:\u202eecila'"),
    ],
)
def test_a_principal_is_quoted_where_its_end_would_be_in_doubt(name: str, text: str) -> None:
    assert principal_text(Principal("User", name)) == text


def test_a_long_name_is_cut_with_a_mark() -> None:
    longest = "n" * NAME_CHARS_MAX
    assert (quoted(longest), quoted(longest + "n")) == (f"'{longest}'", f"'{longest}'...")
    assert principal_text(Principal("User", longest)) == f"'User:{longest[5:]}'..."
