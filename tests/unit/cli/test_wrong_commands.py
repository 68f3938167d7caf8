"""What `fencepost` answers to a command that it does not have."""

import pytest
from click.testing import CliRunner

from fencepost.cli.main import cli


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("why-denied", "There is `fencepost acl why-denied`."),
        ("set-password", "There is `fencepost user set-password`."),
        ("hanging", "There is `fencepost txn hanging`."),
    ],
)
def test_a_command_without_its_group_is_found(word: str, says: str) -> None:
    wrong = CliRunner().invoke(cli, [word])
    assert wrong.exit_code == 2
    assert f"No such command '{word}'" in wrong.stderr
    assert says in wrong.stderr


def test_an_unknown_command_has_no_suggestion() -> None:
    wrong = CliRunner().invoke(cli, ["nonsense"])
    assert (wrong.exit_code, "There is" in wrong.stderr) == (2, False), wrong.stderr
