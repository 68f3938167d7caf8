"""The compiled part and what it means for a wheel, and the page for a package index; all else is in pyproject.toml.

Where there is no C compiler, or it fails, the build warns and goes on without it: all is then done in Python.
"""

import re
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = Path(__file__).parent
RELATIVE_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")
WITH_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
"""A free-threaded Python has no limited API that one build could use: all is done in Python there."""


def readme() -> str:
    """The README as a package index shows it: its links lead to the files of this version."""
    urls = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    program = (HERE / "fencepost/version.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"', program, re.MULTILINE)[1]

    def absolute(link: re.Match[str]) -> str:
        picture, text, target = link.groups()
        return f"{picture}{text}({urls['Repository']}/{'raw' if picture else 'blob'}/v{version}/{target})"

    return RELATIVE_LINK.sub(absolute, (HERE / "README.md").read_text(encoding="utf-8"))


class BuildWheel(bdist_wheel):
    """A wheel of what this build made: nothing that an earlier build left, and without code in C no platform's tag."""

    def run(self):
        """Clear setuptools' build directories first: it would take all files in them along."""
        for left in (self.get_finalized_command("build").build_lib, self.bdist_dir):
            shutil.rmtree(left, ignore_errors=True)
        self.run_command("build")
        if not any(Path(output).exists() for output in self.get_finalized_command("build_ext").get_outputs()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "fencepost.protocol._hot",
            sources=[f"fencepost/protocol/{name}.c" for name in ("_hot", "_hot_columns", "_hot_check")],
            depends=["fencepost/protocol/_hot.h"],
            py_limited_api=True,
            optional=True,
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-std=c11"],
        )
    ]
    if WITH_GIL
    else [],
    cmdclass={"bdist_wheel": BuildWheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if WITH_GIL else {},
)
