"""The settings of the web console that `fencepost serve` can have in its process."""

from dataclasses import dataclass

from fencepost.broker.config.fields import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConsoleSettings:
    """Where the console listens, and under which names browsers reach it."""

    console_listen: str | None = setting(
        Kind.STRING, None, "HOST:PORT of the web console; off where not given.", nullable=True, ours=True
    )
    console_hosts: tuple[str, ...] = setting(
        Kind.LIST, (), "Names under which browsers may reach the console, besides addresses and localhost.", ours=True
    )
    console_certificate_location: str | None = setting(
        Kind.STRING, None, "The certificate (PEM) with which the console serves HTTPS.", nullable=True, ours=True
    )
    console_key_location: str | None = setting(
        Kind.STRING, None, "The key (PEM) of the console's certificate, if it is in a file of its own.", nullable=True,
        ours=True,
    )  # fmt: skip
