"""One word for one thing: names, messages, docstrings and guides use no word that the glossary has replaced."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.project_files import MARKDOWN_FILES, PYTHON_FILES, ROOT, name_of
from tests.architecture.source_facts import facts, is_product, texts_in

GLOSSARY = ROOT / "docs" / "glossary.md"
PRODUCT_FILES = [path for path in PYTHON_FILES if is_product(path)]
GUIDES = [path for path in MARKDOWN_FILES if not name_of(path).startswith(("docs/decisions/", "docs/benchmarks.md"))]
"""What people read to use the project. Decisions and measurements are records of their day."""
MANUAL = [path for path in GUIDES if name_of(path).startswith(("README", "CHANGELOG", "docs/"))]
"""The pages whose words are checked, the glossary's own list aside."""
GLOSSARY_LIST = "## Words that the project does not use"
SENTENCE_WORDS_MAX = 30
NOT_PROSE = re.compile(r"^```.*?^```|<!--.*?-->|^(?: {4}|\||#).*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|<!--.*?-->|`[^`]*`", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"[^\W\d]\w*")
NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@cache
def replaced(kind: str) -> frozenset[str]:
    """The words that the glossary bans from identifiers, from messages, or from docstrings and guides."""
    section = GLOSSARY.read_text(encoding="utf-8").split(GLOSSARY_LIST)[-1]
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


def is_banned(name: str, banned: frozenset[str]) -> bool:
    return not banned.isdisjoint(part.lower() for part in NAME_PARTS.findall(name))


def banned_names(source: str, banned: frozenset[str], known: dict[str, bool]) -> list[str]:
    """The banned names of a program, by line. It is parsed only if it has such a word anywhere, in a comment perhaps.

    `known` remembers which words are banned: all programs together have few different ones.
    """
    words = set(NAME.findall(source))
    known.update((word, is_banned(word, banned)) for word in words.difference(known))
    if not any(known[word] for word in words):
        return []
    return [f"{line}: {name}" for line, name in names_in(ast.parse(source)) if is_banned(name, banned)]


def any_of(banned: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(map(re.escape, sorted(banned)))})\b", re.IGNORECASE)


def banned_texts(texts: Iterable[tuple[int, str]], banned: frozenset[str]) -> list[str]:
    pattern = any_of(banned)
    return [f"{line}: {text[:80]!r}" for line, text in texts if pattern.search(text)]


def explanations_in(source: str) -> Iterator[tuple[int, str]]:
    """Every docstring, of a value too, and every block of comments in consecutive lines, as one line of text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    block, first, last = "", 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, block
                block, first = "", token.start[0]
            block, last = f"{block} {token.string.lstrip('#: ')}", token.start[0]
    yield first, block


def banned_explanations(source: str, banned: frozenset[str]) -> list[str]:
    pattern = any_of(banned)
    if not pattern.search(" ".join(source.replace("#", " ").split())):
        return []
    return [f"{line}: {found[0]}" for line, text in explanations_in(source) if (found := pattern.search(text))]


def banned_prose(text: str, banned: frozenset[str]) -> list[str]:
    """What a page says outside of code, in tables and headings, too."""
    return [found[0] for found in any_of(banned).finditer(" ".join(CODE.sub("", text).split()))]


def test_no_identifier_uses_a_word_that_the_glossary_replaced() -> None:
    banned, known = replaced("identifiers"), dict[str, bool]()
    sources = {name_of(path): path.read_text(encoding="utf-8") for path in PRODUCT_FILES}
    assert [f"{name}:{one}" for name, source in sources.items() for one in banned_names(source, banned, known)] == []


def test_no_message_uses_a_word_that_the_glossary_replaced() -> None:
    banned = replaced("messages")
    assert [f"{name}:{one}" for name, found in facts().items() for one in banned_texts(found.texts, banned)] == []


def test_no_docstring_or_comment_uses_a_phrase_that_the_glossary_replaced() -> None:
    banned = replaced("docstrings, comments and guides")
    sources = {name_of(path): path.read_text(encoding="utf-8") for path in PRODUCT_FILES}
    found = [f"{name}:{one}" for name, source in sources.items() for one in banned_explanations(source, banned)]
    assert found == []


@pytest.mark.parametrize("document", MANUAL, ids=name_of)
def test_no_guide_uses_a_phrase_that_the_glossary_replaced(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    prose = text.split(GLOSSARY_LIST)[0] if document == GLOSSARY else text
    assert banned_prose(prose, replaced("docstrings, comments and guides")) == []


@pytest.mark.parametrize(
    "source",
    [
        '"""It takes so many."""',
        'LIMIT = 1\n"""So\nmany are taken."""',
        'class A:\n    def f(self):\n        """One.\n\n        Takes so many."""',
        "def f():\n    return 1  # so many",
        "# It takes so\n# many.",
        "#: So many.",
    ],
)
def test_a_banned_phrase_is_found_in_every_docstring_and_comment(source: str) -> None:
    assert [one.split(": ")[1].lower() for one in banned_explanations(source, frozenset({"so many"}))] == ["so many"]


def test_a_message_or_a_name_is_no_explanation() -> None:
    assert banned_explanations('so_many = f("so many")  # a few\n', frozenset({"so many", "so_many"})) == []


def test_a_banned_phrase_is_found_in_a_guide_and_not_in_its_code() -> None:
    text = "# Whoever\n\nIt takes so\nmany.\n\n| for ever | `nobody` |\n\n```\nso many\n```\n"
    banned = frozenset({"whoever", "so many", "for ever", "nobody"})
    assert banned_prose(text, banned) == ["Whoever", "so many", "for ever"]


@pytest.mark.parametrize("name", ["story", "_said_wish", "WishList", "listBeats", "FETCH_STORY"])
def test_a_banned_word_is_found_in_every_spelling_of_a_name(name: str) -> None:
    source = f"class A:\n    def f(self):\n        return self.{name}\n"
    assert banned_names(source, frozenset({"story", "wish", "beats"}), {}) == [f"3: {name}"]


def test_a_banned_word_in_a_text_or_a_comment_is_no_name() -> None:
    assert banned_names('histories = "story"  # wish\n', frozenset({"story", "wish"}), {}) == []


def test_a_docstring_is_no_message_and_a_piece_of_an_f_string_is_one() -> None:
    tree = ast.parse('def f(x):\n    """Nobody."""\n    raise OSError(f"{x}: nobody reads it")\n')
    assert banned_texts(texts_in(tree), frozenset({"nobody"})) == ["3: ': nobody reads it'"]


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
