"""`make docs` as a reader meets it: all pages, nothing of another host, and a wrong link, anchor or drawing ends it."""

import re
import shutil
from pathlib import Path

import pytest

from deploy.docs_site.build import BuildError, build
from deploy.docs_site.navigation import navigation, pages_in
from fencepost.broker.config.broker_config import SETTINGS
from fencepost.broker.security.rights import RIGHTS
from fencepost.cli.main import COMMANDS
from fencepost.client.config import ConsumerConfig
from fencepost.client.config_parsing import meanings_of
from fencepost.client.keywords import ClientOptions, ConsumerOptions, TransactionalProducerOptions
from fencepost.protocol.registry import API_BY_NAME
from tests.architecture.project_files import ROOT

OF_ANOTHER_HOST = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    assert build(folder) > 80
    return folder


def page(site: Path, name: str) -> str:
    return (site / name).with_suffix(".html").read_text(encoding="utf-8")


def test_every_page_of_the_navigation_is_built(site: Path) -> None:
    named = pages_in(navigation(ROOT / "docs"))
    assert [name for name in named if not (site / name).with_suffix(".html").is_file()] == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert [found for path in pages for found in OF_ANOTHER_HOST.findall(path.read_text(encoding="utf-8"))] == []
    assert not any('class="mermaid"' in path.read_text(encoding="utf-8") for path in pages)


def test_the_reference_has_what_the_code_has(site: Path) -> None:
    commands, settings, apis = (page(site, f"reference/{name}") for name in ("commands", "settings", "apis"))
    assert [name for name in COMMANDS if f"<code>fencepost {name}</code>" not in commands] == []
    assert "Usage: fencepost topic create [OPTIONS] TOPIC..." in commands
    assert [name for name in SETTINGS if f"<code>{name}</code>" not in settings] == []
    assert [name for name in API_BY_NAME if f"<td>{name}</td>" not in apis] == []
    rights = page(site, "reference/rights")
    assert [key.api_name for key in RIGHTS if f"<td>{key.api_name}</td>" not in rights] == []
    assert "the entry is refused: TOPIC_AUTHORIZATION_FAILED" in rights
    options = page(site, "reference/client-options")
    for kind in (ClientOptions, TransactionalProducerOptions, ConsumerOptions):
        assert [name for name in kind.__annotations__ if f"<code>{name}</code>" not in options] == []
    assert meanings_of(ConsumerConfig)["max_poll_interval"] in options


def test_every_drawing_is_drawn(site: Path) -> None:
    blocks = sum(path.read_text(encoding="utf-8").count("```mermaid") for path in (ROOT / "docs").rglob("*.md"))
    assert len(list((site / "drawings").glob("*.svg"))) == blocks > 0


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("[x](nowhere.md)", r"docs/groups.md links to nowhere.md, which is no file of the project"),
        ("[x](metadata.md#nowhere)", r"anchor does not exist"),
        ("```mermaid\nsequenceDiagram\n    A->>B: one; two\n```", r"groups.md has a drawing that Mermaid does not"),
    ],
)
def test_what_is_wrong_ends_it_and_leaves_the_site_alone(tmp_path: Path, added: str, message: str) -> None:
    root, site = tmp_path / "project", tmp_path / "site"
    copy_of_the_project(root)
    with (root / "docs/groups.md").open("a", encoding="utf-8") as document:
        document.write(f"\n{added}\n")
    site.mkdir()
    with pytest.raises(BuildError, match=message):
        build(site, root)
    assert list(site.iterdir()) == []


def copy_of_the_project(root: Path) -> None:
    """The project with documents of its own; all else is that of the real one."""
    root.mkdir()
    for entry in ROOT.iterdir():
        if entry.name != "docs":
            (root / entry.name).symlink_to(entry)
    shutil.copytree(ROOT / "docs", root / "docs")
