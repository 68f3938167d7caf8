"""What the cores of a broker do when one of them, the controller's or the supervisor dies, and what they delete."""

import json
import os
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.kit.broker_process import BrokerFailed, BrokerProcess, state_of
from tests.kit.command_line import command
from tests.kit.cores_broker import Cores, wire_to
from tests.kit.waiting import until
from tests.kit.wire import ConnectionEnded, batch_of, values_in

DELETE_TOPICS = 20
StartCores = Callable[..., Cores]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartCores]:
    """Start a broker of three cores: `start(**settings)`, with underscores for dots."""
    made: list[BrokerProcess] = []

    def started(**settings: str) -> Cores:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(BrokerProcess(tmp_path, data_dir=tmp_path / "data", settings=named, cores=3))
        return Cores(made[-1].start())

    yield started
    for broker in made:
        broker.__exit__(None, None, None)


def delete(cores: Cores, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000)
    code = cores.retried(0, lambda wire: wire.call(DELETE_TOPICS, 6, request).responses[0].error_code)
    assert code == ErrorCode.NONE


def test_a_topic_that_was_created_survives_the_controller(start: StartCores) -> None:
    """CreateTopics is answered when the records are durable (KIP-631): every core knows the topic then, or soon."""
    cores = start()
    for number in range(4):
        asked = number % 3
        with wire_to(cores.broker, asked) as wire:
            wire.create_topic(f"t{number}", 3)
        cores.broker.kill_core(0)
        for core in (1, 2, 0):
            assert sorted(cores.leaders(f"t{number}", core)) == [0, 1, 2]
        for partition, core in enumerate(cores.leaders(f"t{number}")):
            assert cores.produce(core, f"t{number}", batch_of(b"v"), partition).error_code == ErrorCode.NONE


def test_cores_serve_while_the_controller_is_frozen(start: StartCores) -> None:
    cores = start()
    leaders = cores.create("t")
    cores.broker.signal_core(0, signal.SIGSTOP)
    for partition, core in enumerate(leaders):
        if core:
            with wire_to(cores.broker, core, 10) as wire:
                assert wire.produce("t", batch_of(b"v"), partition=partition).error_code == ErrorCode.NONE
    cores.broker.signal_core(0, signal.SIGCONT)


def test_the_cores_end_with_their_supervisor(start: StartCores) -> None:
    """Else they would keep the ports and the directories from the next start, which waits for their end."""
    cores = start(metrics_listen="127.0.0.1:0")
    broker = cores.broker
    broker.settings["metrics.listen"] = broker.facts["metrics"]
    pids = [broker.core_pid(number) for number in cores.numbers]
    broker.signal_core(2, signal.SIGSTOP)
    os.kill(broker.pid, signal.SIGKILL)
    broker.wait()
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(broker.start)
        until(lambda: "the cores of another broker use" in broker.log())
        os.kill(pids[2] or 0, signal.SIGCONT)
        started.result()
    assert all(state_of(pid or 0) in ("", "Z") for pid in pids)
    assert broker.log().count("unclean shutdown") == 0


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.12, 0.25, 0.3, 0.35, 0.5])
def test_a_stop_during_the_restart_of_a_core_ends_all(start: StartCores, after_s: float) -> None:
    cores = start()
    cores.broker.kill_core(1)
    time.sleep(after_s)
    began = time.monotonic()
    assert cores.broker.stop() == 0
    assert time.monotonic() - began < 20


def test_a_core_that_cannot_start_leaves_the_others_serving(start: StartCores) -> None:
    cores = start()
    leaders = cores.create("t")
    broken = cores.broker.data_dir / "cores" / "1"  # type: ignore[operator]
    broken.rename(broken.with_name("kept"))
    broken.write_bytes(b"not a directory")
    cores.broker.kill_core(1)
    until(lambda: cores.broker.log().count("core 1 ended") >= 2)
    for partition, core in enumerate(leaders):
        if core != 1:
            assert cores.produce(core, "t", batch_of(b"v"), partition).error_code == ErrorCode.NONE
    broken.unlink()
    broken.with_name("kept").rename(broken)
    assert cores.produce(1, "t", batch_of(b"v"), leaders.index(1)).error_code == ErrorCode.NONE


def test_a_core_whose_port_is_taken_at_the_first_start_leaves_the_others_serving(tmp_path: Path) -> None:
    """The line of a broker that is ready says which core is missing, the log why, and `/ready` that it is."""
    broker = BrokerProcess(tmp_path, data_dir=tmp_path / "data", cores=3, arguments=["--metrics", "127.0.0.1:0"])
    with broker:
        broker.stop()
        with socket.create_server(broker.core_address(1)):
            cores = Cores(broker.start())
            assert broker.facts["missing"] == "1"
            assert re.search(
                rf"core 1: .*cannot listen on 127.0.0.1:{broker.port + 1}: Address already in use", broker.log()
            )
            assert "core 1 cannot start, the others serve without it" in broker.log()
            with pytest.raises(HTTPError, match="503") as unready:
                urlopen(f"http://{broker.facts['metrics']}/ready", timeout=30)
            assert "core_1" in json.loads(unready.value.read())["reasons"]
            with wire_to(broker, 0) as wire:
                wire.create_topic("t", 3)
            leaders = cores.leaders("t", 2)
            for partition, core in enumerate(leaders):
                if core != 1:
                    assert cores.produce(core, "t", batch_of(b"v"), partition).error_code == ErrorCode.NONE
            listed = command(broker, "topic", "list", "--timeout", "9")
            assert (listed.exit_code, listed.stderr.splitlines()[-1]) == (
                0,
                "1 topic. No sizes: not all brokers answer.",
            ), listed.output
            refused = command(broker, "group", "list", "--timeout", "3")
            assert (refused.exit_code, "listing groups of broker 2 got no response" in refused.stderr) == (1, True)
        assert cores.produce(1, "t", batch_of(b"v"), leaders.index(1)).error_code == ErrorCode.NONE
        assert broker.stop() == 0


def test_a_broker_whose_first_core_cannot_start_ends(tmp_path: Path) -> None:
    """As a broker of one core does: no broker serves without the metadata."""
    broker = BrokerProcess(tmp_path, data_dir=tmp_path / "data", cores=3)
    broker.start().stop()
    with socket.create_server((broker.host, broker.port)), pytest.raises(BrokerFailed, match="exit code 1"):
        broker.start()


def test_a_full_disk_does_not_end_the_supervisor(start: StartCores) -> None:
    """It counts the starts in a file before each; the others go on until there is room again."""
    cores = start()
    starts = cores.broker.data_dir / "core-starts.tmp"  # type: ignore[operator]
    starts.mkdir()  # so that the file cannot be written
    cores.broker.kill_core(2)
    until(lambda: "core 2 cannot start" in cores.broker.log())
    with wire_to(cores.broker, 1) as wire:
        wire.create_topic("t", 3)
    starts.rmdir()
    cores.broker.wait_for_core(2)


def test_a_core_that_slept_beyond_deleted_metadata_begins_again(start: StartCores) -> None:
    """It ends, and the next start begins with the newest snapshot (KIP-630)."""
    cores = start(
        metadata_log_max_record_bytes_between_snapshots="2000",
        metadata_log_segment_bytes="20000",
        metadata_max_retention_bytes="20000",
        metadata_log_max_snapshot_interval_ms="200",
        log_segment_delete_delay_ms="0",
    )
    metadata = cores.broker.data_dir / "__cluster_metadata-0"  # type: ignore[operator]
    cores.create("kept")
    old, leaders = cores.broker.core_pid(1), cores.leaders("kept")
    assert cores.produce(1, "kept", batch_of(b"v"), leaders.index(1)).error_code == ErrorCode.NONE
    cores.broker.signal_core(1, signal.SIGSTOP)
    with wire_to(cores.broker, 0) as wire:
        for number in range(400):
            wire.create_topic(f"t{number}", 3)
            if number > 100:
                time.sleep(0.1)  # snapshots are taken now and then
            if not (metadata / f"{0:020}.log").exists():
                break
    assert not (metadata / f"{0:020}.log").exists(), sorted(one.name for one in metadata.iterdir())
    cores.broker.signal_core(1, signal.SIGCONT)
    until(lambda: cores.broker.core_pid(1) not in (None, old), seconds=20)
    assert sorted(cores.leaders(f"t{number}", 1)) == [0, 1, 2]
    assert values_in(cores.fetch(1, "kept", leaders.index(1))) == [b"v"]


def test_logs_of_deleted_topics_go_on_every_core(start: StartCores) -> None:
    """Also if the core was dead when the topic was deleted; one that has its name again begins empty."""
    cores = start(log_segment_delete_delay_ms="0")
    data = cores.broker.data_dir
    assert data is not None
    leaders = cores.create("t")
    for partition, core in enumerate(leaders):
        cores.produce(core, "t", batch_of(b"old"), partition)
    assert len(list(data.rglob("t-?"))) == 3
    cores.broker.signal_core(1, signal.SIGSTOP)
    delete(cores, "t")
    cores.broker.kill_core(1)
    until(lambda: not list(data.rglob("t-?")), seconds=20)
    leaders = cores.create("t")
    for partition, core in enumerate(leaders):
        cores.produce(core, "t", batch_of(b"new"), partition)
    cores.broker.restart()
    for partition, core in enumerate(leaders):
        assert values_in(cores.fetch(core, "t", partition)) == [b"new"]


def test_a_lost_log_is_offline_on_every_core(start: StartCores) -> None:
    """It must not begin again at offset 0, see `DeletedTopics.find_lost_logs`."""
    cores = start()
    leaders = cores.create("t")
    for partition, core in enumerate(leaders):
        cores.produce(core, "t", batch_of(b"v"), partition)
    assert cores.broker.stop() == 0
    for path in list(cores.broker.data_dir.rglob("t-?")):  # type: ignore[union-attr]
        shutil.rmtree(path)
    cores.broker.start()
    for partition, core in enumerate(leaders):
        code = cores.retried(core, lambda wire: wire.fetch("t", partition=partition).error_code)  # noqa: B023
        assert code == ErrorCode.KAFKA_STORAGE_ERROR


def test_limits_of_connections_do_not_count_other_cores(start: StartCores) -> None:
    """Kafka's ConnectionQuotas lets brokers connect when clients have all connections (protectedListener)."""
    cores = start(max_connections_per_ip="2", principal_max_connections="2")
    cores.create("t")
    held = [socket.create_connection(cores.broker.core_address(core)) for core in cores.numbers for _ in range(2)]
    time.sleep(0.2)
    for one in held[:2]:
        one.close()
    time.sleep(0.2)
    for core in (1, 2):
        held[2 * core].close()
        time.sleep(0.2)
        with suppress(ConnectionEnded), wire_to(cores.broker, core) as wire:
            wire.create_topic(f"by-{core}", 3)
            assert len(wire.init_producer_id()) == 2
            continue
        raise AssertionError(f"core {core} could not ask core 0")
    for one in held:
        one.close()
