"""The order of the pages. Every page below docs/ has its place here, and a test looks that none is left out."""

import re
from pathlib import Path
from typing import Any

GUIDES: list[dict[str, Any]] = [
    {"Home": "index.md"},
    {
        "Use it": [
            {"Exactly once in ten minutes": "tutorial.md"},
            {"Client": "client.md"},
            {"Queues": "queues.md"},
            {"Coming from another client": "coming-from.md"},
            {"Example programs": "examples.md"},
            {"Beside other clients": "comparison.md"},
            {"Beside other brokers": "alternatives.md"},
            {"Schema registry": "schema-registry.md"},
            {"Spark": "spark.md"},
            {"Test your code": "testing.md"},
            {"Test it with its framework": "recipes/frameworks.md"},
            {"Commit beside a database": "recipes/two_phase_commit.md"},
        ]
    },
    {
        "Run it": [
            {"Install": "install.md"},
            {"Run a broker": "operations.md"},
            {"Production checklist": "production.md"},
            {"Troubleshooting": "troubleshooting.md"},
            {"All the cores of a machine": "cores.md"},
            {"Run a cluster": "cluster.md"},
            {"Secure a broker": "security.md"},
            {"Look at it: the console": "console.md"},
            {"Serve schemas": "registry.md"},
            {"Use the command line": "cli.md"},
            {"Upgrade": "upgrades.md"},
        ]
    },
    {
        "Understand it": [
            {"Transactions": "transactions.md"},
            {"How it is proved": "proof.md"},
            {"Groups": "groups.md"},
            {"Groups of the consumer protocol": "consumer-groups.md"},
            {"Share groups": "share-groups.md"},
            {"Metadata": "metadata.md"},
            {"Glossary": "glossary.md"},
        ]
    },
    {
        "Reference": [
            {"Commands": "reference/commands.md"},
            {"Settings of the broker": "reference/settings.md"},
            {"Options of the client": "reference/client-options.md"},
            {"APIs and versions": "reference/apis.md"},
            {"Rights of each request": "reference/rights.md"},
            {"Administration, row by row": "administration.md"},
            {"The log's rules": "rules.md"},
            {"The rules of transactions": "rules-transactions.md"},
            {"The rules of share groups": "rules-queues.md"},
        ]
    },
    {
        "Change it": [
            {"Architecture": "architecture.md"},
            {"The simulated world": "simulation.md"},
            {"The model of the commit protocol": "models.md"},
            {"Benchmarks": "benchmarks.md"},
            {"Changelog": "changelog.md"},
        ]
    },
]


def navigation(docs: Path) -> list[dict[str, Any]]:
    """All pages, the decisions by number at the end."""
    records = [{title_of(path): f"decisions/{path.name}"} for path in decisions(docs)]
    return [*GUIDES, {"Decisions": [{"All decisions": "decisions/index.md"}, *records]}]


def decisions(docs: Path) -> list[Path]:
    """The decision records by number."""
    return sorted((docs / "decisions").glob("[0-9]*.md"))


def title_of(page: Path) -> str:
    """A page's first heading, without the marks of code."""
    found = re.match(r"# (.+)", page.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{page} does not begin with a heading")
    return found[1].replace("`", "")


def pages_in(navigation: list[dict[str, Any]]) -> list[str]:
    """The pages that are named at any depth."""
    found: list[str] = []
    for entry in navigation:
        for target in entry.values():
            found += [target] if isinstance(target, str) else pages_in(target)
    return found
