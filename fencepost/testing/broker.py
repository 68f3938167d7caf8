"""The broker of a test: the real one, in a thread of this process, on a real port, with its storage in memory."""

import base64
import logging
import os
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fencepost.broker.config.broker_config import BrokerConfig, load_config
from fencepost.broker.log.storage.descriptor_pool import DescriptorPool
from fencepost.broker.log.storage.files import FileStore
from fencepost.broker.log.storage.lock import lock_directory
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.store import Store
from fencepost.protocol.errors import ErrorCode
from fencepost.testing.faults import Delay, Drop, Fault, Faults, Moment, Step, Then, api_named, refusing, stopping
from fencepost.testing.faulty_node import FaultyNode
from fencepost.testing.inspection import Inspection
from fencepost.testing.journal import Journal
from fencepost.testing.jumping_clock import JumpingClock
from fencepost.testing.loop_thread import LoopThread
from fencepost.testing.registry import Registry
from fencepost.testing.reserved_port import reserve_port
from fencepost.testing.security import Security
from fencepost.testing.test_clock import Clock

HOST = "127.0.0.1"
OPEN_FILES_MAX = 200
SETTINGS: Mapping[str, str] = {
    "durability": "os",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""The defaults that differ from a broker in production: no fsync, no initial rebalance delay, 200 ms instead of 5 s
between the heartbeats of the consumer protocol (KIP-848), few partitions of the internal topics."""

_names = count(1)


class Broker(Inspection):
    """A broker under test: `with Broker() as broker: client(broker.bootstrap)`.

    `settings` are Kafka's names with texts as values; `directory` keeps the data in files there (default: in memory).
    `tls` makes a certificate for 127.0.0.1. `users` are passwords by name: clients must log in by SCRAM.
    `schema_registry` serves a schema registry beside the broker, without TLS, with the same users.
    All methods may be called from any thread, also from one that runs asyncio or trio: they block only briefly.
    The broker ends with the process at the latest. It does not run in a fork: create it in the process that uses it.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        directory: str | Path | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        schema_registry: bool = False,
    ) -> None:
        self.settings = {**SETTINGS, **(settings or {})}
        self.directory = Path(directory) if directory is not None else None
        self.port = 0
        """The port where it listens; the system chooses it at the first start, and it does not change afterwards."""
        self.journal = Journal()
        """The log of requests, faults, starts, stops and warnings. Failure reports show its end."""
        self._security = Security(tls, users or {})
        self._faults = Faults()
        self._time = JumpingClock()
        self._loop = LoopThread(self._make, self._time, self.journal)
        self._registry = Registry(self) if schema_registry else None
        if self._registry is not None:
            self._loop.beside = self._registry.begin
        self.clock = Clock(self._loop, self._time, self.journal)
        """The broker's time, which a test can advance."""
        self._memory = MemoryStore()
        self._cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
        self._lock_fd: int | None = None

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap} {'running' if self.running else 'down'}>"

    # Start and stop

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for a client's bootstrap setting."""
        return f"{HOST}:{self.port}"

    @property
    def ca_file(self) -> Path | None:
        """The certificate that clients must trust, in PEM; None without TLS. It exists as long as this object."""
        return self._security.ca_file

    @property
    def schema_registry_url(self) -> str:
        """The URL of the schema registry. It is the same after a restart. Raises RuntimeError if there is none."""
        if self._registry is None:
            raise RuntimeError("this broker has no schema registry: create it with Broker(schema_registry=True)")
        return self._registry.url

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """The properties of a client: bootstrap.servers, and what TLS and a login need.

        For confluent-kafka and `fencepost.Client.from_config`. `user` None is the first user. Raises ValueError for an
        unknown user.
        """
        return self._security.config(self.bootstrap, user)

    def client_keywords(self, user: str | None = None) -> dict[str, Any]:
        """The same as keywords of aiokafka and kafka-python."""
        return self._security.keywords(self.bootstrap, user)

    @property
    def running(self) -> bool:
        """Whether the broker runs."""
        return self._loop.alive

    def start(self) -> Self:
        """Start it with the stored data; return when it accepts connections.

        Raises ConfigError, DirectoryInUse and other errors of the start; RuntimeError if it runs already.
        """
        if self.running:
            raise RuntimeError(f"{self!r} runs already")
        logging.getLogger("fencepost").addHandler(self.journal)
        try:
            if self.directory is not None and self._lock_fd is None:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._lock_fd = lock_directory(self.directory)
            self.port = self.port or reserve_port(self, HOST)
            self._loop.start()
        except BaseException:
            self._release()
            raise
        self.port = self._loop.call(lambda node: node.endpoint.port)
        if self._security.users:
            self._loop.call_async(self._security.add_users)
        return self

    def kill(self) -> None:
        """End it as kill -9 would: connections break, nothing more is written. A restart finds the stored data."""
        self._loop.kill()
        self._unlock()

    def stop(self) -> None:
        """End it in order, as SIGTERM would: begun requests are answered, files closed and marked as clean.

        Raises the error that the broker failed with. Its directory is unlocked until it is started again.
        """
        self._loop.stop()
        self._unlock()

    def restart(self) -> Self:
        """Kill it if it runs, and start it on the same port with the stored data. Faults stay in force."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """Kill it and release all resources. It raises nothing for a broker that has died: see `check`."""
        self.kill()
        self._release()

    def check(self) -> None:
        """Raise BrokerGoneError if the broker has died of an error that no call has raised yet.

        The end of `with` does this, and so do the fixtures after each test.
        """
        self._loop.check()

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if error is None:
            self.check()

    def _release(self) -> None:
        logging.getLogger("fencepost").removeHandler(self.journal)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _make(self) -> FaultyNode:
        """Create the node of a new run; in the broker's thread."""
        return FaultyNode(self._config(), self._time, self._store(), self._faults, self.journal)

    def _config(self) -> BrokerConfig:
        fixed = {"storage": "memory", "cluster.id": self._cluster_id}
        if self.directory is not None:
            fixed = {"storage": "files", "log.dirs": str(self.directory)}
        if self._registry is not None:
            fixed["schema.registry.listen"] = self._registry.address
        merged = {**fixed, **self._security.settings(self.bootstrap), **self.settings}
        return load_config(assignments=[f"{name}={value}" for name, value in merged.items()])

    def _store(self) -> Store:
        if self.directory is None:
            return self._memory
        store = FileStore(self.directory, DescriptorPool(OPEN_FILES_MAX))
        store.make()
        return store

    # Faults

    def refuse(
        self,
        api: str,
        code: ErrorCode | str | int,
        *,
        times: int | None = 1,
        client_id: str | None = None,
        took_effect: bool = False,
    ) -> Fault:
        """Answer the next `times` requests of an API with an error (None: all requests), of one client id or of any.

        `code` is the error or its name. The requests have no effect, unless `took_effect`: then only the answer is
        wrong. Raises ValueError for an unknown API or error, and for an API whose effect cannot be prevented.
        """
        found, refuse = refusing(api, code, took_effect)
        return self._add_fault(Fault(found, refuse, times, client_id, self._in_broker))

    def stop_commit(
        self,
        after: Step,
        *,
        then: Then = "hold",
        api: str = "EndTxn",
        times: int | None = 1,
        client_id: str | None = None,
    ) -> Fault:
        """Stop the next commits or aborts of a transaction after a step, and close the client's connection.

        `after` "prepare": the outcome is durable, no marker is written. "marker": one marker is written. "markers": all
        are written, and the coordinator does not know it. `then` "hold": stay there until `Fault.release` or a restart;
        "kill": kill the broker at that step; "restart": kill it and start it again. `api` is EndTxn or InitProducerId,
        which aborts the transaction of the former producer. Raises ValueError for another API or step.
        """
        found, stop = stopping(api, after, then)
        return self._add_fault(Fault(found, stop, times, client_id, self._in_broker))

    def drop(
        self, api: str | None = None, *, when: Moment = "before", times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Close the connection of the next requests, "before" they take effect or "after": then the answer is lost."""
        if when not in ("before", "after"):
            raise ValueError(f"when={when!r} is neither before nor after")
        found = api_named(api) if api is not None else None
        return self._add_fault(Fault(found, Drop(when), times, client_id, self._in_broker))

    def delay(
        self, api: str | None = None, *, seconds: float, times: int | None = 1, client_id: str | None = None
    ) -> Fault:
        """Delay the next requests before they are handled, by the broker's clock: `clock.advance` ends it, too."""
        found = api_named(api) if api is not None else None
        return self._add_fault(Fault(found, Delay(seconds), times, client_id, self._in_broker))

    def heal(self) -> None:
        """Remove all faults, and release the transactions that they hold."""
        for fault in self._faults.clear():
            fault.cancel()

    def _add_fault(self, fault: Fault) -> Fault:
        self.journal.note(f"ordered: {fault!r}")
        return self._faults.add(fault)

    # Topics

    def unique(self, name: str = "topic") -> str:
        """A name that no other call in this process has returned: for topics, groups and ids on a shared broker."""
        return f"{name}-{next(_names)}"
