"""Every option that takes a duration takes seconds, and durations in weeks and days."""

import click
import pytest

from fencepost.cli.main import cli

DAY = 86_400


@pytest.mark.parametrize(
    ("words", "parameter", "unit"),
    [
        ("topic list --timeout", "timeout_s", 1),
        ("txn list --longer-than", "seconds", 1),
        ("txn hanging --older-than", "seconds", 1),
        ("txn watch --interval", "interval", 1),
        ("spark export orders --into lake --follow", "seconds", 1),
        ("topic trim orders --older-than", "age_ms", 1000),
        ("group reset billing --all --by-duration", "by_duration", 1000),
    ],
)
def test_a_duration_is_taken(words: str, parameter: str, unit: int) -> None:
    def parsed(duration: str) -> float:
        context, command = click.Context(cli, info_name="fencepost"), cli
        *nouns, option = words.split()
        while isinstance(command, click.Group):
            found = command.get_command(context, nouns.pop(0))
            assert found is not None
            context, command = click.Context(found, context, info_name=found.name), found
        value: float = command.make_context(command.name, [*nouns, option, duration], context.parent).params[parameter]
        return value / unit

    assert [parsed(one) for one in ("1d", "2w", "1w1d", "1h30m", "PT2H")] == [DAY, 14 * DAY, 8 * DAY, 5400, 7200]
    if unit == 1:
        assert [parsed(one) for one in ("90", "0.5")] == [90, 0.5]
    with pytest.raises(click.BadParameter, match="is not a duration"):
        parsed("soon")
