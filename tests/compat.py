"""Runs core tests of client and broker with the lowest and the newest versions of their dependencies: `make compat`.

It does so with every Python of this machine that the project names, from the PATH and from pyenv, free-threaded ones
included: `make compat ARGS="3.11 3.14t"` names some of them. The environments are kept in `.compat/`. Versions are
those that have a wheel for that Python, since an installation must not need a compiler. Exit code 1: some failed.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.architecture.project_files import ROOT

KEPT = ROOT / ".compat"
RESOLUTIONS = ("lowest-direct", "highest")
TESTS_NEED = ("hypothesis", "psutil", "pytest", "pytest-timeout", "pytest-trio", "pyyaml")
CORE = (
    "tests/unit/broker/test_txn_listing.py",
    "tests/unit/client",
    "tests/unit/group",
    "tests/unit/protocol",
    "tests/unit/txn",
    "tests/integration/client/test_asyncio.py",
    "tests/integration/client/test_client_alone.py",
    "tests/integration/client/test_sync.py",
    "tests/integration/test_first_light.py",
    "tests/integration/test_metrics_endpoint.py",
    "tests/integration/test_other_systems.py",
    "tests/integration/testing/test_clock.py",
    "tests/integration/testing/test_faults.py",
)
"""What runs without other clients, Spark and a database."""
MORE_PACKAGES = (
    "tests/unit/client/test_assignors.py",
    "tests/unit/client/test_columns_of_a_consumer.py",
    "tests/unit/client/test_error_copies.py",
    "tests/unit/client/test_frames.py",
    "tests/unit/client/test_security_options.py",
    "tests/unit/client/test_tls_and_limits.py",
)
"""These compare with other clients, or need numpy or cryptography."""


def versions() -> list[str]:
    """The Pythons that the project names: 3.11, ..., and the free-threaded ones from 3.14 on."""
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [one[1] for text in project["classifiers"] if (one := re.search(r"Python :: (3\.\d+)$", text))]
    return [*found, *(f"{one}t" for one in found if int(one.partition(".")[2]) >= 14)]


def interpreters(wanted: list[str]) -> Iterator[tuple[str, str]]:
    """Each wanted version that this machine has, and the path of its Python."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [*os.get_exec_path(), *map(str, sorted(pyenv.glob("versions/*/bin")))]
    for version in wanted:
        for folder in folders:
            python = shutil.which(f"python{version}", path=folder)
            # pyenv's shims exist for versions that are not switched on, and fail.
            if (
                python is not None
                and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
            ):
                yield version, python
                break


def uv(*words: str) -> None:
    """Run uv, of this environment or of the PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
    program = shutil.which("uv", path=path)
    if program is None:
        sys.exit("compat needs uv: run `make setup`")
    subprocess.run([program, "--no-python-downloads", "--quiet", *words], cwd=ROOT, check=True)


def environment(version: str, python: str, resolution: str) -> Path:
    """The Python of an environment with the dependencies of client and broker, made anew."""
    place = KEPT / f"{version}-{resolution}"
    uv("venv", "--clear", "--python", python, str(place))
    pins = place / "pins.txt"
    found = str(place / "bin" / "python")
    binary = ("--python", found, "--only-binary", ":all:")
    has_re2 = not version.endswith("t") and version != "3.15"
    extras = [f"--extra={extra}" for extra in ("broker", "json", *(["patterns"] if has_re2 else []))]
    uv("pip", "compile", "pyproject.toml", *extras, "--resolution", resolution, *binary, "--output-file", str(pins))
    uv("pip", "install", *binary, "--requirement", str(pins), *TESTS_NEED)
    return Path(found)


def main(words: list[str]) -> int:
    """Test every Python; returns the exit code."""
    failed: list[str] = []
    tried: list[str] = []
    for version, python in interpreters(words or versions()):
        for resolution in RESOLUTIONS:
            name = f"Python {version}, {resolution} versions"
            print(f"== {name}", flush=True)
            tried.append(name)
            try:
                own = environment(version, python, resolution)
            except subprocess.CalledProcessError as error:
                failed.append(f"{name}: {error}")
                continue
            tests = ["-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:anyio", *CORE]
            tests += ["-W", "ignore:It looks like `register_random`"]  # hypothesis warns so of itself on Python 3.15
            tests += [f"--ignore={name}" for name in MORE_PACKAGES]
            if subprocess.run([str(own), *tests], cwd=ROOT, check=False).returncode:
                failed.append(name)
    if missing := [one for one in words if not any(one in name for name in tried)]:
        failed.append(f"no Python here is one of {', '.join(missing)}")
    print("\n".join([f"failed: {one}" for one in failed] or [f"passed: {one}" for one in tried] or ["no Python found"]))
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
