"""Documents that do not lie: links that resolve, commands that exist, nothing of one machine in what others read."""

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.docs_site.navigation import decisions, navigation, pages_in, title_of
from deploy.docs_site.reference import DOCS, GENERATED, PART, written
from fencepost.extras import EXTRA_OF
from tests.architecture.project_files import MARKDOWN_FILES, PROJECT_FILES, PYTHON_FILES, ROOT, name_of

LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^(?:\|.*\n?)+", re.MULTILINE)
TABLE_RULE = re.compile(r"(?:\|\s*:?-+:?\s*)+\|")
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DECISION = re.compile(r"docs/decisions/[\w.-]+\.md")
# Spelled in pieces, so that this file does not find itself.
OF_ONE_MACHINE = re.compile(
    "|".join(
        [
            "/" + r"work/",
            r"\.\./" + "shared",
            "/" + r"root/(?!\.)",
            "/" + "opt/wheels",
            "(?:files\\.python" + "hosted|pypi\\.python)\\.org",
            "py" + r"pi\.org/simple",
            "repo1?\\.maven\\." + "(?:apache\\.)?org",
            "--(?:extra-)?index" + "-url[ =]https?:",
            "is" + r"sue 3\b",
            "tool" + " library",
        ]
    )
)


def anchors_of(document: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", MARKDOWN_FILES, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    for link, picture in LINK.findall(text):
        target, _, anchor = (link or picture).partition("#")
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file = (document.parent / target) if target else document
        assert file.exists(), f"{name_of(document)} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors_of(file), f"{name_of(document)} links to {target}#{anchor}"


@pytest.mark.parametrize("document", MARKDOWN_FILES, ids=name_of)
def test_every_row_of_a_table_has_the_head_of_one(document: Path) -> None:
    """A blank line ends a table: the rows behind it are shown as they are written."""
    text = FENCE.sub("", document.read_text(encoding="utf-8"))
    for table in TABLE.findall(text):
        rows = table.splitlines()
        assert len(rows) > 1, f"{name_of(document)}: a row without a table: {rows[0]}"
        assert TABLE_RULE.fullmatch(rows[1].strip()), f"{name_of(document)}: no |---| below {rows[0]}"


@pytest.mark.parametrize("document", MARKDOWN_FILES, ids=name_of)
def test_python_in_documents_is_python(document: Path) -> None:
    for number, block in enumerate(PYTHON_BLOCK.findall(document.read_text(encoding="utf-8")), 1):
        compile(block, f"{name_of(document)}, block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("document", MARKDOWN_FILES, ids=name_of)
def test_python_in_documents_imports_nothing_that_a_wheel_lacks(document: Path) -> None:
    only_in_a_clone = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"fencepost", "pyspark_fencepost"}
    assert {"examples", "tests"} <= only_in_a_clone
    for block in PYTHON_BLOCK.findall(document.read_text(encoding="utf-8")):
        imports = re.findall(r"^\s*(?:from|import) (\w+)", block, re.MULTILINE)
        assert only_in_a_clone.isdisjoint(imports), f"{name_of(document)}: a reader who installed fencepost has no such"


def test_decisions_named_in_the_code_are_written_down() -> None:
    named = {
        (found, name_of(path))
        for path in PROJECT_FILES
        if path.suffix in {".py", ".md", ".toml", ".yml"}
        for found in DECISION.findall(path.read_text(encoding="utf-8"))
    }
    assert named
    missing = sorted(f"{by} names {found}" for found, by in named if not (ROOT / found).is_file())
    assert not missing


def test_tests_named_in_documents_exist() -> None:
    """As `tests/unit/test_x.py::test_name`."""
    named = {
        found.groups()
        for document in MARKDOWN_FILES
        for found in re.finditer(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text(encoding="utf-8"))
    }
    assert named
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not (ROOT / path).is_file()
        or not re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in MARKDOWN_FILES:
        for name in re.findall(r"`make ([a-z-]+)", document.read_text(encoding="utf-8")):
            assert name in targets, f"{name_of(document)} names `make {name}`"


def test_the_readme_names_the_command_that_runs_the_tests() -> None:
    assert "`make test`" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^exec make test$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)


def test_help_shows_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in re.findall(r"^([a-z-]+):", makefile, re.MULTILINE):
        assert f"make {target} " in shown


def test_nothing_of_one_machine_is_in_the_project() -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in PROJECT_FILES
        if b"\0" not in (content := path.read_bytes())[:4096]
        for number, line in enumerate(content.decode("utf-8").splitlines(), 1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert not found


def test_each_extra_that_is_named_exists_and_has_a_row_in_the_guide() -> None:
    """In texts of people and of the program, as it is given to pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    for path in PYTHON_FILES + MARKDOWN_FILES:
        for names in re.findall(r"fencepost\[([a-z,-]+)\]", path.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= extras, f"{name_of(path)}: fencepost[{names}]"
    assert set(EXTRA_OF.values()) <= extras
    table = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for row in table for name in re.findall(r"`([a-z-]+)`", row)} == extras - {"demo", "dev", "docs"}


def test_every_pin_has_a_hash_and_none_has_an_address() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    assert len(pins) > 20
    for pin in pins:
        assert re.match(r"[\w.\-\[\]]+==[\w.+!]+ ", pin), pin[:80]
        assert "--hash=sha256:" in pin, pin[:80]
        assert "://" not in pin, pin[:80]


def test_the_ways_through_the_architecture_name_files_that_exist() -> None:
    """A way that names a file which has moved would send a newcomer nowhere."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = "broker|client|coordinator|protocol|spark_connector|spark_pipelines|sync|testing|tests"
    named = set(re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", text))
    assert len(named) > 20
    assert (
        sorted(name for name in named if not (ROOT / "fencepost" / name).exists() and not (ROOT / name).exists()) == []
    )


def test_every_page_of_docs_has_its_place_in_the_navigation_of_the_site() -> None:
    docs = ROOT / "docs"
    named = pages_in(navigation(docs))
    missing = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - set(named)
    assert missing == set(), "GUIDES in deploy/docs_site/navigation.py says where a page stands"
    assert len(set(named)) == len(named)


def test_a_decision_has_the_number_of_its_file_and_no_other_has_it() -> None:
    numbers = [path.name[:4] for path in decisions(ROOT / "docs")]
    assert numbers == sorted(set(numbers))
    wrong = [path.name for path in decisions(ROOT / "docs") if not title_of(path).startswith(path.name[:4])]
    assert wrong == []


def test_the_reference_is_what_the_code_gives() -> None:
    """`make stubs` writes it anew."""
    pages = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md")}
    assert sorted(part[1] for text in pages.values() for part in PART.findall(text)) == sorted(GENERATED)
    assert [name for name, text in pages.items() if written(text) != text] == []
