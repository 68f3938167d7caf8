"""What the commands of `fencepost spark` share: options of Spark and of shapes, the session, and clear errors."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fencepost.cli.client_options import BOOTSTRAP_NAMES, bootstrap_option, properties, trust_options
from fencepost.cli.connect import EXIT_INTERRUPTED, fail, fail_with
from fencepost.cli.parameters import SecondsType
from fencepost.cli.spark.quiet import command_session

if TYPE_CHECKING:
    from fencepost.spark_pipelines.shape import Shape

F = TypeVar("F", bound=Callable[..., Any])
CLIENT_ID = "fencepost-spark"
_PATIENCE = "fencepost.spark_patience"


class Setting(click.ParamType):  # type: ignore[type-arg]
    """NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, rest = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is no setting; write it as NAME=VALUE", param, ctx)
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
            help="A setting of Spark, such as spark.driver.memory=4g; repeatable.",
        ),
        click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*], in this process]"),
    ):
        options = option(options)
    return options


def broker_options(command: F) -> F:
    """--bootstrap, --timeout, --command-config and -X; `kafka_settings` has what they say."""
    timeout = click.option(
        "--timeout",
        "timeout_s",
        type=SecondsType(at_least=0.1),
        metavar="DURATION",
        expose_value=False,
        callback=_timeout,
        help="How long to go on trying where a broker does not answer.  [default: 60]",
    )
    return bootstrap_option(timeout(trust_options(command)))


def _timeout(context: click.Context, parameter: click.Parameter, seconds: float | None) -> None:
    if seconds is not None:
        timeout_ms = round(seconds * 1000)
        context.meta[_PATIENCE] = {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}


def shape_options(command: F) -> F:
    """--where, --select, --sql and --function."""
    for option in (
        click.option(
            "--function",
            "function",
            metavar="MODULE:NAME",
            help="A Python function that is given the DataFrame and returns one; also FILE.py:NAME.",
        ),
        click.option(
            "--sql", metavar="QUERY", help="A query over the table `source`, instead of --where and --select."
        ),
        click.option("--select", metavar="EXPRESSIONS", help="SQL expressions for the columns, with commas between."),
        click.option("--where", metavar="CONDITION", help="A SQL condition: which records to take."),
    ):
        command = option(command)
    return command


def shape_of(where: str | None, select: str | None, sql: str | None, function: str | None) -> Shape:
    """The shape that the options ask for; its function is imported."""
    from fencepost.spark_pipelines.shape import Shape, function_of

    return Shape(where, select, sql, None if function is None else function_of(function))


def kafka_settings(bootstrap: str) -> dict[str, Any]:
    """The connection under Kafka's dotted names: --bootstrap, --timeout, and what --command-config and -X say."""
    context = click.get_current_context()
    given = {name: value for name, value in properties(context).items() if name not in BOOTSTRAP_NAMES}
    return {"client.id": CLIENT_ID, **given, **context.meta.get(_PATIENCE, {}), "bootstrap.servers": bootstrap}


@contextmanager
def report_errors(bootstrap: str) -> Iterator[None]:
    """Turn what goes wrong in a pipeline into a line that says what to do, and exit code 1; Ctrl-C into 130."""
    from fencepost.client import ConfigError, KafkaError
    from fencepost.spark_pipelines.errors import PipelineError

    try:
        yield
    except KeyboardInterrupt:
        click.echo("fencepost: stopped; start it again to go on where it was", err=True)
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
    """What an error means that came through Spark or the connector; None where it is a mistake of ours."""
    from fencepost.spark_connector.network.wire import BrokerError
    from fencepost.spark_pipelines.session import cause_of

    if find_spec("pyspark") is None:
        return None
    if isinstance(error, BrokerError):
        return f"{error}\n  is a broker running at {bootstrap}? Name another with --bootstrap HOST:PORT"
    return cause_of(error)


def need_rich() -> None:
    """End the command where rich is missing, which draws the audit's report on a terminal."""
    if find_spec("rich") is None:
        fail("rich, which draws the report, is not installed here.\n  Install it (pip install rich), or say --json")


@contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, called with (done, total); without a terminal, or without rich, nothing is printed."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
