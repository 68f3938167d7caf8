"""The optional compiled part, and what it means for a wheel; all else about the package stands in pyproject.toml.

Where there is no C compiler, or it fails, the build warns and goes on without it: all is then done in Python.
"""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SPARK_START = "_fencepost_spark.pth"
"""Python reads it at each start, from the folder of installed packages; see docs/spark.md. A clone has none there."""


class BuildModules(build_py):
    """The modules, and beside the packages the start of Spark's workers."""

    def run(self):
        """Copy both; an editable installation leaves the modules where they are."""
        super().run()
        if not self.editable_mode:
            self.copy_file(SPARK_START, str(Path(self.build_lib) / SPARK_START))

    def get_outputs(self, include_bytecode=1):
        """What `run` writes."""
        start = [] if self.editable_mode else [str(Path(self.build_lib) / SPARK_START)]
        return super().get_outputs(include_bytecode) + start

    def get_source_files(self):
        """Also for the source distribution."""
        return [*super().get_source_files(), SPARK_START]


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
    cmdclass={"bdist_wheel": BuildWheel, "build_py": BuildModules},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
