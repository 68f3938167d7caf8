"""Writes the pages and the configuration of the site into a temporary folder, and runs zensical there."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from deploy.docs_site.navigation import navigation
from deploy.docs_site.pages import ROOT, Pages

STYLE = Path(__file__).with_name("style.css")
COLOUR = re.compile(r"\x1b\[[\d;]*m")


class BuildError(Exception):
    """A page, a drawing or a link is wrong; the text names it."""


def build(folder: Path, root: Path = ROOT) -> int:
    """Build the site of the project at `root` into `folder`; returns the number of pages.

    Raises BuildError for a link, an anchor or a drawing that is wrong; what `folder` held is still there then.
    """
    with tempfile.TemporaryDirectory(prefix="fencepost-site-") as temporary:
        work = Path(temporary)
        try:
            count = Pages(root).write(work / "docs")
        except ValueError as error:
            raise BuildError(str(error)) from error
        shutil.copy(STYLE, work / "docs" / STYLE.name)
        # zensical reads mkdocs.yml, and every JSON document is YAML.
        (work / "mkdocs.yml").write_text(json.dumps(configuration(root)), encoding="utf-8")
        words = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
        run = subprocess.run(words, cwd=work, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise BuildError(COLOUR.sub("", f"zensical says:\n{run.stdout}{run.stderr}".partition("Traceback")[0]))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(work / "site", folder)
    return count


def configuration(root: Path) -> dict[str, Any]:
    """The configuration of zensical. It lets no page load a font or a script from another host."""
    return {
        "site_name": "fencepost",
        "site_description": "A broker that speaks Kafka's protocol, with true transactions and no JVM",
        "use_directory_urls": False,
        "nav": navigation(root / "docs"),
        "plugins": ["search"],
        "extra_css": [STYLE.name],
        "theme": {
            "font": False,
            "features": [
                "content.code.copy",
                "navigation.footer",
                "navigation.sections",
                "navigation.tabs",
                "navigation.top",
                "search.highlight",
            ],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default"},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
            ],
        },
        "markdown_extensions": [
            "tables",
            "sane_lists",
            "pymdownx.highlight",
            "pymdownx.superfences",
            {"toc": {"permalink": True, "slugify": {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}}},
        ],
        "validation": {"invalid_links": True, "invalid_link_anchors": True},
    }
