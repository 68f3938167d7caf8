"""What an installation has: a clone installed in place, and a wheel built where an older build has left its files."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from fencepost import __version__
from tests.architecture.project_files import PROJECT_FILES, ROOT

COMPILED = "fencepost/protocol/_hot.abi3.so"
PACKAGES = ("fencepost", "pyspark_fencepost")


def test_pyspark_can_list_the_data_source_from_any_folder(tmp_path: Path) -> None:
    """PySpark looks for data sources with `pkgutil.iter_modules`, which sees no module that an import hook provides."""
    code = "import pkgutil; print([one.name for one in pkgutil.iter_modules() if one.name.startswith('pyspark_')])"
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={}, capture_output=True, text=True, timeout=100, check=True
    )
    assert "'pyspark_fencepost'" in listed.stdout


def copied_tree(place: Path) -> Path:
    """What a wheel is built from, as it stands under version control."""
    for path in PROJECT_FILES:
        name = path.relative_to(ROOT)
        if name.parts[0] in PACKAGES or str(name) in (
            "pyproject.toml",
            "setup.py",
            "README.md",
            "LICENSE",
            "MANIFEST.in",
        ):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / name)
    return place


def built_wheel(tree: Path, compiler: str) -> tuple[str, list[str], str]:
    """The name of a wheel, the names in it, and its description, built with `compiler` for C."""
    code = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
    words = [sys.executable, "-c", code, str(tree.parent)]
    environment = {**os.environ, "CC": compiler}
    built = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    wheel = tree.parent / built.stdout.splitlines()[-1]
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (description,) = [opened.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL")]
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert {"fencepost/broker/node.py", "fencepost/broker/cluster/database/migrations/0001.sql"} <= set(names)
    assert {"fencepost/console/templates/base.html", "fencepost/console/static/console.css"} <= set(names)
    try_wheel(wheel)
    return wheel.name, names, description


def try_wheel(wheel: Path) -> None:
    """What the release workflow does with each wheel, but with the dependencies of these tests."""
    site = wheel.with_suffix("")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    for words in (
        ["tools/try_test_broker.py"],
        ["tools/try_installation.py", sys.executable, "-m", "fencepost"],
    ):
        whole = [sys.executable, str(ROOT / words[0]), *words[1:]]
        tried = subprocess.run(
            whole, cwd=site, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert tried.returncode == 0, tried.stdout + tried.stderr
    kind = "pure Python" if wheel.name.endswith("-none-any.whl") else "compiled"
    assert f"(records: {kind})" in tried.stdout.splitlines()[0]


def test_the_release_workflow_builds_and_tries_what_this_project_makes() -> None:
    """Its files, every Python that the project names, without a compiler, and one limited API for all versions."""
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert set(jobs["publish"]["needs"]) == {"try", "alpine", "windows"}
    assert "password" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = [one[1] for text in project["project"]["classifiers"] if (one := re.search(r":: (3\.\d+)$", text))]
    assert jobs["try"]["strategy"]["matrix"]["python"] == named
    for install in re.findall(r"bin/pip install (.*)", text):
        assert install.startswith("--only-binary=:all: "), install
        assert install.endswith('[broker]"'), install
    assert {one.partition("-")[0] for one in project["tool"]["cibuildwheel"]["build"]} == {"cp311"}
    for named in re.findall(r"tools/\w+\.py", text + project["tool"]["cibuildwheel"]["test-command"]):
        assert (ROOT / named).is_file()


def test_a_source_distribution_has_its_tests_and_shows_links_that_lead_somewhere(tmp_path: Path) -> None:
    """What is in it, and the page that a package index makes of its README."""
    tree = tmp_path / "tree"
    for path in PROJECT_FILES:
        (tree / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tree / path.relative_to(ROOT))
    code = "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    words = [sys.executable, "-c", code, str(tmp_path)]
    built = subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    with tarfile.open(tmp_path / built.stdout.splitlines()[-1]) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
        metadata = opened.extractfile(f"fencepost-{__version__}/PKG-INFO")
        assert metadata is not None
        page = metadata.read().decode()
    assert {str(path.relative_to(ROOT)) for path in PROJECT_FILES} <= names
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert link.startswith(("https://", "#")), link
    targets = re.findall(rf"/(?:blob|raw)/v{__version__}/([^)#]+)", page)
    assert {"CHANGELOG.md", "docs/client.md", "docs/pictures/console-log.png"} <= set(targets)
    assert [one for one in targets if not (ROOT / one).exists()] == []


@pytest.mark.parametrize(
    ("tag", "repository", "wrong"),
    [
        (f"v{__version__}", "fencepost-project/fencepost", 0),
        (f"{__version__}", "fencepost-project/fencepost", 1),
        ("v0.0.9", "fencepost-project/fencepost", 1),
        (f"v{__version__}", "another/fencepost", 4),
    ],
)
def test_a_release_is_refused_unless_tag_changelog_and_links_fit(tag: str, repository: str, wrong: int) -> None:
    words = [sys.executable, str(ROOT / "tools/check_release.py"), tag, repository]
    checked = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert len(checked.stderr.splitlines()) == wrong, checked.stderr
    assert checked.returncode == min(wrong, 1)


def test_a_wheel_has_what_was_built_for_it_and_a_tag_that_fits(tmp_path: Path) -> None:
    """The second build finds what the first one left: a compiled part, and a module that is no more. `false` is a C
    compiler that fails, as where there is none.
    """
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    tree = copied_tree(tmp_path / "tree")
    name, names, description = built_wheel(tree, "cc")
    assert COMPILED in names
    assert "-cp311-abi3-linux_" in name or not sys.platform.startswith("linux")
    assert "Root-Is-Purelib: false\n" in description

    (left,) = (tree / "build").glob("lib*")
    assert (left / COMPILED).is_file()
    (left / "fencepost" / "gone.py").touch()
    name, names, description = built_wheel(tree, "false")
    assert [name for name in names if name.endswith((".so", "gone.py"))] == []
    assert name.endswith("-py3-none-any.whl")
    assert "Root-Is-Purelib: true\nTag: py3-none-any\n" in description
