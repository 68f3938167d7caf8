"""The shared part of commands that connect to a broker: options, the client, and errors with what to do next."""

import functools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from fencepost.cli.client_options import (
    BOOTSTRAP_NAMES,
    DEFAULT_BOOTSTRAP,
    bootstrap_option,
    config_file,
    is_default,
    profile_name,
    properties,
    trust_options,
)
from fencepost.cli.errors import EXIT_INTERRUPTED
from fencepost.cli.parameters import SecondsType

if TYPE_CHECKING:
    from fencepost.client import Client, KafkaError
    from fencepost.client.admin import Admin

EXIT_FAILED = 1
LOOK_SECONDS = 0.1


class Broker(NamedTuple):
    """The broker that a command connects to, the timeout, and the form of the output."""

    bootstrap: str
    timeout_s: float
    as_json: bool

    def ask(self, query: "Callable[[Admin], Awaitable[Any]]") -> Any:
        """As `run`, with an admin client; the name is that of the command's group (`fencepost-txn`)."""
        parent = click.get_current_context().parent
        assert parent is not None

        async def work(kafka: "Client") -> Any:
            async with kafka.admin() as admin:
                return await query(admin)

        return self.run(str(parent.command.name), work)

    def run(self, name: str, work: "Callable[[Client], Awaitable[Any]]") -> Any:
        """Run `work` with an open client and return its result; an error ends the process with exit code 1.

        The client id is `fencepost-` and the name: brokers recognize tools by it.
        """
        import trio

        from fencepost.client import ConfigError, KafkaError
        from fencepost.client.config_parsing import with_kafkas_names

        try:
            return trio.run(_run, client_config(self.bootstrap, self.timeout_s, f"fencepost-{name}"), work)
        except ConfigError as error:
            raise click.UsageError(with_kafkas_names(str(error))) from error
        except KafkaError as error:
            fail_with(error, self.bootstrap)
        except KeyboardInterrupt:
            sys.exit(EXIT_INTERRUPTED)
        except BaseExceptionGroup as group:
            if group.split(KeyboardInterrupt)[1] is not None:
                raise
            sys.exit(EXIT_INTERRUPTED)  # Ctrl-C arrived in a task of the client

    def print(self, as_object: Any, text: str) -> None:
        """Print the object with --json, otherwise the text."""
        if self.as_json:
            print_json(as_object)
        else:
            click.echo(text)


def broker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--bootstrap, --command-config, -X, --timeout and --json; the command gets them as `broker`."""

    @functools.wraps(command)
    def call(bootstrap: str, timeout_s: float, as_json: bool, **more: Any) -> Any:
        return command(broker=Broker(bootstrap, timeout_s, as_json), **more)

    options = trust_options(call)
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too."),
        click.option(
            "--timeout",
            "timeout_s",
            type=SecondsType(at_least=0.1),
            default=15.0,
            show_default=True,
            metavar="DURATION",
            help="Give up after this many seconds, or a duration such as 2m.",
        ),
        bootstrap_option,
    ):
        options = option(options)
    return options


async def _run(config: dict[str, Any], work: "Callable[[Client], Awaitable[Any]]") -> Any:
    from fencepost.client import Client

    async with Client.from_config(config) as kafka:
        return await work(kafka)


async def wait_until(done: Callable[[], Awaitable[bool]], timeout_s: float, late: str) -> None:
    """Look until brokers have done it. Raises KafkaError with the message `late` if that takes longer."""
    import trio

    from fencepost.client import KafkaError

    with trio.move_on_after(timeout_s):
        while not await done():  # noqa: ASYNC110 - other processes do it
            await trio.sleep(LOOK_SECONDS)
        return
    raise KafkaError(late)


def client_config(bootstrap: str, timeout_s: float, client_id: str) -> dict[str, Any]:
    """The client's configuration, under Kafka's names: the properties, overridden by the command's own options."""
    context = click.get_current_context()
    given = {name: value for name, value in properties(context).items() if name not in BOOTSTRAP_NAMES}
    timeout_ms = round(timeout_s * 1000)
    timeouts: dict[str, Any] = {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    if is_default(context, "timeout_s"):
        timeouts |= {name: given[name] for name in timeouts if name in given}
    return {**given, **timeouts, "bootstrap.servers": bootstrap, "client.id": client_id}


def check_config(config: dict[str, Any]) -> None:
    """Raises UsageError for a client's configuration that cannot be used."""
    from fencepost.client import Client, ConfigError
    from fencepost.client.config_parsing import with_kafkas_names

    try:
        Client.from_config(config)
    except ConfigError as error:
        raise click.UsageError(with_kafkas_names(str(error))) from error


def fail(message: str, *hints: str, error: str | None = None, exit_code: int = EXIT_FAILED) -> NoReturn:
    """Print to standard error what is wrong and what to do, as JSON with --json, and exit with the exit code.

    `error` is the Kafka name of the broker's error.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("as_json"):
        answer = {"error": error, "message": message, "hint": "; ".join(hint.rstrip(".") for hint in hints) or None}
        click.echo(json.dumps(answer), err=True)
    else:
        click.echo("\n  ".join([f"fencepost: {message}", *hints]), err=True)
    sys.exit(exit_code)


def fail_with(error: "KafkaError", bootstrap: str, *hints: str) -> NoReturn:
    """As `fail`, with the error in one sentence and what to do about it."""
    from fencepost.cli.hints import hint_for, sentence

    hint = hint_for(error, bootstrap)
    code = None if error.code is None else error.code.name
    message, *more = sentence(error).split("\n  ")
    fail(message, *more, *([] if hint is None else [hint]), *hints, error=code)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def command_for(bootstrap: str, *words: str) -> str:
    """A command to copy, for the same broker. It leaves out -X, whose values may be secret."""
    from shlex import join

    more = [] if bootstrap == DEFAULT_BOOTSTRAP else ["--bootstrap", bootstrap]
    context = click.get_current_context(silent=True)
    if context is not None:
        file, profile = config_file(context), profile_name(context)
        more += [] if file is None else ["--command-config", str(file)]
        more += [] if profile is None else ["--profile", profile]
    return join(["fencepost", *words, *more])
