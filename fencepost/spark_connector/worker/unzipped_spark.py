"""Lets Spark's Python processes import Spark from its folder, and not from the zip beside it.

Spark puts `pyspark.zip` first on the path of each Python process that it starts. Python keeps no bytecode for modules
in a zip, so each process compiles Spark anew, which takes 0.7 s. It also reads the directory of each archive on the
path, more than once. An installed Spark has the same modules as a folder. `_fencepost_spark.pth` imports this module at
the start of such processes, and only of those.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_OFF = "FENCEPOST_SPARK_ZIP"
"""With any value in this variable, everything stays in the archives."""
_SPARK_ZIP = os.path.join("python", "lib", "pyspark.zip")
_PY4J_ZIP = re.compile(r"(py4j-[\d.]+)-src\.zip")
_CORE_JAR = re.compile(r"spark-core_.*\.jar")
"""Spark puts this jar on the path, too. No Python is in it."""


class FolderFinder:
    """A finder for sys.meta_path that knows some packages, and the folder that holds each."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package, if it is one of these; their modules are found through the package, as always."""
        folder = self._folders.get(name)
        return None if folder is None else PathFinder.find_spec(name, [folder], target)


def replaced(path: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Which packages to import from which folder, and the path without the archives that then have no more use.

    Only folders of the same installation count: those around the zip, and a py4j of the zip's version. If Spark has no
    such folder, nothing is replaced.
    """
    spark_zip = next((entry for entry in path if entry.endswith(os.sep + _SPARK_ZIP) and os.path.isfile(entry)), None)
    spark = None if spark_zip is None else _folder_of_spark(spark_zip.removesuffix(os.sep + _SPARK_ZIP))
    if spark is None:
        return {}, list(path)
    folders, kept = {"pyspark": spark}, []
    for entry in path:
        name = os.path.basename(entry)
        if entry == spark_zip or _CORE_JAR.fullmatch(name):
            continue
        py4j = _PY4J_ZIP.fullmatch(name)
        home = py4j and next((one for one in (spark, *path) if _has_py4j(one, py4j[1])), None)
        if home:
            folders["py4j"] = home
        else:
            kept.append(entry)
    return folders, kept


def _folder_of_spark(home: str) -> str | None:
    """The folder with the package: that of an installed `pyspark`, which is SPARK_HOME, or that of Spark's archive."""
    python = os.path.join(home, "python")
    if os.path.basename(home) == "pyspark" and os.path.isfile(os.path.join(home, "daemon.py")):
        return os.path.dirname(home)
    return python if os.path.isfile(os.path.join(python, "pyspark", "daemon.py")) else None


def _has_py4j(folder: str, version: str) -> bool:
    return os.path.isdir(os.path.join(folder, f"{version}.dist-info"))


def prefer_folders() -> None:
    """Change where this process finds Spark. Later processes read PYTHONPATH, which stays as it is."""
    if os.environ.get(_OFF):
        return
    folders, kept = replaced(sys.path)
    if folders:
        for entry in set(sys.path).difference(kept):
            sys.path_importer_cache.pop(entry, None)  # importlib.invalidate_caches() would read the archive again
        sys.path[:] = kept
        sys.meta_path.insert(0, FolderFinder(folders))
