"""Sending buffers and file regions over TLS in pieces of bounded size.

The kernel cannot encrypt what it sends from a file here, so file regions are read into memory, a piece at a time. All
connections share one buffer for that. A connection keeps a piece of its own only while its socket is full.
"""

import os
import ssl
from collections.abc import Sequence
from typing import Any

from fencepost.broker.log.storage.store import FileRegion
from fencepost.broker.network.transmission import INTERNET, Transmission

RECORD_BYTES = 16 << 10
"""The most that one record of TLS holds."""
PIECE_BYTES = 64 << 10
"""How many bytes OpenSSL takes with one call: four records of TLS."""
ENCRYPTED_BEFORE_WAIT = 1 << 20
"""After this many bytes of one response other tasks run, even if the socket accepts more: about 1 ms of work."""
_FILE_PIECE = memoryview(bytearray(PIECE_BYTES))


class EncryptedTransmission(Transmission):
    """The unsent part of a response that is encrypted."""

    __slots__ = ("_at", "_piece")

    def __init__(self, sock: ssl.SSLSocket, parts: Sequence[Any], corked: bool) -> None:
        super().__init__(sock, parts, corked)
        self._at = 0
        """How many bytes of the part at `_next` are sent, or are in `_piece`."""
        self._piece: Any = None
        """What OpenSSL began to send. It must receive the same bytes again."""

    def send(self) -> bool:
        budget = ENCRYPTED_BEFORE_WAIT
        while budget > 0:
            piece = self._piece if self._piece is not None else self._load_piece()
            if piece is None:
                return True
            if not len(piece):
                continue
            try:
                sent = self._sock.send(piece)
            except ssl.SSLWantWriteError:
                # the next response of another connection overwrites the shared buffer
                self._piece = bytes(piece) if self._piece is None else piece
                return False
            self._piece = None if sent == len(piece) else bytes(piece[sent:])
            budget -= sent
        return self._piece is None and self._next == len(self._parts)

    def _load_piece(self) -> Any:
        """The next bytes to send, valid until the next call of any connection; None at the end."""
        parts, at = self._parts, self._next
        if at == len(parts):
            return None
        part = parts[at]
        if type(part) is FileRegion:
            return self._load_from_file(part)
        if self._at == 0 and len(part) < PIECE_BYTES:
            return self._join()
        piece = memoryview(part)[self._at : self._at + PIECE_BYTES]
        self._advance(len(piece), len(part))
        return piece

    def _join(self) -> bytes:
        """Small buffers in a row as one piece: each call of OpenSSL makes a record of its own."""
        parts, start = self._parts, self._next
        size, stop = 0, start
        while stop < len(parts) and type(parts[stop]) is not FileRegion and size + len(parts[stop]) <= PIECE_BYTES:
            size += len(parts[stop])
            stop += 1
        self._next = stop
        return b"".join(parts[start:stop])

    def _load_from_file(self, region: FileRegion) -> memoryview:
        wanted = min(region.length - self._at, PIECE_BYTES)
        read = os.preadv(region.fd, [_FILE_PIECE[:wanted]], region.offset + self._at)
        if not read:
            left = region.length - self._at
            raise OSError(f"the log file ended {left} bytes before the region that was to be sent")
        self._advance(read, region.length)
        return _FILE_PIECE[:read]

    def _advance(self, count: int, length: int) -> None:
        self._at += count
        if self._at == length:
            self._next, self._at = self._next + 1, 0


def start_encrypting(sock: Any, parts: Sequence[Any]) -> EncryptedTransmission | None:
    """Send what the socket accepts, up to a bound. Returns what the caller must `finish`, or None. Raises OSError."""
    # without a cork each record travels in packets of its own, and wakes the client
    transmission = EncryptedTransmission(sock, parts, sock.family in INTERNET and sum(map(len, parts)) > RECORD_BYTES)
    return None if transmission.start() else transmission
