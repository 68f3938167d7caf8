"""`python -m tests.second_look PYTEST-OPTIONS`: all tests; the few of real processes that failed once more, alone.

Exit codes are pytest's. See docs/decisions/0040-repeat-failed-tests.md for what may be looked at again and why.
"""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

TESTS_FAILED = 1
REAL_PARTS = ("tests/integration/", "tests/interop/", "tests/spark/")
"""Here other people's processes, the network and the machine's pace have a say. What is computed never wavers."""
WAVERING_MAX = 3
FAILED_LAST = Path(".pytest_cache/v/cache/lastfailed")


def worth_a_second_look(failed: Collection[str]) -> bool:
    """Whether these tests (pytest's node ids) may be played again: few, and of real processes only."""
    return 0 < len(failed) <= WAVERING_MAX and all("::" in test and test.startswith(REAL_PARTS) for test in failed)


def failed_last() -> list[str]:
    """What failed in the last run of pytest."""
    return sorted(json.loads(FAILED_LAST.read_text())) if FAILED_LAST.exists() else []


def main(arguments: list[str]) -> int:
    """Run pytest, perhaps twice; return its exit code."""
    FAILED_LAST.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest"]
    code = subprocess.run([*command, *arguments], check=False).returncode
    failed = failed_last()
    if code != TESTS_FAILED or not worth_a_second_look(failed):
        return code
    print(f"\n{len(failed)} of real processes failed, and are played again, alone:", flush=True)
    code = subprocess.run([*command, *failed], check=False).returncode
    print("\n" + ("FAILED TWICE:" if code else "WAVERED (failed above, passed alone; a bug of the test or of ours):"))
    for test in failed:
        print(f"  {test}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
