"""Keys as files for OpenSSL, which reads them only from files."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_file(content: str) -> Iterator[str]:
    """The path of a file with this content: in memory where the system supports it."""
    import os  # here: most processes have no key
    import tempfile

    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as directory:  # mode 0700; on Windows no open file can be opened once more
            path = os.path.join(directory, "key.pem")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            yield path
