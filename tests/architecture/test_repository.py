"""What a stranger finds in the repository: workflows that are right and pinned, forms that are valid, a licence."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.project_files import PROJECT_FILES, ROOT, name_of

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PINNED = re.compile(r"uses: (?:\./|docker://.*@sha256:|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)")
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")),
    "dependabot": [GITHUB / "dependabot.yml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
EXPECTED = ("CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "SECURITY.md")


def tool(module: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    """A tool of this environment, without a network."""
    program = Path(sys.executable).with_name(module)
    return subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_github_reads_has_the_form_that_it_expects(schema: str) -> None:
    assert SCHEMAS[schema]
    run = tool("check-jsonschema", "--builtin-schema", f"vendor.{schema}", "--force-filetype", "yaml", *SCHEMAS[schema])
    assert run.returncode == 0, run.stdout


def test_the_workflows_leak_no_token_and_run_no_later_change() -> None:
    run = tool("zizmor", "--offline", "--no-progress", "--quiet", GITHUB)
    assert run.returncode == 0, run.stdout


def test_every_action_is_named_by_its_commit_and_its_version() -> None:
    used = [
        line.strip() for path in WORKFLOWS for line in path.read_text(encoding="utf-8").splitlines() if "uses:" in line
    ]
    assert used
    assert [line for line in used if not PINNED.search(line)] == []


def test_every_make_target_that_a_workflow_runs_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    texts = "\n".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    assert set(re.findall(r"run: make ([a-z-]+)", texts)) <= targets


def test_the_shards_are_the_whole_suite() -> None:
    check: dict[str, Any] = yaml.safe_load((GITHUB / "workflows/check.yml").read_text(encoding="utf-8"))
    shards = [shard["folders"] for shard in check["jobs"]["suite"]["strategy"]["matrix"]["shard"]]
    named = [word for shard in shards for word in shard.partition(" --ignore")[0].split()]
    left_out = [word for shard in shards for word in shard.partition("--ignore")[2].split()]
    assert len(named) == len(set(named))
    assert set(left_out) <= set(named), "what one shard leaves out is another's"
    with_tests = {name_of(path).rpartition("/")[0] for path in PROJECT_FILES if path.name.startswith("test_")}
    with_tests = {folder for folder in with_tests if folder.startswith("tests/")}
    assert [folder for folder in with_tests if not any(f"{folder}/".startswith(f"{name}/") for name in named)] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_stranger_looks_for_is_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_licence_is_where_decision_85_says() -> None:
    """In the wheel beside the notice, and in the first line of what is compiled."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    compiled = [path for path in PROJECT_FILES if path.suffix in {".c", ".h"}]
    assert compiled
    first = {name_of(path): path.read_text(encoding="utf-8").partition("\n")[0] for path in compiled}
    assert [name for name, line in first.items() if line != "/* SPDX-License-Identifier: Apache-2.0 */"] == []


def test_the_notice_says_whose_trademarks_they_are() -> None:
    for name in ("NOTICE", "README.md"):
        text = " ".join((ROOT / name).read_text(encoding="utf-8").split())
        assert "trademarks of the Apache Software Foundation" in text, name
