"""A browser for all tests of a process, with the modules that these write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import PROGRAM, Chromium, Page


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    folder = tmp_path_factory.mktemp("served")
    Path(folder, "blank.html").write_text("<!doctype html><title>blank</title>")
    found = Chromium(tmp_path_factory.mktemp("profile"), folder)
    yield found
    found.close()


@pytest.fixture(scope="session")
def page(browser: Chromium) -> Iterator[Page]:
    """A page with a device of SwiftShader, for modules of which each is imported once."""
    with browser.page("blank.html") as found:
        found.run("globalThis.kernels = {};")
        yield found
