"""What one address may take of the console."""

import pytest

from fencepost.console.limits import (
    ADDRESSES_MAX,
    GUESS_SECONDS,
    GUESSES_AT_ONCE,
    ConnectionCounts,
    Guesses,
    network_of,
)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_an_ipv6_client_has_a_whole_network(address: str, network: str) -> None:
    assert network_of(address) == network


def test_connections_are_counted_in_all_and_by_network() -> None:
    counts = ConnectionCounts(3, 2)
    for _ in range(2):
        assert counts.refusal("a") is None
        counts.add("a")
    assert counts.refusal("a") == "2 connections from a are open"
    assert counts.refusal("b") is None
    counts.add("b")
    assert counts.refusal("b") == "3 connections are open"
    counts.remove("a")
    assert counts.refusal("a") is None


def test_time_gives_guesses_back_and_a_right_password_costs_none() -> None:
    guesses = Guesses()
    for _ in range(100):
        assert guesses.wait("a", 0) == 0
        guesses.right("a")
    assert [guesses.wait("a", 0) for _ in range(GUESSES_AT_ONCE)] == [0] * GUESSES_AT_ONCE
    assert guesses.wait("a", 1) == GUESS_SECONDS - 1
    assert guesses.wait("b", 1) == 0
    assert guesses.wait("a", GUESS_SECONDS) == 0
    assert guesses.wait("a", GUESS_SECONDS) == GUESS_SECONDS
    assert [guesses.wait("a", 1000) for _ in range(GUESSES_AT_ONCE)] == [0] * GUESSES_AT_ONCE
    assert guesses.wait("a", 1000) == GUESS_SECONDS


def test_many_addresses_take_bounded_memory_and_do_not_free_the_one_that_guesses() -> None:
    guesses = Guesses()
    for _ in range(GUESSES_AT_ONCE):
        guesses.wait("guesser", 0)
    for number in range(ADDRESSES_MAX + 100):
        assert guesses.wait(f"other {number}", 0) == 0
    assert len(guesses._full_at) <= ADDRESSES_MAX
    assert guesses.wait("guesser", 0) > 0
