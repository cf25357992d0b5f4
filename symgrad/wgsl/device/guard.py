"""Where wgpu's errors become ours, and where the user's stay what they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Final

from symgrad.errors import SymgradError

USERS: Final = "_is_the_users"
"""The attribute of exceptions that a guard lets pass."""


class Guard:
    """A context in which wgpu's errors become ours; without state, so threads may share it."""

    def __init__(self, translated: Callable[[Exception], Exception]) -> None:
        self._translated = translated

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SymgradError) or not isinstance(error, Exception):
            return
        if USERS in vars(error):
            return
        if isinstance(error, RuntimeError) or type(error).__name__.startswith("GPU"):
            raise self._translated(error) from error


@contextlib.contextmanager
def lifted() -> Generator[None]:
    """A context within a guard's, whose errors are the user's."""
    try:
        yield
    except Exception as error:
        vars(error)[USERS] = True
        raise
