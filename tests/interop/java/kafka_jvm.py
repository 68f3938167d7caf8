"""One JVM with Kafka's classes in it, driven from Python (py4j, part of PySpark): no start-up for every question."""

import contextlib
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.interop.java.jars import Unavailable, class_path, java

MINUTE_MS = 60_000
STOP_TIMEOUT_SECONDS = 100
COMMANDS = {
    "ConfigCommand": "kafka.admin",
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign",
}
"""The packages of those commands that are not where the others are."""
HOOK_ARGUMENTS = ("java.lang.String", "java.lang.Runnable")


class ToolFailed(Exception):
    """The tool ended in an exception of Java's; the message is what py4j says of it."""


@dataclass(frozen=True, kw_only=True)
class OpenedLog:
    """What Kafka's own log makes of a partition directory."""

    start_offset: int
    end_offset: int
    last_stable_offset: int
    producers: dict[int, tuple[int, int, int]]
    """Producer id -> epoch, last sequence, start of the open transaction or -1."""
    aborted: list[tuple[int, int]]
    """Producer id and first offset of every aborted transaction, as a read_committed consumer is told."""


@dataclass(frozen=True, kw_only=True)
class SmallFiles:
    """What Kafka reads in the files beside the logs."""

    offsets: dict[str, dict[str, int]]
    """Name of the checkpoint -> partition -> offset."""
    topic_ids: dict[str, str]
    closed_in_order: bool
    cluster_id: str
    node_id: int


class KafkaJvm:
    """Kafka's tools and its log, in one process of Java. A context manager; raises Unavailable on entering."""

    def __enter__(self) -> Self:
        try:
            from py4j.java_gateway import GatewayParameters, JavaGateway, java_import, launch_gateway
        except ImportError as missing:
            raise Unavailable("Kafka's tools are driven through py4j: install PySpark, which brings it") from missing
        port, self._process = launch_gateway(
            classpath=class_path(),
            java_path=java(),
            javaopts=["-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx256m"],
            die_on_exit=True,
            redirect_stderr=subprocess.DEVNULL,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self._jvm = self._gateway.jvm
        for name in ("java.io.*", "java.util.*", "org.apache.kafka.storage.internals.log.*"):
            java_import(self._jvm, name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateway.shutdown()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def jvm(self) -> Any:
        """Kafka's and Java's packages (py4j)."""
        return self._jvm

    def dump(self, files: Iterable[Path], *options: str) -> str:
        """What DumpLogSegments prints of `files`. Raises ToolFailed."""
        return self.run(
            self._jvm.org.apache.kafka.tools.DumpLogSegments, "--files", ",".join(map(str, files)), *options
        )

    def run(self, tool: Any, *words: str) -> str:
        """What the main function of a tool's class prints. Raises ToolFailed."""
        return self._printed(lambda out: tool.main(self.array("String", words)))

    def tool(self, name: str, *words: str, errors_too: bool = True) -> str:
        """What a command of Kafka prints (with `errors_too` on both its streams): `TopicCommand` is kafka-topics.sh.

        Raises ToolFailed, with what was printed, for an exit code other than 0.
        """
        kind = self._jvm.java.lang.Class.forName(f"{COMMANDS.get(name, 'org.apache.kafka.tools')}.{name}")
        mains = {method.getName(): method for method in kind.getDeclaredMethods()}
        main = self._accessible(mains.get("mainNoExit", mains["main"]))
        given, returned = self.array("Object", [self.array("String", words)]), []
        with self._exits() as exits:
            printed = self._printed(lambda _: returned.append(main.invoke(None, given)), errors_too=errors_too)
            code = exits[0] if len(exits) else returned[0]
        if code:
            raise ToolFailed(printed)
        return printed

    @contextlib.contextmanager
    def _exits(self) -> Iterator[Any]:
        """The codes with which a tool would end the JVM: none of them does, by the hooks that Kafka's own tests use.

        What a tool wants to be done at the end of its process, such as to close a producer, is done at the end of this.
        """
        jvm, kind = self._jvm, self._jvm.java.lang.Class.forName
        number, text, runnable = kind("java.lang.Integer").getField("TYPE").get(None), *map(kind, HOOK_ARGUMENTS)
        codes, tasks = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        exits = jvm.org.apache.kafka.common.utils.Exit
        exits.setExitProcedure(self._appending(codes, "Exit$Procedure", (number, text), 0))
        exits.setShutdownHookAdder(self._appending(tasks, "Exit$ShutdownHookAdder", (text, runnable), 1))
        try:
            yield codes
        finally:
            exits.resetExitProcedure()
            exits.resetShutdownHookAdder()
            for task in tasks:
                thread = jvm.java.lang.Thread(task)
                thread.start()
                thread.join()

    def _appending(self, values: Any, interface: str, arguments: tuple[Any, Any], kept: int) -> Any:
        """An implementation of an interface of Kafka's with one method of two arguments: it appends one to a list."""
        jvm, kind = self._jvm, self._jvm.java.lang.Class.forName
        handles, types = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodType
        nothing, truth = (kind(f"java.lang.{name}").getField("TYPE").get(None) for name in ("Void", "Boolean"))
        add = types.methodType(truth, kind("java.lang.Object"))
        append = handles.publicLookup().findVirtual(kind("java.util.ArrayList"), "add", add).bindTo(values)
        append = append.asType(types.methodType(nothing, arguments[kept]))
        other = self.array("Class", [arguments[1 - kept]])
        implemented = kind(f"org.apache.kafka.common.utils.{interface}")
        with_both = handles.dropArguments(append, 1 - kept, other)
        return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(implemented, with_both)

    def groups(self, bootstrap: str, *words: str) -> str:
        """What ConsumerGroupCommand (kafka-consumer-groups.sh) prints on standard output. Raises ToolFailed."""
        patience = ("--timeout", str(2 * MINUTE_MS))
        return self.tool("ConsumerGroupCommand", "--bootstrap-server", bootstrap, *patience, *words, errors_too=False)

    def transactions(self, bootstrap: str, *words: str) -> str:
        """What TransactionsCommand (kafka-transactions.sh) prints on standard output. Raises ToolFailed."""
        return self.tool("TransactionsCommand", "--bootstrap-server", bootstrap, *words, errors_too=False)

    def _accessible(self, member: Any) -> Any:
        member.setAccessible(True)
        return member

    def array(self, kind: str, values: Iterable[Any]) -> Any:
        """An array of a class of java.lang."""
        values = list(values)
        array = self._gateway.new_array(getattr(self._jvm.java.lang, kind), len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array

    def _printed(self, work: Callable[[Any], Any], *, errors_too: bool = False) -> str:
        """What `work` prints on its stream or on standard output (and for errors). Raises ToolFailed."""
        from py4j.protocol import Py4JJavaError

        system, printed = self._jvm.java.lang.System, self._jvm.ByteArrayOutputStream()
        before, errors, stream = system.out, system.err, self._jvm.PrintStream(printed, True, "UTF-8")
        system.setOut(stream)
        if errors_too:
            system.setErr(stream)
        try:
            work(stream)
        except Py4JJavaError as error:
            raise ToolFailed(f"{printed.toString('UTF-8')}\n{error}") from error
        finally:
            system.setOut(before)
            system.setErr(errors)
        return str(printed.toString("UTF-8"))

    def open_log(
        self, directory: Path, *, clean: bool, recovery_point: int = 0, append: Iterable[bytes] = ()
    ) -> OpenedLog:
        """Let Kafka's log recover a partition directory, which it may change, and close it again.

        `clean` as after a stop in order; `append` are batches that it takes as a leader before it closes.
        """
        with self._log(directory, clean, recovery_point) as log:
            records = self._jvm.org.apache.kafka.common.record.internal.MemoryRecords
            for batch in append:
                log.appendAsLeader(records.readableRecords(self._jvm.java.nio.ByteBuffer.wrap(batch)), 0)
            return self._facts(log)

    def small_files(self, data_dir: Path) -> SmallFiles:
        """What Kafka's readers make of the files at the top of a data directory and of `partition.metadata`."""
        jvm, checkpoint = self._jvm, self._jvm.org.apache.kafka.storage.internals.checkpoint
        failures = jvm.LogDirFailureChannel(1)
        loader = jvm.org.apache.kafka.metadata.properties.MetaPropertiesEnsemble.Loader()
        loader.addLogDirs([str(data_dir)])
        identity = loader.load()
        return SmallFiles(
            offsets={
                path.name: {
                    str(pair.getKey()): pair.getValue()
                    for pair in checkpoint.OffsetCheckpointFile(jvm.File(str(path)), failures).read().entrySet()
                }
                for path in data_dir.glob("*-offset-checkpoint")
            },
            topic_ids={
                path.parent.name: checkpoint.PartitionMetadataFile(jvm.File(str(path)), failures)
                .read()
                .topicId()
                .toString()
                for path in data_dir.glob("*/partition.metadata")
            },
            closed_in_order=checkpoint.CleanShutdownFileHandler(str(data_dir)).exists(),
            cluster_id=identity.clusterId().get(),
            node_id=identity.nodeId().getAsInt(),
        )

    @contextlib.contextmanager
    def _log(self, directory: Path, clean: bool, recovery_point: int) -> Iterator[Any]:
        jvm = self._jvm
        scheduler = jvm.org.apache.kafka.server.util.KafkaScheduler(1)
        scheduler.startup()
        stats = jvm.org.apache.kafka.storage.log.metrics.BrokerTopicStats(False)
        try:
            log = jvm.UnifiedLog.create(
                jvm.File(str(directory)),
                jvm.LogConfig(jvm.Properties()),
                0,
                recovery_point,
                scheduler,
                stats,
                jvm.org.apache.kafka.common.utils.Time.SYSTEM,
                15 * MINUTE_MS,
                jvm.ProducerStateManagerConfig(24 * 60 * MINUTE_MS, False),
                10 * MINUTE_MS,
                jvm.LogDirFailureChannel(1),
                clean,
                jvm.Optional.empty(),
            )
            try:
                yield log
            finally:
                log.close()
        finally:
            stats.close()
            scheduler.shutdown()

    def _facts(self, log: Any) -> OpenedLog:
        end_offset = log.logEndOffset()
        log.updateHighWatermark(end_offset)
        stable_offset = log.lastStableOffset()
        producers = {}
        for pair in log.producerStateManager().activeProducers().entrySet():
            entry = pair.getValue()  # not by key: py4j would ask for an Integer where the key is a Long
            begun = entry.currentTxnFirstOffset()
            producers[entry.producerId()] = (
                entry.producerEpoch(),
                entry.lastSeq(),
                begun.getAsLong() if begun.isPresent() else -1,
            )
        aborted = [(one.producerId(), one.firstOffset()) for one in log.collectAbortedTransactions(0, stable_offset)]
        return OpenedLog(
            start_offset=log.logStartOffset(),
            end_offset=end_offset,
            last_stable_offset=stable_offset,
            producers=producers,
            aborted=aborted,
        )
