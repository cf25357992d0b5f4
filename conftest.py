"""What holds for all tests, those in docstrings included."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Once as a package, before pytest takes its files one by one for their doctests: importlib mode
# would load the first of them a second time, with classes of its own.
import symgrad  # noqa: F401
from symgrad.wgsl.device.gpus import list_gpus

# A kernel takes the time that its compilation takes.
settings.register_profile("symgrad", deadline=None, print_blob=True)
settings.load_profile("symgrad")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples of docstrings that need a GPU where there is none."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
            asks = any('device="gpu"' in example.source for example in item.dtest.examples)
            if asks and not list_gpus():
                item.add_marker(pytest.mark.skip(reason="no GPU and no software driver here"))
