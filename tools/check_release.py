"""Refuses a release that does not fit: `python tools/check_release.py v0.1.0 OWNER/NAME`. Nothing but Python is needed.

The tag must be the version, the changelog must begin with it, and the package's links must lead to this repository.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def problems(root: Path, tag: str, repository: str) -> Iterator[str]:
    """What is wrong with a release of `root` under that tag, from the repository OWNER/NAME."""
    version = re.findall(r'^__version__ = "(.+)"$', (root / "fencepost/version.py").read_text(), re.MULTILINE)[0]
    if tag != f"v{version}":
        yield f"the tag {tag} is not v{version}, the version in fencepost/version.py"
    newest = re.findall(r"^## (\S+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    if newest != version:
        yield f"CHANGELOG.md begins with {newest}, not with {version}"
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, url in project["urls"].items():
        if not f"{url}/".startswith(f"https://github.com/{repository}/"):
            yield f"{name} in pyproject.toml is {url}, and this repository is {repository}"


if __name__ == "__main__":
    sys.exit("\n".join(problems(HERE, *sys.argv[1:3])) or None)
