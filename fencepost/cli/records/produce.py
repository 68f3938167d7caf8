"""`fencepost produce`: records from standard input or files into a topic."""

import gc
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from fencepost.cli.client_options import is_default, properties
from fencepost.cli.completion.names import complete_topics, complete_transactional_ids
from fencepost.cli.connect import Broker, broker_options, fail
from fencepost.cli.errors import first_of
from fencepost.cli.parameters import SETTING, Setting
from fencepost.cli.records.cutting import Cut, Input, Pair
from fencepost.cli.records.delimiters import DELIMITER

if TYPE_CHECKING:
    from trio import CancelScope

    from fencepost.client import Client, KafkaError

BATCH_BYTES = 512 << 10
DEFAULT_LARGEST = 1 << 20
"""The default of max.request.size."""
COLLECTED_AT = 100_000
"""Objects between two garbage collections. Records are no garbage, and a seventh of the time was spent on them."""
BLOCK_RECORDS = 100_000
BLOCK_SECONDS = 0.2
"""After this many records, or if no record comes for this long, the command waits for acknowledgements: an error is
reported soon, and not at the end of an endless input."""


class Target(NamedTuple):
    """Where records go, and the headers of each."""

    topic: str
    partition: int | None
    headers: tuple[tuple[str, bytes], ...]


def _complete_word(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    if context.params.get("words") or context.params.get("topic"):
        return [CompletionItem(incomplete, type="file")]
    return complete_topics(context, parameter, incomplete)


@click.command(short_help="Send records from standard input or files to a topic.")
@click.argument("words", metavar="TOPIC [FILE]...", nargs=-1, shell_complete=_complete_word)
@click.option(
    "--topic",
    "-t",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Send to this topic; the arguments are then only FILEs.",
)
@click.option(
    "--lines", "-l", is_flag=True, help="Each line of a FILE is a record. Without it each FILE is one record."
)
@click.option(
    "--key-delimiter", "-K", "between", type=DELIMITER, help="The key of a record ends at the first of these bytes."
)
@click.option("--key", "-k", metavar="KEY", help="All records have this key.")
@click.option(
    "--delimiter", "-D", "after", type=DELIMITER, default=r"\n", show_default=True, help="Records end at these bytes."
)
@click.option(
    "--header",
    "-H",
    "headers",
    type=SETTING,
    multiple=True,
    metavar="NAME=VALUE",
    help="All records have this header; repeatable.",
)
@click.option(
    "--partition", "-p", type=click.IntRange(min=0), metavar="N", help="Send to this partition.  [default: by the key]"
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Compress the batches.  [default: none]",
)
@click.option("--null", "-Z", is_flag=True, help="Send null instead of empty keys and values.")
@click.option(
    "--transaction", is_flag=True, help="Send all records in one transaction. It is aborted if one cannot be sent."
)
@click.option(
    "--transaction-size",
    "--txn-size",
    "size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Commit a transaction after each N records.",
)
@click.option(
    "--transactional-id",
    metavar="ID",
    shell_complete=complete_transactional_ids,
    help="The id of these transactions.  [default: a new one]",
)
@broker_options
def produce(
    words: tuple[str, ...],
    topic: str | None,
    lines: bool,
    between: bytes | None,
    key: str | None,
    after: bytes,
    headers: tuple[Setting, ...],
    partition: int | None,
    compression: str | None,
    null: bool,
    transaction: bool,
    size: int | None,
    transactional_id: str | None,
    broker: Broker,
) -> None:
    """Send records to a topic: each line of standard input is one. The options are those of kcat -P.

    Records are sent once and in order for each partition (idempotence, acks=all). The command ends when all of them are
    acknowledged; then --json writes how many there were. -X sets options of the producer, for example
    max.request.size.

    \b
    Examples:
      echo hello | fencepost produce greetings
      fencepost produce orders -l orders.txt -K : -z zstd
      fencepost produce orders --transaction < orders.txt
      fencepost produce pictures photo.jpg -k holidays -H type=image/jpeg
    """
    topic, files = _topic_and_files(words, topic)
    if key is not None and between is not None:
        raise click.UsageError("-k gives all records one key, and -K reads a key from each: give one of them")
    if transaction and size is not None:
        raise click.UsageError("--transaction sends all records in one transaction, so give no --transaction-size")
    if transactional_id is None and (transaction or size is not None):
        transactional_id = f"fencepost-produce-{uuid.uuid4()}"
    if sys.stdin is None and "-" in (files or ("-",)):
        raise click.UsageError("standard input is closed: give the records in a FILE, or a pipe")
    context = click.get_current_context()
    given = properties(context)
    named = given.get("max.request.size", "")
    largest = int(named) if named.isdecimal() else DEFAULT_LARGEST  # the client refuses a wrong one
    ends = None if files and not lines else after
    records = Input(Cut(ends, between, None if key is None else key.encode(), null), files or ("-",), largest)
    options: dict[str, Any] = {} if compression is None else {"compression": compression}
    options |= {} if "batch.size" in given else {"batch_size": BATCH_BYTES}
    options |= {} if "max.block.ms" in given else {"max_block": broker.timeout_s}
    if not is_default(context, "timeout_s") and "delivery.timeout.ms" not in given:
        options["delivery_timeout"] = broker.timeout_s
    gc.set_threshold(COLLECTED_AT)
    with_each = tuple((header.name, header.value.encode()) for header in headers)
    sender = _Sender(records, Target(topic, partition, with_each), options)
    if transactional_id is None:
        failure = broker.run("produce", sender.send)
    else:
        failure = broker.run("produce", partial(sender.transact, transactional_id, size or sys.maxsize))
    if failure is not None:
        sender.fail(failure, broker.bootstrap)
    if sender.ended_by is not None:
        sys.exit(128 + sender.ended_by)
    if broker.as_json:
        click.echo(f'{{"records": {sender.sent}, "transactions": {sender.committed}}}')


_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)


def _topic_and_files(words: tuple[str, ...], topic: str | None) -> tuple[str, tuple[str, ...]]:
    """The topic is the first word, unless -t names it as in kcat. Raises UsageError."""
    if topic is None and not words:
        raise click.UsageError("name the topic to send to")
    named, names = (words[0], words[1:]) if topic is None else (topic, words)
    context = click.get_current_context()
    parameter = next(one for one in context.command.params if one.name == "words")
    return named, tuple(str(_FILE.convert(name, parameter, context)) for name in names)


class _Sender:
    """Sends the records of the input."""

    def __init__(self, records: Input, target: Target, options: dict[str, Any]) -> None:
        self.sent = 0
        """Acknowledged records; in transactions, committed ones."""
        self.committed = 0
        self._records = records
        self._target = target
        self._options = options
        self._handed_in = 0
        self.ended_by: int | None = None
        """The signal that ended it, by Ctrl-C or SIGTERM: an open transaction is aborted."""
        self._refused: int | None = None
        """The number of the record that the client refuses, from 1."""
        self._transactional = False

    async def send(self, kafka: "Client") -> "KafkaError | None":
        """Send all records without a transaction; returns the error if that fails."""

        async def work() -> None:
            async with kafka.producer(**self._options) as producer:
                await self._send(producer.batch, BLOCK_RECORDS, BLOCK_SECONDS)

        return await self._failure(work)

    async def transact(self, transactional_id: str, size: int, kafka: "Client") -> "KafkaError | None":
        """Send all records in transactions of `size` records; returns the error if that fails."""
        self._transactional = True

        async def work() -> None:
            async with kafka.transactional_producer(transactional_id, **self._options) as producer:
                await self._send(producer.transaction, size, float("inf"))

        return await self._failure(work)

    async def _failure(self, work: "Callable[[], Any]") -> "KafkaError | None":
        """Run the work until it ends, or until Ctrl-C or SIGTERM; returns the first error of Kafka."""
        import trio

        from fencepost.client import KafkaError

        failure: KafkaError | None = None
        try:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._end_at, signals, nursery.cancel_scope)
                    await work()
                    nursery.cancel_scope.cancel()
        except* KafkaError as group:
            failure = first_of(group)
        return failure

    async def _end_at(self, signals: "AsyncIterator[int]", scope: "CancelScope") -> None:
        async for number in signals:
            self.ended_by = number
            scope.cancel()

    async def _send(
        self, block_of: "Callable[[], AbstractAsyncContextManager[Any]]", size: int, patience: float
    ) -> None:
        """Send blocks of up to `size` records; a block also ends if no record comes for `patience` seconds."""
        import trio

        pairs = await self._records.take(size)
        while pairs:
            async with block_of() as block:
                left = size
                while pairs:
                    await self._hand_in(block, pairs)
                    left -= len(pairs)
                    pairs = []
                    if left:
                        with trio.move_on_after(patience):
                            pairs = await self._records.take(left)
            self.sent = self._handed_in
            self.committed += self._transactional
            pairs = await self._records.take(size)

    async def _hand_in(self, block: Any, pairs: list[Pair]) -> None:
        from fencepost.client import KafkaError
        from fencepost.protocol.errors import ErrorCode

        topic, partition, headers = self._target
        try:
            if headers or partition is not None:
                for key, value in pairs:
                    await block.send(topic, value, key=key, partition=partition, headers=headers)
            else:
                await block.send_many(topic, pairs)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                largest = max(range(len(pairs)), key=lambda number: sum(map(len, filter(None, pairs[number]))))
                self._refused = self._handed_in + largest + 1
            raise
        self._handed_in += len(pairs)

    def fail(self, error: "KafkaError", bootstrap: str) -> NoReturn:
        """Say which record was refused, why, what became of the others, and what to do; exit with 1."""
        from fencepost.cli.hints import hints_for, sentence
        from fencepost.protocol.errors import ErrorCode

        what = sentence(error) if self._refused is None else f"record {self._refused} is refused: {sentence(error)}"
        hints = hints_for([error], bootstrap)
        if self._transactional and error.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
            hints.append(
                "was it open for longer than transaction.timeout.ms? -X transaction.timeout.ms=MS gives it more time,"
                " and --transaction-size commits earlier"
            )
        if self._transactional:
            others = f"Its transaction is aborted: {self.sent} records of {self.committed} transactions are committed."
        else:
            others = f"{self.sent} records are acknowledged; others may be in the topic, too."
        fail(what, *hints, others, error=None if error.code is None else error.code.name)
