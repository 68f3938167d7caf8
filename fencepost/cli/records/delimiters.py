"""The type of the options that name delimiters."""

import click

from fencepost.cli.records.formats import unescaped


class DelimiterType(click.ParamType):  # type: ignore[type-arg]
    """At least one byte, with escapes as in formats."""

    name = "bytes"

    def convert(self, value: str | bytes, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """The bytes; fails for none, and for an unknown escape."""
        if isinstance(value, bytes):
            return value
        try:
            found = unescaped(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not found:
            self.fail("a delimiter has at least one byte", param, ctx)
        return found


DELIMITER = DelimiterType()
