"""The pages of the site: documents with their links led to other pages, and their drawings drawn.

A document of the repository becomes a page with the same text. A link to another file of the project, a test say, leads
to a page that shows that file. A block of Mermaid becomes an SVG, because a browser would fetch Mermaid from another
host.
"""

import os.path
import re
from pathlib import Path, PurePosixPath

import mmdr

from deploy.docs_site.navigation import decisions, title_of

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = "docs/decisions"
MOVED = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", DECISIONS: "decisions/index.md"}
PICTURE = ".png"
FENCE = re.compile(r"(^```.*?^```\n?)", re.MULTILINE | re.DOTALL)
DRAWING = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
LANGUAGES = {".py": "python", ".java": "java", ".toml": "toml", ".yml": "yaml", ".sh": "sh"}


class Pages:
    """Collects what the site consists of."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._texts: dict[str, str] = {}
        self._linked: set[str] = set()
        self._pictures: set[str] = set()

    def write(self, folder: Path) -> int:
        """Write all pages and drawings below `folder`; the number of pages. Raises ValueError for one that is wrong."""
        documents = [
            *sorted((self._root / "docs").rglob("*.md")),
            *(self._root / name for name in MOVED if name != DECISIONS),
        ]
        for path in documents:
            self._add(path.relative_to(self._root).as_posix())
        self._texts[page_of(DECISIONS)] = index_of_decisions(self._root / "docs")
        for name in sorted(self._linked):
            self._texts[page_of(name)] = shown_file(self._root / name, name)
        for name, text in self._texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for name in sorted(self._pictures):
            copy = folder / name.removeprefix("docs/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((self._root / name).read_bytes())
        return sum(name.endswith(".md") for name in self._texts)

    def _add(self, name: str) -> None:
        page = page_of(name)
        parts = FENCE.split((self._root / name).read_text(encoding="utf-8"))
        for number, part in enumerate(parts):
            if drawing := DRAWING.match(part):
                parts[number] = self._drawn(drawing[1], page, number)
            elif number % 2 == 0:
                parts[number] = LINK.sub(lambda link: self._led(link[1], name, page), part)
        self._texts[page] = "".join(parts)

    def _led(self, target: str, name: str, page: str) -> str:
        if re.match(r"[a-z]+:", target):
            return target
        file = os.path.normpath((PurePosixPath(name).parent / target).as_posix())
        if file != DECISIONS and not (self._root / file).is_file():
            raise ValueError(f"{name} links to {target}, which is no file of the project")
        if file.endswith(PICTURE):
            self._pictures.add(file)
            return os.path.relpath(file, (PurePosixPath("docs") / page).parent.as_posix())
        if not is_document(file):
            self._linked.add(file)
        return os.path.relpath(page_of(file), PurePosixPath(page).parent.as_posix())

    def _drawn(self, source: str, page: str, number: int) -> str:
        drawing = PurePosixPath(page).with_suffix("").as_posix().replace("/", "-") + f"-{number}.svg"
        try:
            self._texts[f"drawings/{drawing}"] = mmdr.render(source).svg()
        except ValueError as error:
            raise ValueError(f"{page} has a drawing that Mermaid does not understand: {error}\n{source}") from None
        at = os.path.relpath(f"drawings/{drawing}", PurePosixPath(page).parent.as_posix())
        return f"[![{source.split(maxsplit=1)[0]}]({at})]({at})\n"


def is_document(name: str) -> bool:
    """Whether a file of the project is a page of its own."""
    return name in MOVED or (name.startswith("docs/") and name.endswith(".md"))


def page_of(name: str) -> str:
    """Where a file of the project stands on the site."""
    return MOVED.get(name) or (name.removeprefix("docs/") if is_document(name) else f"files/{name}.md")


def index_of_decisions(docs: Path) -> str:
    """The page that lists the decision records."""
    rows = [f"- [{title_of(path)}]({path.name})" for path in decisions(docs)]
    return "# Decisions\n\nWhat was decided, why, and what was not done instead.\n\n" + "\n".join(rows) + "\n"


def shown_file(path: Path, name: str) -> str:
    """A page that shows a file of the project; search does not look into it."""
    fence = f"````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}````\n"
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{fence}"
