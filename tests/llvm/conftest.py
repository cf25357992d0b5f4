"""Code for the CPU as users have it: compiled with all its effort."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def with_full_effort(full_effort: None) -> None:
    """Of every test of this folder."""
