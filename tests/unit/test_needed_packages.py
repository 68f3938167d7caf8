"""What an import that fails says: which extra to install."""

import pytest

from fencepost.extras import needed_for


def test_the_package_and_its_extra_are_named() -> None:
    text = r"the console needs jinja2: pip install 'fencepost\[console\]'"
    with pytest.raises(ModuleNotFoundError, match=text), needed_for("the console"):
        raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")


def test_what_is_not_known_to_be_missing_is_shown() -> None:
    """psycopg without libpq is an ImportError, not a module that is not found."""
    text = r"--store needs more packages \(no pq wrapper\): pip install 'fencepost\[cluster\]'"
    with pytest.raises(ValueError, match=text), needed_for("--store", "cluster", ValueError):
        raise ImportError("no pq wrapper")
    with pytest.raises(ImportError, match=r"^cannot import"), needed_for("the console"):
        raise ImportError("cannot import a name of ours", name="fencepost")
