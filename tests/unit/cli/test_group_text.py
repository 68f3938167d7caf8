"""The texts of `fencepost group`."""

from fencepost.cli.group.text import no_positions_text


def test_groups_without_positions_are_named_with_the_right_verb() -> None:
    assert no_positions_text(["a"]) == "No positions: 'a' has committed nothing and reads nothing."
    assert no_positions_text(["a", "b"]) == "No positions: 'a', 'b' have committed nothing and read nothing."
