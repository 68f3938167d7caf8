"""A real Apache Kafka (KRaft, one node: broker and controller) as a process of its own, for tests of our client."""

import hashlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.testing.reserved_port import reserve_port
from tests.interop.java.jars import CACHE, HERE, class_path, java

KAFKA_POM = HERE / "kafka_pom.xml"
READY_TIMEOUT_SECONDS = 180.0
STOP_TIMEOUT_SECONDS = 100.0
JVM_FLAGS = ("-Xmx384m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.retention.check.interval.ms": "3600000",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "30000",
    "num.network.threads": "2",
    "num.io.threads": "4",
}
"""Small. Groups miss a member soon, and transactions that take too long are ended soon. The controller is patient: it
would fence a broker that only was slow, and nothing has a leader then."""
QUICK_RESTART = {"broker.session.timeout.ms": "3000"}
"""For a Kafka that is to be killed and started: its controller does not take it back before it has missed it."""
LOGGING = """
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
"""
_METADATA_V4 = struct.pack(">hhihib", 3, 4, 1, -1, 0, 0)
_BROKERS_AT = 12
"""Behind the size, the correlation id and the throttle time."""


class KafkaFailed(Exception):
    """Kafka ended, or was not ready in time; the message holds the end of its log."""


class ClassSharing:
    """Classes as the JVM has them in memory (CDS), written by the first Kafka that stops in order: quicker starts."""

    def __init__(self, archive: Path | None) -> None:
        self._archive = archive
        self._fresh = None if archive is None else archive.with_suffix(f".{os.getpid()}.{id(self)}")

    @classmethod
    def here(cls) -> Self:
        """For this Java and these jars."""
        key = hashlib.sha256(f"{os.path.realpath(java())} {class_path(KAFKA_POM)}".encode()).hexdigest()[:16]
        return cls(CACHE / f"kafka-{key}.jsa")

    @property
    def reading(self) -> list[str]:
        """The JVM's flags that use what is there."""
        return [f"-XX:SharedArchiveFile={self._archive}"] if self._archive and self._archive.exists() else []

    def flags(self) -> list[str]:
        """The same, or those that make the archive at the end of the process."""
        return self.reading or [f"-XX:ArchiveClassesAtExit={self._fresh}"]

    def keep(self) -> None:
        """After the process has ended: put what it may have made into place."""
        if self._archive is not None and self._fresh is not None and self._fresh.exists():
            self._fresh.replace(self._archive)


class RealKafka:
    """One Kafka process and its directory; a context manager that starts it and kills it.

    `settings` go into server.properties and win over SETTINGS. `listeners` are further ones, name -> security protocol
    ({"SECURE": "SASL_SSL"}), each on a free port; the listener PLAINTEXT is always there, without authentication.
    `features` are levels to format with: {"transaction.version": 1} makes a cluster of TV1. `format_arguments` are
    further words for StorageTool, such as "--add-scram". A restart keeps ports and data.
    Raises Unavailable where Java or the jars cannot be had, KafkaFailed when it does not start.
    """

    def __init__(
        self,
        work_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        format_arguments: Sequence[str] = (),
        jvm_flags: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        self.work_dir = work_dir
        self.log_path = work_dir / "kafka.log"
        self.host = host
        self.pid = 0
        """The Java process itself; to kill it as a crash would, use `kill`."""
        self._protocols = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._settings = dict(settings or {})
        self._features = dict(features or {})
        self._format_arguments = list(format_arguments)
        self._jvm_flags = [*JVM_FLAGS, *jvm_flags]
        self._ports: dict[str, int] = {}
        self._warden: subprocess.Popen[bytes] | None = None
        self._sharing = ClassSharing(None)

    @property
    def address(self) -> str:
        """HOST:PORT of the plain listener, as a client's bootstrap setting wants it."""
        return self.address_of("PLAINTEXT")

    def address_of(self, listener: str) -> str:
        """HOST:PORT of a listener."""
        return f"{self.host}:{self._ports[listener]}"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._warden is not None and self._warden.poll() is None

    def log(self) -> str:
        """Everything Kafka wrote, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> Self:
        """Start the process and return when a client could produce."""
        assert not self.running, "Kafka runs already"
        sharing = self._sharing = ClassSharing.here()
        command = [java(), *self._jvm_flags, "-cp", class_path(KAFKA_POM)]
        properties = self.work_dir / "server.properties"
        if not self._ports:
            self.work_dir.mkdir(parents=True, exist_ok=True)
            (self.work_dir / "log4j2.properties").write_text(LOGGING)
            self._ports = {name: reserve_port(self, self.host) for name in ("CONTROLLER", *self._protocols)}
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
            self._format([*command, *sharing.reading], properties)
        logging = f"-Dlog4j2.configurationFile={self.work_dir / 'log4j2.properties'}"
        run = [
            sys.executable,
            str(HERE / "warden.py"),
            *command,
            *sharing.flags(),
            logging,
            "kafka.Kafka",
            str(properties),
        ]
        with self.log_path.open("ab") as log:
            self._warden = subprocess.Popen(
                run,
                cwd=self.work_dir,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._warden.stdout is not None
        self.pid = int(self._warden.stdout.readline() or b"0")
        self._wait_until_ready()
        return self

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask the process to end (SIGTERM); kill it when it does not listen."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> Self:
        """Kill the process if it lives, and start it again on the same directory and ports."""
        self.kill()
        return self.start()

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _properties(self) -> dict[str, str]:
        def where(names: Sequence[str]) -> str:
            return ",".join(f"{name}://{self.host}:{self._ports[name]}" for name in names)

        protocols = {"CONTROLLER": "PLAINTEXT", **self._protocols}
        return {
            **SETTINGS,
            "log.dirs": str(self.work_dir / "data"),
            "controller.quorum.voters": f"1@{self.host}:{self._ports['CONTROLLER']}",
            "listeners": where(list(protocols)),
            "advertised.listeners": where(list(self._protocols)),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            **self._settings,
        }

    def _format(self, command: Sequence[str], properties: Path) -> None:
        # one in 64 would begin with a dash, which Kafka's tool takes for an option
        cluster_id = urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        words = ["format", "-t", cluster_id, "-c", str(properties), *self._format_arguments]
        for name, level in self._features.items():
            words += ["--feature", f"{name}={level}"]
        done = subprocess.run(
            [*command, "kafka.tools.StorageTool", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=READY_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            self._ports = {}
            raise KafkaFailed(f"its directory could not be formatted: {(done.stdout + done.stderr)[-2000:]}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                why = "did not answer in time" if self.running else "ended"
                self.kill()
                raise KafkaFailed(f"Kafka {why}; the end of its log:\n{self.log()[-4000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        """Whether the broker lists itself, as it does once the controller counts it in."""
        try:
            with socket.create_connection((self.host, self._ports["PLAINTEXT"]), 5) as sock:
                sock.sendall(struct.pack(">i", len(_METADATA_V4)) + _METADATA_V4)
                answer = sock.recv(1 << 12)
                return int(struct.unpack_from(">i", answer, _BROKERS_AT)[0]) > 0
        except (OSError, struct.error):
            return False

    def _end(self, number: signal.Signals) -> None:
        warden, self._warden = self._warden, None
        if warden is None:
            return
        assert warden.stdin is not None
        assert warden.stdout is not None
        if warden.poll() is None and self.pid:
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, number)
        in_order = False
        try:
            warden.wait(STOP_TIMEOUT_SECONDS if number is signal.SIGTERM else 0.5)
            in_order = number is signal.SIGTERM
        except subprocess.TimeoutExpired:
            pass  # the end of its standard input makes the warden kill
        warden.stdin.close()
        warden.stdout.close()
        warden.wait(STOP_TIMEOUT_SECONDS)
        if in_order:  # else the archive may be half an archive
            self._sharing.keep()
