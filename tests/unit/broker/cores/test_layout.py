"""What the cores of one machine agree on."""

import fcntl
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import trio

from fencepost.broker.config.broker_config import BrokerConfig, load_config
from fencepost.broker.cores.layout import Layout, next_start, prepared, read_start
from fencepost.broker.log.storage.layout import CORE_STARTS
from fencepost.broker.metadata.identity import WrongDirectory, cluster_id_of


def config_in(directory: Path, **flags: object) -> BrokerConfig:
    given = {"log.dirs": str(directory), "node.id": "7", "listeners": ["PLAINTEXT://127.0.0.1:9092"]}
    return load_config(flags={**given, **{name.replace("_", "."): value for name, value in flags.items()}})


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    made = prepared(config_in(tmp_path / "data", advertised_listeners=["PLAINTEXT://example.com:19092"]), 3)
    yield made
    made.close()


def test_each_core_has_its_id_ports_and_directory(layout: Layout, tmp_path: Path) -> None:
    found = [(one.node_id, one.listeners, one.advertised_listeners, one.data_directory) for one in layout.configs]
    data = tmp_path / "data"
    assert found == [
        (7, ("PLAINTEXT://127.0.0.1:9092",), ("PLAINTEXT://example.com:19092",), data),
        (8, ("PLAINTEXT://127.0.0.1:9093",), ("PLAINTEXT://example.com:19093",), data / "cores" / "1"),
        (9, ("PLAINTEXT://127.0.0.1:9094",), ("PLAINTEXT://example.com:19094",), data / "cores" / "2"),
    ]
    assert all(one.data_directory is not None and one.data_directory.is_dir() for one in layout.configs)


def test_they_are_of_one_cluster_which_stays(layout: Layout, tmp_path: Path) -> None:
    assert {one.cluster_id for one in layout.configs} == {cluster_id_of(tmp_path / "data", 7, None)}


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    cluster_id_of(tmp_path, 5, None)
    with pytest.raises(WrongDirectory):
        prepared(config_in(tmp_path), 2)


def test_free_ports_are_chosen_before_the_start(tmp_path: Path) -> None:
    """Each core has to know the addresses of the others, and a restart names the first port alone."""
    listeners = {"listeners": ["A://127.0.0.1:0", "B://[::1]:0"], "inter_broker_listener_name": "A"}
    names = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"}
    layout = prepared(config_in(tmp_path, **listeners, **names), 3)
    ports = [[listener.port for listener in one.client_listeners] for one in layout.configs]
    layout.close()
    first, other = ports[0]
    assert first
    assert other
    assert ports == [[first + number, other + number] for number in range(3)]


def test_clients_reach_the_other_cores_at_their_advertised_addresses(layout: Layout) -> None:
    assert [str(layout.peer(number).listeners["PLAINTEXT"]) for number in (8, 9)] == [
        "example.com:19093",
        "example.com:19094",
    ]


def test_without_an_advertised_address_clients_reach_them_at_the_host_they_connected_to(tmp_path: Path) -> None:
    """As one broker does that listens on every interface: the host is that of the client's connection."""
    layout = prepared(config_in(tmp_path, listeners=["PLAINTEXT://0.0.0.0:9092"]), 2)
    assert layout.peer(8).listeners == {"PLAINTEXT": ("", 9093)}
    layout.close()


def test_all_cores_see_how_much_of_the_metadata_is_durable(layout: Layout) -> None:
    assert layout.metadata_end == 0
    layout.tell_metadata_end(1 << 40)
    assert layout.metadata_end == 1 << 40


def test_no_start_has_the_number_of_another_one(tmp_path: Path) -> None:
    """Row T9, KIP-98: the epoch of a coordinator rises with each start."""
    assert read_start(tmp_path) == 0
    assert [next_start(tmp_path), next_start(tmp_path)] == [1, 2]
    assert read_start(tmp_path) == 2
    (tmp_path / CORE_STARTS).with_suffix(".tmp").write_text("garbage")  # a crash came before the rename
    assert next_start(tmp_path) == 3


def test_the_supervisor_waits_for_a_core_that_takes_a_number(tmp_path: Path) -> None:
    """It is over in a moment: a core that is to start must not count as one that cannot."""
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(next_start, tmp_path, wait=False)
        assert not wait([taken], timeout=0.1).done
        os.close(held)
        assert taken.result() == 1


def test_cores_that_take_a_number_at_once_get_different_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do so when logs of `__transaction_state` move. A frozen one does not stop the supervisor."""
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(next_start, [tmp_path] * 40)) == list(range(1, 41))
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    monkeypatch.setattr("fencepost.broker.cores.layout.PATIENCE_SECONDS", 0.1)
    with pytest.raises(BlockingIOError, match="it may be frozen"):
        next_start(tmp_path, wait=False)
    os.close(held)
    assert next_start(tmp_path, wait=False) == 41


@pytest.mark.parametrize(("host", "bound"), [("[::1]", "::1"), ("", "127.0.0.1"), ("localhost", None)])
def test_the_pages_are_served_at_the_address_of_the_settings(tmp_path: Path, host: str, bound: str | None) -> None:
    """`metrics.listen` may name an IPv6 address, and without a host it is the loopback, as on one core."""
    layout = prepared(config_in(tmp_path, metrics_listen=f"{host}:0"), 2)
    assert layout.pages_socket is not None
    found = layout.pages_socket.getsockname()[0]
    layout.close()
    assert bound is None or found == bound


def test_free_ports_of_an_ipv6_address(tmp_path: Path) -> None:
    layout = prepared(config_in(tmp_path, listeners=["PLAINTEXT://[::1]:0"]), 2)
    assert all(one.client_listeners[0].port for one in layout.configs)
    layout.close()


@pytest.mark.parametrize("setting", ["listeners", "advertised_listeners"])
def test_every_core_needs_a_port(tmp_path: Path, setting: str) -> None:
    """Without this check the last cores end at once, and start again for ever."""
    settings = {"listeners": ["PLAINTEXT://127.0.0.1:0"], setting: ["PLAINTEXT://127.0.0.1:65534"]}
    with pytest.raises(ValueError, match=r"core 2 would have the port 65536.*at most 65533"):
        prepared(config_in(tmp_path, **settings), 3)


def test_a_layout_grows_and_keeps_what_it_has(layout: Layout, tmp_path: Path) -> None:
    """Processes that began before know a new core by its number: its ports, directory and sockets."""
    known = [(one.node_id, layout.unix_address(one.node_id)) for one in layout.configs]
    more = layout.grown(5)
    assert more.configs[:3] == layout.configs
    assert more.sockets[:3] == layout.sockets
    assert more.configs[4].listeners == layout.config(11).listeners == ("PLAINTEXT://127.0.0.1:9096",)
    assert (tmp_path / "data" / "cores" / "4").is_dir()
    assert more.sockets[4].getsockname() == layout.unix_address(11).encode()
    assert [(one.node_id, more.unix_address(one.node_id)) for one in layout.configs] == known
    assert more.grown(2).sockets == more.grown(5).sockets == more.sockets
    more.close()


def test_more_run_until_the_metadata_has_fewer(layout: Layout) -> None:
    """Partitions are placed only on cores that are registered and stay."""
    found = []
    for wanted, registered in ((3, 3), (5, 3), (5, 5), (2, 5), (2, 2)):
        layout.tell_cores(wanted=wanted, registered=registered)
        found.append((layout.cores, layout.node_ids))
    assert found == [
        (3, (7, 8, 9)),
        (5, (7, 8, 9)),
        (5, (7, 8, 9, 10, 11)),
        (5, (7, 8)),
        (2, (7, 8)),
    ]


def test_ports_that_further_cores_need(tmp_path: Path) -> None:
    """Those of a core that is just stopping do not count: it may begin again with them."""
    layout = prepared(config_in(tmp_path, listeners=["PLAINTEXT://127.0.0.1:0"]), 3)
    port = layout.configs[0].client_listeners[0].port
    layout.tell_cores(wanted=2, registered=2)
    with socket.create_server(("127.0.0.1", port + 2)):
        with pytest.raises(OSError, match=f"core 2 would need port {port + 2}, and cannot listen there: "):
            layout.need_ports(3)
        layout.tell_running(3)
        layout.need_ports(3)
    cores = 65_537 - port
    with pytest.raises(ValueError, match=f"core {cores - 1} would have the port 65536, and 65535 is the highest"):
        layout.need_ports(cores)
    layout.close()


async def test_a_core_that_began_later_is_woken(layout: Layout) -> None:
    """Core 0 has not inherited its socket."""
    more = layout.grown(4)
    layout.tell_cores(wanted=4)
    layout.tell_metadata_end(7)
    with trio.fail_after(10):
        await more.metadata_written(3)
    assert more.metadata_end == 7
    layout.tell_cores(wanted=5)
    layout.tell_metadata_end(8)  # core 4 has no socket yet
    more.close()
