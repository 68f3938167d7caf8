"""`fencepost metadata-shell DIR`: walk through the committed metadata of a data directory, as of any offset."""

import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.connect import fail
from fencepost.cli.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from fencepost.broker.metadata.reader import ImageFollower, MetadataReader
    from fencepost.cli.metadata.history_text import HistoryText
    from fencepost.coordinator.metadata.image import MetadataImage

POLL_SECONDS = 0.2
ALL = "--all"
HISTORY = "history"


@click.command("metadata-shell", context_settings={"ignore_unknown_options": True})
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("words", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--at", "offset", type=click.IntRange(min=0), metavar="OFFSET", help="As it was at this offset of the log."
)
@click.option("--follow", is_flag=True, help="Keep running and show changes; without COMMAND, the history.")
@click.option("--json", "as_json", is_flag=True, help="history: one JSON object a line.")
def metadata_shell(directory: Path, words: tuple[str, ...], offset: int | None, follow: bool, as_json: bool) -> None:
    """Walk through the metadata in a data directory: topics, settings, features, access rules, as folders and values.

    DIR is a data directory or a metadata log's own directory, of fencepost or of Apache Kafka (KRaft). The command only
    reads it, so a broker may run on it. It shows committed metadata: a metadata transaction as a whole or not at all,
    and nothing of open or aborted ones.

    \b
      ls [-l] [PATH]...          names; -l also shows values
      cat PATH...                a value, or all of a folder as JSON
      find [PATH] [PATTERN]      paths; PATTERN may hold * and ?
      tree [PATH] [--depth N]    folders and values, drawn
      history [PATH] [--all]     changes, by transaction; --all: also those not committed

    Without COMMAND it reads commands, one a line; cd, pwd, at OFFSET, at end, help and exit are available too.

    \b
    Examples:
      fencepost metadata-shell ./data
      fencepost metadata-shell ./data cat /topics/orders
      fencepost metadata-shell ./data --at 1200 ls /topics
      fencepost metadata-shell ./data find '*/configs/retention*'
      fencepost metadata-shell ./data history /topics/orders
      fencepost metadata-shell ./data --follow

    Exit code 0: done; 1: the path or offset does not exist, or the log is damaged; 2: wrong usage.
    """
    from fencepost.broker.metadata.reader import MetadataReader, NoMetadataLog
    from fencepost.cli.metadata.tree import NoSuchPath
    from fencepost.cli.metadata.words import BadCommand
    from fencepost.coordinator.metadata.delta import MetadataCorrupt

    if follow and offset is not None:
        raise click.UsageError("--follow shows future changes, --at a past state: use one of them")
    if as_json and list(words[:1]) != [HISTORY] and not (follow and not words):
        raise click.UsageError("--json needs history; cat always writes JSON")
    try:
        reader = MetadataReader(directory)
        shell = Shell(reader, offset, as_json)
        if follow:
            shell.follow(list(words) or [HISTORY])
        elif words:
            shell.execute(list(words))
        else:
            shell.interact()
    except BadCommand as error:
        raise click.UsageError(str(error)) from error
    except (NoSuchPath, NoMetadataLog) as error:
        fail(str(error))
    except MetadataCorrupt as error:
        fail(f"the metadata log is damaged: {error}", f"to list all damage: fencepost verify {directory}")
    except BrokenPipeError:
        raise  # the reader of the output closed it
    except OSError as error:
        fail(f"{directory} cannot be read: {error}")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


class Shell:
    """The shell's state: a directory, the current path, and an offset or the end of the log."""

    def __init__(self, reader: "MetadataReader", offset: int | None, as_json: bool) -> None:
        self._reader = reader
        self._offset = offset
        self._as_json = as_json
        self._here = "/"
        self._follower: ImageFollower | None = None
        """Reads up to `_offset`. The next command reads only newer records."""

    def execute(self, words: list[str]) -> None:
        if words[0] == HISTORY:
            _echo(self._history(words[1:]))
            return
        self._check(words)
        from fencepost.cli.metadata.words import run

        _echo(run(self._image(), self._here, words))

    def _check(self, words: list[str]) -> None:
        """Raise BadCommand before the log is read."""
        from fencepost.cli.metadata.words import USAGES, BadCommand

        if words[0] not in USAGES:
            raise BadCommand(f"{words[0]!r} is not a command; the commands are {', '.join(USAGES)}")

    def _image(self) -> "MetadataImage":
        from fencepost.broker.metadata.reader import NoMetadataLog
        from fencepost.coordinator.metadata.delta import MetadataCorrupt

        if self._follower is not None:
            try:
                self._follower.poll(self._offset)
                return self._follower.image
            except (NoMetadataLog, MetadataCorrupt, FileNotFoundError):
                self._follower = None  # the log does not continue there, or is damaged: read it again
        self._follower = self._reader.follow_image(self._offset)
        return self._follower.image

    def _go_to(self, offset: int | None) -> None:
        """From now on, show the metadata as of that offset, or of the log's end."""
        self._follower = self._reader.follow_image(offset)
        self._offset = offset

    def _history(self, words: list[str]) -> Iterator[str]:
        import json

        from fencepost.cli.metadata.history_text import moment_json

        text, everything = self._history_text(words)
        hidden = 0
        for one in self._reader.moments(None, self._offset):
            lines = list(text.lines(one))
            if self._as_json and lines:
                yield json.dumps(moment_json(one))
            elif not self._as_json:
                yield from lines
            hidden += one.verdict.value != "committed"
        if hidden and not everything:
            click.echo(f"{hidden} aborted or open, not shown; --all shows them", err=True)

    def _history_text(self, words: list[str]) -> "tuple[HistoryText, bool]":
        from fencepost.cli.metadata.history_text import HistoryText
        from fencepost.cli.metadata.tree import absolute
        from fencepost.cli.metadata.words import BadCommand, options

        flags, _, paths = options(HISTORY, words, (ALL,))
        if len(paths) > 1:
            raise BadCommand("history takes at most one path")
        return HistoryText(absolute(self._here, paths[0] if paths else "."), ALL in flags), ALL in flags

    def follow(self, words: list[str]) -> None:
        """Print the output of a command, and again after each change. Of the history, print only new entries."""
        if words[0] == HISTORY:
            self._follow_history(words[1:])
        self._check(words)
        from fencepost.cli.metadata.words import run

        seen: MetadataImage | None = None
        before: list[str] | None = None
        while True:
            image = self._image()
            if image is not seen:
                lines = _lines_or_error(run(image, self._here, words))
                if lines != before:
                    click.echo(f"-- at offset {image.offset}")
                    _echo(lines)
                seen, before = image, lines
            time.sleep(POLL_SECONDS)

    def _follow_history(self, words: list[str]) -> None:
        import json

        from fencepost.cli.metadata.history_text import moment_json

        text, _ = self._history_text(words)
        follower = self._reader.follow()
        tail = None
        while True:
            for one in follower.decided():
                lines = list(text.lines(one))
                _echo([json.dumps(moment_json(one))] if self._as_json and lines else lines)
            if follower.tail is not None and follower.tail == tail:
                fail(f"the rest of the log cannot be read: {follower.tail}")
            tail = follower.tail
            time.sleep(POLL_SECONDS)

    def interact(self) -> None:
        """Read and run commands until the input ends. An error ends only its own command."""
        from fencepost.broker.metadata.reader import NoMetadataLog
        from fencepost.cli.metadata.tree import NoSuchPath
        from fencepost.cli.metadata.words import BadCommand

        is_terminal = sys.stdin.isatty()
        if is_terminal:
            with suppress(ImportError):
                import readline  # noqa: F401 - enables line editing
            click.echo("The committed metadata, read-only. Type help for the commands, exit to end.")
        while True:
            try:
                line = input(self._prompt()) if is_terminal else _next_line()
            except EOFError:
                return
            try:
                words = shlex.split(line, comments=True)
                if words[:1] in (["exit"], ["quit"]):
                    return
                if words:
                    self._dispatch(words)
            except (BadCommand, NoSuchPath, NoMetadataLog, ValueError) as error:
                click.echo(f"{error}", err=True)

    def _prompt(self) -> str:
        return f"{self._here}{'' if self._offset is None else f' @{self._offset}'}> "

    def _dispatch(self, words: list[str]) -> None:
        from fencepost.cli.metadata.tree import Folder, absolute, at, root
        from fencepost.cli.metadata.words import USAGES, BadCommand

        match words:
            case ["cd"] | ["cd", _]:
                parts = absolute(self._here, words[1] if len(words) > 1 else "/")
                if not isinstance(at(root(self._image()), parts), Folder):
                    raise BadCommand(f"/{'/'.join(parts)} is a value, not a folder")
                self._here = "/" + "/".join(parts)
            case ["pwd"]:
                click.echo(f"{self._here}, at offset {self._image().offset}")
            case ["at", "end"]:
                self._go_to(None)
            case ["at", number] if number.isascii() and number.isdigit():
                self._go_to(int(number))
            case ["at", *_]:
                raise BadCommand("use at OFFSET or at end")
            case ["help", *_]:
                _echo([*USAGES.values(), "cd [PATH]; pwd; at OFFSET; at end; help; exit"])
            case _:
                self.execute(words)


def _next_line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _lines_or_error(lines: Iterable[str]) -> list[str]:
    """The lines, or the error: a path that is followed may be created and deleted."""
    from fencepost.cli.metadata.tree import NoSuchPath

    try:
        return list(lines)
    except NoSuchPath as error:
        return [str(error)]


def _echo(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
