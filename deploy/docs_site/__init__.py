"""The documentation site: `make docs` builds it from docs/, the README, the changelog and the code."""
