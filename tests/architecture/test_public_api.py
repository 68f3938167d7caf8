"""The public API stands in one file, so that a change of it shows in a diff."""

import re

import pytest

from tests.architecture.public_api import LIST, public_api
from tests.architecture.public_names import PACKAGES, members_of, public_classes, public_functions
from tests.architecture.public_types import private_types


def test_the_list_is_what_the_code_says() -> None:
    written = LIST.read_text(encoding="utf-8").splitlines()
    current = public_api().splitlines()
    gone = [line.strip() for line in written if line not in set(current)]
    new = [line.strip() for line in current if line not in set(written)]
    assert written == current, (
        f"docs/public-api.txt differs from the code. Only in the file: {gone}. Only in the code: {new}. If the change "
        "of the API is meant, write the file anew with `make stubs` and name a breaking change in CHANGELOG.md."
    )


def test_the_list_has_every_public_class_function_and_member() -> None:
    text = public_api()
    blocks = {re.split(r"[(\n]", block)[0]: block for block in text.split("\nclass ")[1:]}
    for name, kind in public_classes().items():
        block = next(blocks[full] for package in PACKAGES if (full := f"{package}.{name}") in blocks)
        inherited = {member for base in kind.__mro__[1:] for member in members_of(base.__name__, base)}
        missing = [one for one in members_of(name, kind) if f" {one}" not in block and one not in inherited]
        assert missing == [], f"{name}: {missing}"
    assert all(f".{name}(" in text for name in public_functions())
    assert all(f"\n# {package}\n" in text for package in (*PACKAGES, "fencepost.testing"))


def test_a_line_has_the_whole_signature() -> None:
    lines = {line.strip() for line in public_api().splitlines()}
    assert "async def list_topics(self, *, internal: bool=False) -> list[str]" in lines
    assert "def list_topics(self, *, internal: bool=...) -> list[str]" in lines, "of fencepost.sync"
    assert "property done: bool" in lines
    assert "topic_id: bytes" in lines
    assert "TOPIC_ALREADY_EXISTS = 36" in lines
    assert "max_poll_interval: Duration" in lines, "of a base that is not public"


@pytest.mark.long
def test_a_program_can_import_every_type_of_a_signature() -> None:
    assert private_types() == set(), "export it from fencepost.client or fencepost.testing, or write the type out"
