"""The client and a broker in memory run where Python has nothing of POSIX, as on Windows."""

import subprocess
import sys

from tests.architecture.project_files import ROOT


def test_client_and_test_broker_need_nothing_that_windows_lacks() -> None:
    words = [sys.executable, "-m", "tests.kit.other_system"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    asyncio_read, trio_read, with_login, refused = done.stdout.splitlines()
    assert asyncio_read == "asyncio [b'plain', b'one', b'two']"
    assert trio_read == "trio [b'plain', b'one', b'two']"
    assert with_login == "login [b'plain', b'one', b'two']"
    assert "a data directory needs a POSIX system: keep the data in memory: 'data'" in refused
