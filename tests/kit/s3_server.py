"""An S3 server for tests: moto's, which keeps everything in memory. It is reached as any other by its endpoint."""

import http.client
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from fencepost.testing.reserved_port import reserve_port

HOST = "127.0.0.1"
BUCKET = "fencepost"
START_SECONDS_MAX = 100.0


class S3Server:
    """A context manager: the server's process, with one bucket."""

    def __init__(self) -> None:
        self.port = reserve_port(self, HOST)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """For `open_objects`."""
        return f"s3://{BUCKET}/logs"

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """For `open_objects`; by a proxy's endpoint if it is given."""
        keys = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
        return {"endpoint": endpoint or self.endpoint, **keys}

    def kill(self) -> None:
        """End it as a crash would: it forgets everything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._has_bucket():
            assert self._process.poll() is None, "moto's server has ended"
            assert time.monotonic() < deadline, "moto's server does not answer"
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _has_bucket(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request("PUT", f"/{BUCKET}")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
