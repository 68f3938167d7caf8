"""One word for one thing: names and messages of the product use no word that the glossary has replaced."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.project_files import MARKDOWN_FILES, PYTHON_FILES, ROOT, name_of

GLOSSARY = ROOT / "docs" / "glossary.md"
PRODUCT_FILES = [path for path in PYTHON_FILES if name_of(path).startswith(("fencepost/", "pyspark_fencepost/"))]
GUIDES = [path for path in MARKDOWN_FILES if not name_of(path).startswith(("docs/decisions/", "docs/benchmarks.md"))]
"""What people read to use the project. Decisions and measurements are records of their day."""
SENTENCE_WORDS_MAX = 30
NOT_PROSE = re.compile(r"^```.*?^```|<!--.*?-->|^(?: {4}|\||#).*?$", re.MULTILINE | re.DOTALL)
NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@cache
def replaced(kind: str) -> frozenset[str]:
    """The words that the glossary bans from identifiers, or from messages."""
    section = GLOSSARY.read_text(encoding="utf-8").split("## Words that the project does not use")[-1]
    found = re.search(rf"In {kind} of the product[^:]*: (.*?)\.\n", section, re.DOTALL)
    assert found is not None, f"the glossary lists no words for {kind}"
    return frozenset(re.findall(r"`([^`]+)`", found[1]))


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.Name():
                yield node.lineno, node.id
            case ast.Attribute():
                yield node.lineno, node.attr
            case ast.arg():
                yield node.lineno, node.arg
            case ast.keyword(arg=str(name)):
                yield node.lineno, name


def texts_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string but the docstrings: what a log, an error or a help text may say."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.lineno, node.value


def banned_names(tree: ast.AST, banned: frozenset[str]) -> list[str]:
    return [
        f"{line}: {name}"
        for line, name in names_in(tree)
        if banned.intersection(part.lower() for part in NAME_PARTS.findall(name))
    ]


def banned_texts(tree: ast.AST, banned: frozenset[str]) -> list[str]:
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(banned)))})\b", re.IGNORECASE)
    return [f"{line}: {text[:80]!r}" for line, text in texts_in(tree) if pattern.search(text)]


@cache
def found_in_product() -> tuple[list[str], list[str]]:
    """The banned names and texts of all files. No tree is kept: `test_house_rules.facts` says why."""
    names: list[str] = []
    texts: list[str] = []
    for path in PRODUCT_FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names += [f"{name_of(path)}:{one}" for one in banned_names(tree, replaced("identifiers"))]
        texts += [f"{name_of(path)}:{one}" for one in banned_texts(tree, replaced("messages"))]
    return names, texts


def test_no_identifier_uses_a_word_that_the_glossary_replaced() -> None:
    names, _ = found_in_product()
    assert sorted(set(names)) == []


def test_no_message_uses_a_word_that_the_glossary_replaced() -> None:
    _, texts = found_in_product()
    assert texts == []


@pytest.mark.parametrize("name", ["story", "_said_wish", "WishList", "listBeats", "FETCH_STORY"])
def test_a_banned_word_is_found_in_every_spelling_of_a_name(name: str) -> None:
    tree = ast.parse(f"class A:\n    def f(self):\n        return self.{name}\n")
    assert banned_names(tree, frozenset({"story", "wish", "beats"})) == [f"3: {name}"]


def test_a_docstring_is_no_message_and_a_piece_of_an_f_string_is_one() -> None:
    tree = ast.parse('def f(x):\n    """Nobody."""\n    raise OSError(f"{x}: nobody reads it")\n')
    assert banned_texts(tree, frozenset({"nobody"})) == ["3: ': nobody reads it'"]


def sentences_of(text: str) -> list[str]:
    """The sentences of a document's prose and lists; a list of code spans is one word, a link's address is none."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`(,\s+`[^`]*`)*", "code", NOT_PROSE.sub("", text)))
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.) )", text)
    return [one for paragraph in paragraphs for one in re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))]


@pytest.mark.parametrize("document", GUIDES, ids=name_of)
def test_no_sentence_of_a_guide_is_longer_than_thirty_words(document: Path) -> None:
    long = [s for s in sentences_of(document.read_text(encoding="utf-8")) if len(s.split()) > SENTENCE_WORDS_MAX]
    assert long == []


def test_a_long_sentence_is_found_and_code_is_not_prose() -> None:
    long = "word " * 31 + "ends."
    items = "- two words and more words in it\n" * 9
    text = f"# {long}\n\n{long} Short.\n\n| {long} |\n\n```\n{long}\n```\n\n    {long}\n\n{items}"
    assert [one for one in sentences_of(text) if len(one.split()) > SENTENCE_WORDS_MAX] == [long]
