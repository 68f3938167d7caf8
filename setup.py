"""The optional compiled part; all else about the package stands in pyproject.toml.

Where there is no C compiler, or it fails, the build warns and goes on without it: all is then done in Python.
"""

import sys

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "fencepost.protocol._hot",
            sources=["fencepost/protocol/_hot.c", "fencepost/protocol/_hot_columns.c"],
            depends=["fencepost/protocol/_hot.h"],
            py_limited_api=True,
            optional=True,
            extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-std=c11"],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
