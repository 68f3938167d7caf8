"""Damage in the files that a whole broker rests on: it starts, says once what is wrong, and guesses nothing."""

import logging
from pathlib import Path

import pytest
import trio

from fencepost.broker.metadata.identity import META_PROPERTIES, META_PROPERTIES_TWIN, WrongDirectory, cluster_id_of
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.errors import ErrorCode
from tests.kit import damage


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    await damage.make(tmp_path / "data", tmp_path / "killed")
    return tmp_path / "data"


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.is_dir()}


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


async def test_a_lost_coordinator_partition_costs_its_own_ids_only(data: Path, caplog) -> None:
    """An id whose log cannot be read hears COORDINATOR_NOT_AVAILABLE: its outcome is not guessed."""
    good = await damage.look(data)
    flip(data / "__transaction_state-0" / f"{0:020d}.log", 100)
    flip(data / "__consumer_offsets-0" / f"{0:020d}.log", 100)
    seen = await damage.look(data)
    lost = [name for name in damage.IDS if seen.transactions[name] is None]
    assert lost
    assert set(lost) != set(damage.IDS)
    assert all(seen.transactions[name] == good.transactions[name] for name in damage.IDS if name not in lost)
    assert seen.positions["readers"] is None
    assert (seen.committed, seen.uncommitted) == (good.committed, good.uncommitted)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert sum("__transaction_state-0 cannot be replayed" in line for line in errors) == 1
    assert sum("__consumer_offsets-0 cannot be replayed" in line for line in errors) == 1
    node = damage.node_over(data)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        answer = await node.transactions.init_producer_id(lost[0], 1000)
        assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert node.groups.classic.heartbeat("readers", "m", None, 0) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await node.groups.admin.delete_groups(["readers"]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        node.stop()


async def test_damaged_metadata_is_kept_aside_and_no_log_is_deleted(data: Path, caplog) -> None:
    """What the metadata does not know is left alone, at the next start and at the one after it."""
    path = data / "__cluster_metadata-0" / f"{0:020d}.log"
    second = [position for position, _ in iter_headers(path.read_bytes())][1]
    whole = path.read_bytes()
    flip(path, second + 70)
    damaged = path.read_bytes()
    directories = names(data)
    for start in range(2):
        seen = await damage.look(data)
        assert damage.TOPIC not in seen.topics
        assert seen.next_producer_id >= 1 << 40, "the lost part may have given out any lower one"
        assert directories <= names(data), start
    aside = data / "__cluster_metadata-0.damaged1-stray"
    assert (aside / path.name).read_bytes() == damaged
    assert sum("the metadata log is damaged" in record.getMessage() for record in caplog.records) == 1
    assert whole.startswith(path.read_bytes()[:second])


def test_a_damaged_meta_properties_is_made_again_from_its_twin(tmp_path: Path) -> None:
    """Whichever bit flips, the cluster keeps its name and the broker starts; two damaged files are not guessed at."""
    cluster_id = cluster_id_of(tmp_path, 1, None)
    files = [tmp_path / META_PROPERTIES, tmp_path / META_PROPERTIES_TWIN]
    right = files[0].read_bytes()
    assert files[1].read_bytes() == right
    for file in files:
        for position in range(len(right)):
            flip(file, position)
            assert cluster_id_of(tmp_path, 1, None) == cluster_id
            assert files[0].read_bytes() == right
        file.unlink()
        assert cluster_id_of(tmp_path, 1, None) == cluster_id
    for damaged in (b"", b"x", right.replace(b"node.id", b"node.iD")):
        for file in files:
            file.write_bytes(damaged)
        with pytest.raises(WrongDirectory, match="damaged"):
            cluster_id_of(tmp_path, 1, None)
    assert cluster_id_of(tmp_path, 1, cluster_id) == cluster_id
    assert files[0].read_bytes() == right
