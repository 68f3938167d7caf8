"""The optional compiled part, and what it means for a wheel; all else about the package stands in pyproject.toml.

Where there is no C compiler, or it fails, the build warns and goes on without it: all is then done in Python.
"""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel


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
    ext_modules=[
        Extension(
            "fencepost.protocol._hot",
            sources=[f"fencepost/protocol/{name}.c" for name in ("_hot", "_hot_columns", "_hot_check")],
            depends=["fencepost/protocol/_hot.h"],
            py_limited_api=True,
            optional=True,
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-std=c11"],
        )
    ],
    cmdclass={"bdist_wheel": BuildWheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
