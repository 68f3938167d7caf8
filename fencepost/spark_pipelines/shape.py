"""The transformation of records between source and sink: a filter, expressions, SQL, or a function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.spark_pipelines.errors import PipelineError

VIEW = "source"
"""The name of the records' table in SQL."""


@dataclass(frozen=True)
class Shape:
    """The transformation of a pipeline: first `where`, then at most one of `select`, `sql` and `function`.

    `select` holds expressions, separated by commas. `sql` is a query on the table `source`, without `where`. `function`
    takes a DataFrame and returns one. Raises PipelineError if the parts do not fit together.
    """

    where: str | None = None
    select: str | None = None
    sql: str | None = None
    function: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("select", "sql", "function") if getattr(self, name) is not None]
        if len(given) > 1:
            raise PipelineError(f"set only one of select, sql and function, not {' and '.join(given)}")
        if self.sql is not None and self.where is not None:
            raise PipelineError("where cannot be combined with sql: write the condition in the SQL")

    @property
    def filters(self) -> bool:
        """Whether the shape may leave out records."""
        return self.where is not None or self.sql is not None or self.function is not None

    @property
    def changes_columns(self) -> bool:
        """Whether the shape is more than a filter."""
        return self.select is not None or self.sql is not None or self.function is not None

    def applied(self, frame: Any) -> Any:
        """The transformed DataFrame. Raises PipelineError if Spark rejects a part of the shape."""
        from pyspark.errors import PySparkException

        try:
            if self.where is not None:
                frame = frame.where(self.where)
            if self.select is not None:
                return frame.selectExpr(*expressions(self.select))
            if self.sql is not None:
                frame.createOrReplaceTempView(VIEW)
                return frame.sparkSession.sql(self.sql)
        except PySparkException as error:
            columns = ", ".join(frame.columns)
            first = str(error).partition("\n")[0]
            raise PipelineError(f"Spark rejects the shape: {first}\n  The columns are: {columns}") from None
        if self.function is not None:
            shaped = self.function(frame)
            if not hasattr(shaped, "columns"):
                raise PipelineError(f"the function returned {type(shaped).__name__}, but it must return a DataFrame")
            return shaped
        return frame


def expressions(text: str) -> list[str]:
    """Split at commas outside of parentheses and quotes: `key, concat(a, b) AS value` gives two expressions."""
    parts, depth, quote, began = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in "'\"`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[began:at])
            began = at + 1
    parts.append(text[began:])
    found = [part.strip() for part in parts if part.strip()]
    if not found:
        raise PipelineError("select names no column")
    return found


def function_of(text: str) -> Callable[[Any], Any]:
    """The function named by `module:name` or `path/to/file.py:name`. Raises PipelineError."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise PipelineError(f"{text!r} is not the name of a function: write it as MODULE:FUNCTION or FILE.py:FUNCTION")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise PipelineError(f"there is no file {path}")
        folder, module_name = str(path.parent), path.stem
    else:
        folder, module_name = str(Path.cwd()), place
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise PipelineError(f"{place} cannot be imported: {error}; {folder} is searched, too") from error
    function = getattr(module, name, None)
    if not callable(function):
        known = ", ".join(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        raise PipelineError(f"{place} has no function {name}; its functions are: {known or 'none'}")
    return function  # type: ignore[no-any-return]
