"""`fencepost consume`: the records of topics on standard output."""

import signal
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.completion.names import complete_groups, complete_topics
from fencepost.cli.connect import Broker, broker_options
from fencepost.cli.errors import first_of
from fencepost.cli.parameters import PLACE, Place
from fencepost.cli.places import chosen_of, partitions_of
from fencepost.cli.records import formats
from fencepost.cli.records.delimiters import DELIMITER
from fencepost.cli.records.places import FIRST, Bound, Extent, OffsetType, of_all, offsets_of

if TYPE_CHECKING:
    from fencepost.client import Client, Consumer
    from fencepost.client.keywords import Isolation
    from fencepost.protocol.records import Record
    from fencepost.protocol.topics import TopicPartition

CHUNK = 20_000
"""Records that are written at once, at most."""
GRACE_SECONDS = 0.5
"""After Ctrl-C, what is being written has this long."""
FIND_SECONDS = 0.9
"""A topic that is not found for this long is looked up with the admin client, whose error says what is wrong.

It is less than the client waits before it warns that it tries again: the command does not."""


class Request(NamedTuple):
    """What to read, and how much."""

    places: tuple[Place, ...]
    numbers: Collection[int]
    extent: Extent
    to_end: bool
    limit: int | None
    group: str | None
    isolation: "Isolation"
    quiet: bool


def _writer(context: click.Context, parameter: click.Parameter, text: str | None) -> formats.Writer | None:
    if text is None:
        return None
    try:
        return formats.formatted(text, b"NULL" if context.params.get("null") else b"")
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command(short_help="Write the records of topics to standard output.")
@click.argument("places", metavar="TOPIC[:PARTITION]...", nargs=-1, type=PLACE, shell_complete=complete_topics)
@click.option(
    "--topic",
    "-t",
    "topics",
    type=PLACE,
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Read this topic, too: -t TOPIC is the same as TOPIC alone.",
)
@click.option(
    "--partition", "-p", "numbers", type=click.IntRange(min=0), multiple=True, help="Read this partition; repeatable."
)
@click.option(
    "--offset",
    "-o",
    "extents",
    type=OffsetType(),
    multiple=True,
    metavar="OFFSET",
    help="Where to begin in each partition: beginning, end, an offset, -N (N before the end), +N (N after the"
    " beginning), @TIME. FROM:TO and e@TIME also say where to end.  [default: beginning]",
)
@click.option(
    "--exit", "-e", "to_end", is_flag=True, help="Exit at the end that the partitions have now. Do not wait for more."
)
@click.option("--count", "-c", "-n", type=click.IntRange(min=1), metavar="N", help="Exit after N records.")
@click.option(
    "--group",
    "-G",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Read as a member of this consumer group, and commit what was written.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether to leave out records of open and aborted transactions.",
)
@click.option(
    "--null", "-Z", is_flag=True, is_eager=True, help="Write NULL for null keys and values instead of nothing."
)
@click.option(
    "--format",
    "-f",
    "writer",
    metavar="FORMAT",
    callback=_writer,
    help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp in ms, %K and %S sizes,"
    r" %R the value's size in 4 bytes, %%; \n, \t, \xNN.",
)
@click.option(
    "--key-delimiter", "-K", "between", type=DELIMITER, help="Write the key and these bytes before each value."
)
@click.option(
    "--delimiter",
    "-D",
    "after",
    type=DELIMITER,
    default=r"\n",
    show_default=True,
    help="Write these bytes after each record.",
)
@click.option("--quiet", "-q", is_flag=True, help="Do not write to standard error where partitions end.")
@click.option("-J", "json_lines", is_flag=True, help="The same as --json.")
@broker_options
def consume(
    places: tuple[Place, ...],
    topics: tuple[Place, ...],
    numbers: tuple[int, ...],
    extents: tuple[Extent, ...],
    to_end: bool,
    count: int | None,
    group: str | None,
    isolation: "Isolation",
    null: bool,
    writer: formats.Writer | None,
    between: bytes | None,
    after: bytes,
    quiet: bool,
    json_lines: bool,
    broker: Broker,
) -> None:
    """Write the records of topics to standard output, one line for each value. The options are those of kcat -C.

    Records of aborted transactions are left out, and the end of a partition is its last stable offset, unless
    --isolation read_uncommitted is given. With --json each record is one line: a JSON object with kcat's names. Bytes
    that are not UTF-8 are in key_base64 or payload_base64.

    \b
    Examples:
      fencepost consume orders -e
      fencepost consume orders -o -10 -e -f '%p:%o %k=%s\\n'
      fencepost consume orders:3 -o 1000:2000 --json
      fencepost consume orders -o s@2026-11-21T06:00:00 -o e@2026-11-21T07:00:00
      fencepost consume orders payments -G billing
    """
    places = (*topics, *places)
    if not places:
        raise click.UsageError("name a topic to read")
    extent = of_all(extents)
    if group is not None and (numbers or extent.end or extent.begin not in (None, FIRST, Bound("end"))):
        raise click.UsageError("the group assigns partitions and offsets: -G goes with -o beginning or -o end alone")
    if group is not None and any(place.partition is not None for place in places):
        raise click.UsageError("the group assigns partitions: name topics alone with -G")
    if sys.stdout is None:
        raise click.UsageError("standard output is closed: there is nowhere to write records")
    if json_lines:
        click.get_current_context().params["as_json"] = True  # of errors, too
    nothing = b"NULL" if null else b""
    if broker.as_json or json_lines:
        writer = formats.json_lines
    elif writer is None:
        writer = formats.values(after, nothing) if between is None else formats.keys_and_values(between, after, nothing)
    request = Request(places, numbers, extent, to_end, count, group, isolation, quiet)
    broker.run("consume", lambda kafka: _until_interrupted(kafka, request, writer))


async def _until_interrupted(kafka: "Client", request: Request, writer: formats.Writer) -> None:
    """Read until all is read, or until Ctrl-C or SIGTERM: then the group's offsets are still committed."""
    import trio

    wanted = await _partitions(kafka, request)
    try:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                output = _Output(request, writer)
                nursery.start_soon(_stop_at_signal, signals, output)
                await _consume(kafka, request, wanted, output)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_of(group) from None


async def _stop_at_signal(signals: "AsyncIterator[int]", output: "_Output") -> None:
    async for _ in signals:
        output.stop()


async def _consume(kafka: "Client", request: Request, wanted: "list[TopicPartition]", output: "_Output") -> None:
    reset = "latest" if request.extent.begin == Bound("end") else "earliest"
    topics = () if request.group is None else [place.topic for place in request.places]
    async with kafka.consumer(
        *topics,
        group=request.group,
        isolation=request.isolation,
        auto_offset_reset=reset,
        enable_auto_commit=bool(request.group),
    ) as consumer:
        await output.run(consumer, [] if topics else wanted)
        ends = {one: offset for one, offset in output.ends.items() if one in consumer.assignment}
        if request.group is not None and ends:
            await consumer.commit(ends)


class _Output:
    """Writes records until the request is fulfilled, or until `stop`."""

    def __init__(self, request: Request, writer: formats.Writer) -> None:
        import trio

        self.ends: dict[TopicPartition, int] = {}
        """Behind the last written record of each partition."""
        self._request = request
        self._writer = writer
        self._left = request.limit
        self._starts: Mapping[TopicPartition, int] = {}
        self._stops: Mapping[TopicPartition, int] = {}
        self._to_end = request.to_end
        self._reading, self._writing = trio.CancelScope(), trio.CancelScope()

    def stop(self) -> None:
        """Read no more. What is being written is finished, unless its reader has stopped reading."""
        import trio

        self._reading.cancel()
        self._writing.deadline = trio.current_time() + GRACE_SECONDS

    async def run(self, consumer: "Consumer[Any, Any]", wanted: "list[TopicPartition]") -> None:
        """Write what is wanted; without a group, of these partitions."""
        with self._reading:
            if wanted:
                await self._assign(consumer, wanted)
            await self._write_all(consumer)

    async def _assign(self, consumer: "Consumer[Any, Any]", wanted: "list[TopicPartition]") -> None:
        """Assign the partitions, and go to where reading begins in each."""
        from fencepost.client import ReadError

        consumer.assign(wanted)
        extent = self._request.extent
        if extent.begin not in (None, FIRST):
            assert extent.begin is not None
            starts = await offsets_of(consumer, extent.begin, wanted)
            if extent.begin.kind == "offset":
                self._starts, starts = starts, await self._within(consumer, starts)
            for partition, offset in starts.items():
                consumer.seek(partition, offset)
        if extent.end is not None:
            self._stops = await offsets_of(consumer, extent.end, wanted)
            ends = await consumer.end_offsets(*wanted)
            # A partition that ends in markers has no record that shows its end, so the client looks for it.
            self._to_end |= all(self._stops[one] <= ends[one] for one in wanted)
            for partition in wanted:
                try:
                    position = await consumer.position(partition)
                except ReadError:
                    continue  # the read raises it, with what to do
                if position >= self._stops[partition]:
                    consumer.pause(partition)

    async def _within(
        self, consumer: "Consumer[Any, Any]", starts: "Mapping[TopicPartition, int]"
    ) -> "Mapping[TopicPartition, int]":
        """These offsets, or the ends of the partitions that end before them: a broker reads none behind its end."""
        ends = await consumer.end_offsets(*starts)
        for partition, end in ends.items():
            if starts[partition] > end and not self._request.quiet:
                place = f"{partition.topic} [{partition.partition}]"
                click.echo(f"% Topic {place} ends at offset {end}, before {starts[partition]}", err=True)
        return {partition: min(offset, ends[partition]) for partition, offset in starts.items()}

    async def _write_all(self, consumer: "Consumer[Any, Any]") -> None:
        import trio

        if self._is_done(consumer):
            return
        limit = CHUNK if self._left is None else min(CHUNK, self._left)
        batches = consumer.read_to_end(limit) if self._to_end else consumer.batches(limit)
        async for batch in batches:
            runs = [(partition, self._wanted(consumer, partition, records)) for partition, records in batch.runs]
            with trio.CancelScope(shield=True) as self._writing:
                await trio.to_thread.run_sync(self._write, runs, abandon_on_cancel=True)
            if self._is_done(consumer):
                return
        if not self._request.quiet and not self._stops:
            for partition in sorted(consumer.assignment):
                end = await consumer.position(partition)
                click.echo(
                    f"% Reached end of topic {partition.topic} [{partition.partition}] at offset {end}", err=True
                )

    def _write(self, runs: "list[tuple[TopicPartition, list[Record]]]") -> None:
        """In a thread, which is left behind if its output is not read."""
        write_out(b"".join([self._writer(partition, records) for partition, records in runs]))
        self.ends |= {partition: records[-1].offset + 1 for partition, records in runs if records}

    def _is_done(self, consumer: "Consumer[Any, Any]") -> bool:
        return self._left == 0 or (bool(self._stops) and consumer.paused == consumer.assignment)

    def _wanted(
        self, consumer: "Consumer[Any, Any]", partition: "TopicPartition", records: "list[Record]"
    ) -> "list[Record]":
        if partition in self._stops:
            stop = self._stops[partition]
            if records[-1].offset + 1 >= stop:
                consumer.pause(partition)
                records = [record for record in records if record.offset < stop]
        if partition in self._starts:
            records = [record for record in records if record.offset >= self._starts[partition]]
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        return records


async def _partitions(kafka: "Client", request: Request) -> "list[TopicPartition]":
    """The partitions that are meant. Raises KafkaError for a topic or a partition that does not exist.

    The imports of the admin client take as long as reading 100,000 records: they are for the error alone.
    """
    import trio

    places = request.places
    if request.numbers:
        places = tuple(Place(place.topic, number) for place in places for number in request.numbers)
    there: list[TopicPartition] = []
    with trio.move_on_after(FIND_SECONDS):
        async with kafka.consumer() as consumer:
            for topic in dict.fromkeys(place.topic for place in places):
                there += await consumer.partitions_for(topic)
    if {*places} <= {Place(one.topic, number) for one in there for number in (one.partition, None)}:
        return chosen_of(places, there)
    async with kafka.admin() as admin:
        return await partitions_of(admin, places)


def write_out(data: bytes) -> None:
    """Write to standard output, without a buffer that a thread could leave locked. Raises BrokenPipeError."""
    stream = sys.stdout.buffer
    stream = getattr(stream, "raw", stream)
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]
