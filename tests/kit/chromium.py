"""A real Chromium for tests, driven by playwright: the system's, without a sandbox, since tests may run as root."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic", "--no-first-run")


def chromium_path() -> str | None:
    """Where the system has it."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser; the test skips where there is none."""
    path = chromium_path()
    if path is None:
        pytest.skip("there is no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
