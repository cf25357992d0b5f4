"""Reports of how far a call has got, at another pace than a user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from symgrad.report import progress


@contextmanager
def pace(silent: float = 0.0, apart: float = 0.0, idle: float = 0.5) -> Iterator[None]:
    """A context in which reports begin after ``silent`` seconds, and come ``apart`` or ``idle``."""
    with mock.patch.multiple(
        progress,
        SILENT_SECONDS=silent,
        LEAST_SECONDS_APART=apart,
        LEAST_REPORT_TIMES_APART=0.0,
        IDLE_SECONDS=idle,
    ):
        yield
