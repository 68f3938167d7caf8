"""What a sender needs besides batches: the producer's identity, the state of each broker, and the codec's level."""

import math
from dataclasses import dataclass
from typing import Protocol

import anyio

from fencepost.client.config import ProducerConfig
from fencepost.client.network.connection import Connection
from fencepost.client.network.retry import Backoff
from fencepost.protocol.compression import Compression

LZ4_DEFAULT_LEVEL = 9


class Identity(Protocol):
    """The producer id and epoch of batches, and how to get new ones."""

    @property
    def transactional_id(self) -> str | None:
        """The id that makes batches transactional, or None."""

    @property
    def current(self) -> tuple[int, int] | None:
        """(producer id, epoch), or None while there is none."""

    @property
    def highest_produce_version(self) -> int:
        """11 for a TV1 transaction, which adds its partitions itself (row T16), else unlimited."""

    def acquire(self) -> None:
        """Get an identity. The sender calls this repeatedly until there is one."""

    def bump(self) -> bool:
        """Move to the next epoch without a request (row P7); False if this producer may not."""


@dataclass(slots=True, eq=False, repr=False)
class BrokerState:
    """A sender's state of one broker: its connection, and how many requests are unanswered there."""

    node: int
    backoff: Backoff
    connection: Connection | None = None
    connecting: bool = False
    in_flight: int = 0
    retry_at: float = 0.0
    stuck_since: float = math.inf  # since when it has accepted none of the ready batches
    _lost: Connection | None = None
    _resend_at: float = 0.0

    def lost(self, connection: Connection, resend: Backoff) -> float:
        """A request of `connection` ended without a response; returns when its batches may be resent.

        One lost connection causes one pause, however many requests were unanswered on it.
        """
        if self._lost is not connection:
            self._lost = connection
            now = anyio.current_time()
            self.retry_at = now + self.backoff.next_delay()
            self._resend_at = now + resend.next_delay()
        return self._resend_at


def level_of(config: ProducerConfig) -> int | None:
    """The compression level that is configured for the codec in use; None for the codec's own default (KIP-390).

    As in Kafka, gzip's -1 and lz4's 9 are the names of that default.
    """
    match config.compression_type:
        case Compression.GZIP:
            return None if config.compression_gzip_level < 0 else config.compression_gzip_level
        case Compression.LZ4:
            return None if config.compression_lz4_level == LZ4_DEFAULT_LEVEL else config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
        case _:
            return None
