"""What holds for all tests, those in docstrings included."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from hypothesis import settings

# Tests run side by side: threads of NumPy's BLAS, which wait for work by spinning, would take the
# cores from them. It reads this when NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Once as a package, before pytest takes its files one by one for their doctests: importlib mode
# would load the first of them a second time, with classes of its own.
import symgrad  # noqa: F401
from symgrad.wgsl.device.gpus import list_gpus

# A kernel takes the time that its compilation takes.
settings.register_profile("symgrad", deadline=None, print_blob=True)
settings.load_profile("symgrad")


# Graphs and kernels of any size are verified, also where tests begin a process.
os.environ.setdefault("SYMGRAD_VERIFY", "1")

# Tests compile thousands of kernels that run once: LLVM leaves optimisations out, and so does the
# driver of Mesa that stands in for a GPU. With the fixture ``full_effort`` LLVM does them.
os.environ.setdefault("SYMGRAD_EFFORT", "0")
os.environ.setdefault("GALLIVM_PERF", "nopt")


collect_ignore_glob = ["docs/reference/*"]
"""The examples of docstrings, which run where they stand."""

FRAMEWORKS = "torch", "jax", "sklearn", "xarray", "dask"
"""Packages of examples that run where they are installed."""


def missing(source: str) -> str | None:
    """Why an example cannot run here, if it cannot."""
    if 'device="gpu"' in source and not list_gpus():
        return "no GPU and no software driver here"
    absent = [
        name
        for name in FRAMEWORKS
        if re.search(rf"(import|from) {name}", source) and not find_spec(name)
    ]
    return f"needs {' and '.join(absent)}" if absent else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the examples of docstrings and pages that need what is not there."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
            reasons = (missing(example.source) for example in item.dtest.examples)
            if reason := next(filter(None, reasons), None):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Free the garbage collector from what stays to the end: millions of objects with all tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # graphs and kernels are many objects without cycles
        gc.enable()
