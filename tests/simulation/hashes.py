"""A seed is the same world anywhere: the commands of this package run with the hashes of strings fixed."""

import os
import sys


def fix_hashes(module: str) -> None:
    """Start `python -m module` anew unless they are: hashes order sets, and so what is done first."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])
