"""Which hosts and ways back the console accepts."""

import pytest

from fencepost.console.guard import is_own_host
from fencepost.console.pages.login import _own_path


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:8080", True),
        ("127.0.0.1", True),
        ("localhost:8080", True),
        ("LOCALHOST", True),
        ("[::1]:8080", True),
        ("10.0.0.7:80", True),
        ("console.example", True),
        ("Console.Example:443", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[evil]", False),
        ("localhost:8080:1", False),
    ],
)
def test_a_foreign_name_is_refused(host: str, own: bool) -> None:
    """A page of another site can point its own name to this address (DNS rebinding), but not an address' name."""
    assert is_own_host(host, {"console.example"}) is own


@pytest.mark.parametrize(
    ("to", "followed"),
    [
        ("/topics?q=a", "/topics?q=a"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/a\nb", "/"),
        (None, "/"),
    ],
)
def test_a_login_leads_to_no_other_site(to: str | None, followed: str) -> None:
    assert _own_path(to) == followed
