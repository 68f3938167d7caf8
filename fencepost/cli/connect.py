"""What commands share that talk to a running broker: the options, the client, and errors that say what to do next."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def broker_options(command: F) -> F:
    """--bootstrap, --timeout and --json."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="JSON instead of text."),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(min=0.1),
            default=15.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to go on trying.",
        ),
        click.option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            default=DEFAULT_BOOTSTRAP,
            show_default=True,
            envvar="FENCEPOST_BOOTSTRAP",
            help="A broker to ask; also from FENCEPOST_BOOTSTRAP.",
        ),
    ):
        command = option(command)
    return command


def ask(bootstrap: str, timeout_s: float, client_id: str, talk: "Callable[[Admin], Awaitable[Any]]") -> Any:
    """Run `talk` with an admin client and return what it returns; what goes wrong ends the process with code 1."""
    import trio

    from fencepost.client import ConfigError, KafkaError

    try:
        return trio.run(_talk, bootstrap, timeout_s, client_id, talk)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except KafkaError as error:
        fail(advice(error, bootstrap))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        sys.exit(EXIT_INTERRUPTED)  # it met a task of the client's


async def _talk(bootstrap: str, timeout_s: float, client_id: str, talk: "Callable[[Admin], Awaitable[Any]]") -> Any:
    from fencepost.client import Client

    timeout_ms = round(timeout_s * 1000)
    options: dict[str, Any] = {"default_api_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms}
    async with Client(bootstrap, client_id=client_id, **options) as kafka, kafka.admin() as admin:
        return await talk(admin)


def fail(message: str) -> NoReturn:
    """Say what is wrong and end with exit code 1."""
    click.echo(f"fencepost: {message}", err=True)
    sys.exit(EXIT_FAILED)


def advice(error: Exception, bootstrap: str) -> str:
    """The error, and what to do about it."""
    from fencepost.client import KafkaError
    from fencepost.protocol.errors import ErrorCode

    assert isinstance(error, KafkaError)
    match error.code:
        case ErrorCode.NETWORK_EXCEPTION:
            hint = f"is a broker running at {bootstrap}? Name another with --bootstrap HOST:PORT"
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            hint = "there is no such partition; topics and their partitions are numbered from 0"
        case ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            hint = (
                "no such transactional id, or it was forgotten unused; `fencepost txn list` shows those that are known"
            )
        case ErrorCode.GROUP_ID_NOT_FOUND:
            hint = "`fencepost group list` shows the groups there are"
        case ErrorCode.UNKNOWN_MEMBER_ID:
            hint = "somebody has joined the group meanwhile: stop its members first"
        case ErrorCode.UNSTABLE_OFFSET_COMMIT:
            hint = "wait until that transaction has ended; `fencepost txn list --state Ongoing` shows which are open"
        case ErrorCode.INVALID_REGULAR_EXPRESSION:
            hint = "the pattern must match the whole id, as in 'orders-.*'"
        case ErrorCode.UNSUPPORTED_VERSION:
            hint = "this broker is too old for that question; leave the filter out"
        case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            hint = (
                "the coordinator is loading, or its log is damaged (the broker's log says which); try with --timeout 60"
            )
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED | ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            hint = "this needs rights that your user has not"
        case _:
            return str(error)
    return f"{error}\n  {hint}"


def tell_json(value: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2))


def command_for(bootstrap: str, *words: str) -> str:
    """A command to copy, for the same broker."""
    from shlex import join

    more = [] if bootstrap == DEFAULT_BOOTSTRAP else ["--bootstrap", bootstrap]
    return join(["fencepost", *words, *more])
