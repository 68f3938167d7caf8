"""The shared part of `fencepost spark`: options of Spark and of shapes, the session, and clear errors."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fencepost.cli.client_options import BOOTSTRAP_NAMES, bootstrap_option, properties, trust_options
from fencepost.cli.connect import fail, fail_with
from fencepost.cli.errors import EXIT_INTERRUPTED
from fencepost.cli.parameters import SecondsType
from fencepost.cli.spark.quiet import command_session

if TYPE_CHECKING:
    from fencepost.spark_pipelines.shape import Shape

F = TypeVar("F", bound=Callable[..., Any])
CLIENT_ID = "fencepost-spark"
_TIMEOUTS = "fencepost.spark_patience"
_LINE_SECONDS = 10.0


class Setting(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, rest = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is not a setting; write it as NAME=VALUE", param, ctx)
        return name.strip(), rest.strip()


SETTING = Setting()


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--master, --conf and --verbose: the command gets `start_spark`, which takes a name and returns the session.

    Without --verbose Spark is silent: of its 200 lines for an error, `report_errors` prints the cause.
    """

    @functools.wraps(command)
    def call(master: str | None, conf: tuple[tuple[str, str], ...], verbose: bool, **more: Any) -> Any:
        start_spark = functools.partial(command_session, master=master, conf=dict(conf), verbose=verbose)
        return command(start_spark=start_spark, **more)

    options = call
    for option in (
        click.option("--verbose", is_flag=True, help="Show what Spark's processes print, with their stack traces."),
        click.option(
            "--conf",
            "conf",
            multiple=True,
            type=SETTING,
            metavar="NAME=VALUE",
            help="Set a setting of Spark, such as spark.driver.memory=4g; repeatable.",
        ),
        click.option("--master", metavar="URL", help="Use this Spark master.  [default: local[*], in this process]"),
    ):
        options = option(options)
    return options


def broker_options(command: F) -> F:
    """--bootstrap, --timeout, --command-config and -X; `kafka_settings` returns their values."""
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=SecondsType(at_least=0.1),
        metavar="DURATION",
        expose_value=False,
        callback=_timeout,
        help="Retry for this long if a broker does not respond.  [default: 60]",
    )
    return bootstrap_option(timeout(trust_options(command)))


def _timeout(context: click.Context, parameter: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        timeout_ms = round(seconds * 1000)
        context.meta[_TIMEOUTS] = {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}


def shape_options(command: F) -> F:
    """--where, --select, --sql and --function."""
    for option in (
        click.option(
            "--function",
            "function",
            metavar="MODULE:NAME",
            help="Apply this Python function, which takes a DataFrame and returns one; also FILE.py:NAME.",
        ),
        click.option(
            "--sql", metavar="QUERY", help="Run this query on the table `source`, instead of --where and --select."
        ),
        click.option(
            "--select", metavar="EXPRESSIONS", help="Take these columns: SQL expressions, separated by commas."
        ),
        click.option("--where", metavar="CONDITION", help="Take only records that meet this SQL condition."),
    ):
        command = option(command)
    return command


def shape_of(where: str | None, select: str | None, sql: str | None, function: str | None) -> Shape:
    """The shape that the options describe, with its function imported."""
    from fencepost.spark_pipelines.shape import Shape, function_of

    return Shape(where, select, sql, None if function is None else function_of(function))


def kafka_settings(bootstrap: str) -> dict[str, Any]:
    """The connection under Kafka's dotted names: --bootstrap, --timeout, --command-config and -X."""
    context = click.get_current_context()
    given = {name: value for name, value in properties(context).items() if name not in BOOTSTRAP_NAMES}
    return {"client.id": CLIENT_ID, **given, **context.meta.get(_TIMEOUTS, {}), "bootstrap.servers": bootstrap}


@contextmanager
def report_errors(bootstrap: str) -> Iterator[None]:
    """Turn an error of a pipeline into a line that says what to do, and exit code 1; Ctrl-C into 130."""
    from fencepost.client import ConfigError, KafkaError
    from fencepost.spark_pipelines.errors import PipelineError

    try:
        yield
    except KeyboardInterrupt:
        click.echo("fencepost: stopped; start the command again to continue", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except PipelineError as error:
        fail(str(error))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except KafkaError as error:
        fail_with(error, bootstrap)
    except (ValueError, OSError) as error:
        fail(str(error))
    except Exception as error:
        message = _of_spark(error, bootstrap)
        if message is None:
            raise
        fail(f"{message}\n  --verbose shows Spark's log")


def _of_spark(error: Exception, bootstrap: str) -> str | None:
    """The message for an error from Spark or the connector; None for a defect of fencepost."""
    from fencepost.spark_connector.network.wire import BrokerError
    from fencepost.spark_pipelines.session import cause_of

    if find_spec("pyspark") is None:
        return None
    if isinstance(error, BrokerError):
        return f"{error}\n  is a broker running at {bootstrap}? Name another with --bootstrap HOST:PORT"
    return cause_of(error)


def need_rich() -> None:
    """End the command if rich is missing. The audit prints its report with it."""
    if find_spec("rich") is None:
        fail("rich, which prints the report, is not installed here.\n  Install it (pip install rich), or use --json")


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, called with (finished tasks, all tasks). Without a terminal or without rich it prints lines."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield _lines(label)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


def _lines(label: str) -> Callable[[int, int], None]:
    """Prints a line now and then as long as there are tasks."""
    began = said = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if total and now - said >= _LINE_SECONDS:
            said = now
            click.echo(f"{label}: {done:,} of {total:,} tasks done, {now - began:,.0f} s", err=True)

    return show
