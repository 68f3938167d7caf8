"""What one address may take of the console: connections, and guesses of passwords."""

import ipaddress
from collections import Counter
from typing import Final

ADDRESSES_MAX: Final = 10_000
GUESSES_AT_ONCE: Final = 5
GUESS_SECONDS: Final = 10.0
"""After `GUESSES_AT_ONCE` wrong passwords, an address may try one more each time this has passed."""


def network_of(address: str) -> str:
    """What one client can hold of addresses: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


class ConnectionCounts:
    """Open connections, in all and by network."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._open: Counter[str] = Counter()

    def refusal(self, network: str) -> str | None:
        """Why one more connection from this network is refused; None if it is not."""
        if self._open.total() >= self._most:
            return f"{self._most} connections are open"
        if self._open[network] >= self._most_of_one:
            return f"{self._most_of_one} connections from {network} are open"
        return None

    def add(self, network: str) -> None:
        self._open[network] += 1

    def remove(self, network: str) -> None:
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]


class Guesses:
    """A bucket of tokens for each network: a login takes one, a right password returns it, time refills.

    The network that guesses is slow, not the user whose password is guessed. Times are seconds of any clock.
    """

    def __init__(self) -> None:
        self._full_at: dict[str, float] = {}
        """When each network's bucket will be full again."""

    def wait(self, network: str, now: float) -> float:
        """Seconds until a login from this network may begin. If that is 0, it has begun: a token is taken."""
        full_at = max(self._full_at.get(network, now), now)
        wait = full_at - now - (GUESSES_AT_ONCE - 1) * GUESS_SECONDS
        if wait > 0:
            return wait
        self._full_at[network] = full_at + GUESS_SECONDS
        if len(self._full_at) > ADDRESSES_MAX:
            self._full_at = {one: at for one, at in self._full_at.items() if at > now}
            while len(self._full_at) > ADDRESSES_MAX:  # those that are full first
                del self._full_at[min(self._full_at, key=self._full_at.__getitem__)]
        return 0

    def right(self, network: str) -> None:
        """The login succeeded: it was no guess."""
        if network in self._full_at:
            self._full_at[network] -= GUESS_SECONDS
