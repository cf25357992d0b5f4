"""What all tests share: random examples that repeat, slow tests, and poisoned memory of GPUs."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from poison import poisoned_memory

__all__ = ["poisoned_memory"]

collect_ignore = ["typing_user.py"]
"""What is for type checkers to read, and never runs: pytest would look in it for doctests."""

settings.register_profile(
    "symgrad",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("symgrad")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds; SYMGRAD_SLOW=1 runs it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get("SYMGRAD_SLOW"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: set SYMGRAD_SLOW=1 to run it"))


@pytest.fixture(scope="module")
def quick_collection() -> None:
    """Garbage is looked for among what the module's tests make, and not in all that a run holds."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def full_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for the CPU are compiled as users have them, and not as quickly as it goes."""
    monkeypatch.delenv("SYMGRAD_EFFORT", raising=False)
