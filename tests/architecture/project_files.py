"""What the project consists of: the files under version control, or all files where there is no repository."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_DIRECTORIES = {
    ".git",
    ".venv",
    "__pycache__",
    "build",
    "dist",
    "site",
    ".demo",
    ".demo-cluster",
    "out",
    ".compat",
}


def _tracked() -> list[Path]:
    if (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return [ROOT / name for name in listing.stdout.split("\0") if name]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not SKIPPED_DIRECTORIES.intersection(path.relative_to(ROOT).parts)
        and not any(part.endswith((".egg-info", "_cache")) for part in path.relative_to(ROOT).parts)
    ]


PROJECT_FILES = sorted(path for path in _tracked() if path.is_file() and not path.is_symlink())
PYTHON_FILES = [path for path in PROJECT_FILES if path.suffix == ".py"]
MARKDOWN_FILES = [path for path in PROJECT_FILES if path.suffix == ".md"]


def name_of(path: Path) -> str:
    """The path as a reader of a test report knows it."""
    return str(path.relative_to(ROOT))


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below a node. Expressions hold none, and are nine tenths of a tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child)
