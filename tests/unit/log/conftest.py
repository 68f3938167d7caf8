"""Fixtures of the log's tests."""

import pytest

from fencepost.broker.log.durability import flusher, unflushed
from tests.unit.log.unflushed_kit import RELIEF


@pytest.fixture
def small_steps(monkeypatch):
    """Reliefs of a few batches each."""
    monkeypatch.setattr(unflushed, "RELIEF_BYTES", RELIEF)
    monkeypatch.setattr(flusher, "RELIEF_BYTES", RELIEF)
