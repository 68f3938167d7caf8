"""What `fencepost serve` warns of at its start."""

import pytest

from fencepost.broker.log.storage import descriptor_pool
from fencepost.cli import serve


@pytest.mark.parametrize(("descriptors", "connections"), [(120, 1), (600, 236), (700, None)])
def test_a_low_limit_of_open_files_is_named_before_clients_are_refused(
    descriptors: int, connections: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptor_pool, "_descriptors", lambda: descriptors)
    serve._warn_of_few_connections(descriptors)
    said = [f"open_files={descriptors} connections={connections}"] if connections is not None else []
    assert [one.getMessage().rpartition("container ")[2] for one in caplog.records] == said
