"""A progress bar on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Advance = Callable[[int], None]
"""Takes what was done since the last call."""


@contextmanager
def progress_bar(label: str, as_json: bool, *, show_pos: bool = False) -> Iterator[Callable[[int], Advance]]:
    """A bar on standard error, if that is a terminal and the output is no JSON.

    The caller gets a function that takes the amount of work, once it is known. `show_pos` also shows it in numbers.
    """
    if as_json or not sys.stderr.isatty():
        yield lambda total: lambda done: None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr, show_pos=show_pos) as bar:

        def begin(total: int) -> Advance:
            bar.length = max(1, total)
            return bar.update

        yield begin
