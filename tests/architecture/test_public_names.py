"""Every public name of the client is explained: in its docstring, and at least once in docs/client.md."""

import inspect
import re

import pytest

from fencepost import testing
from tests.architecture.public_names import (
    BEGIN,
    BETWEEN_PARTS,
    END,
    GUIDE,
    members_of,
    public_classes,
    public_functions,
    table,
)

CLASSES = public_classes()
MEMBERS = [(name, member) for name, kind in CLASSES.items() for member in members_of(name, kind)]


def test_there_is_something_to_check() -> None:
    assert {"Client", "Consumer", "Admin", "ItemsFailedError", "sync.Client"} <= set(CLASSES)
    assert ("Consumer", "batches") in MEMBERS
    assert ("sync.Consumer", "batches") in MEMBERS
    assert ("RecordMetadata", "timestamp") in MEMBERS, "a property of a tuple"


@pytest.mark.parametrize("name", [*CLASSES, *public_functions()])
def test_a_public_class_or_function_says_what_it_is(name: str) -> None:
    found = CLASSES.get(name) or public_functions()[name]
    told = inspect.getdoc(found) or ""
    assert re.search(r"\w.*[.:]", told), f"{name} has no docstring that says something: {told!r}"
    assert not told.startswith(f"{name}("), f"{name} has only what Python wrote"


@pytest.mark.parametrize(("name", "member"), MEMBERS, ids=".".join)
def test_a_public_method_or_property_says_what_it_does(name: str, member: str) -> None:
    found = inspect.getattr_static(CLASSES[name], member)
    told = inspect.getdoc(getattr(CLASSES[name], member) if isinstance(found, classmethod | staticmethod) else found)
    assert told is not None, f"{name}.{member} has no docstring"
    assert re.search(r"\w{2,}.*[.:?]", told), f"{name}.{member}: {told!r} says nothing"


def test_a_public_exception_ends_in_error() -> None:
    exceptions = [kind for kind in CLASSES.values() if issubclass(kind, Exception)]
    assert len(exceptions) > 10
    assert [kind.__name__ for kind in exceptions if not kind.__name__.endswith("Error")] == []


def test_the_guide_names_every_public_method() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    missing = [f"{name}.{member}" for name, member in MEMBERS if not re.search(rf"\b{re.escape(member)}\b", text)]
    missing += [name for name in CLASSES if not re.search(rf"\b{re.escape(name)}\b", text)]
    missing += [name for name in public_functions() if f"`{name}`" not in text]
    assert missing == [], "python -m tests.architecture.public_names writes the table at the end anew"


def test_the_table_names_nothing_that_is_gone() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    written = text.partition(BEGIN)[2].partition(END)[0]
    assert set(re.findall(r"`[\w.]+`", written)) <= set(re.findall(r"`[\w.]+`", table())), (
        "python -m tests.architecture.public_names writes it anew"
    )


def test_what_is_left_out_is_there() -> None:
    sources = {name: inspect.getsource(getattr(testing, name, CLASSES.get(name))) for name in BETWEEN_PARTS}
    gone = [
        f"{name}.{member}"
        for name, some in BETWEEN_PARTS.items()
        for member in some
        if f"def {member}(" not in sources[name] and f"self.{member}" not in sources[name]
    ]
    assert gone == []
