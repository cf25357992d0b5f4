"""Renamed things: old names go on working for two minor releases, with a warning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar, cast

from symgrad.errors import InputTypeError, warn

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

KEPT_FOR: Final = 2
"""Minor releases, from the one that first warns, in which a deprecated name still works."""


@dataclass(frozen=True)
class Deprecation:
    """An argument of a public function that has a new name since a release (major, minor)."""

    function: str
    old: str
    new: str
    since: tuple[int, int]

    @property
    def removed_in(self) -> tuple[int, int]:
        """The first release in which the old name no longer works."""
        major, minor = self.since
        return major, minor + KEPT_FOR

    @property
    def message(self) -> str:
        """The text of the warning."""
        removal = ".".join(map(str, self.removed_in))
        return (
            f"{self.function}({self.old}=...) is deprecated and will be removed in symgrad "
            f"{removal}: write {self.new}= instead"
        )


DEPRECATIONS: Final[list[Deprecation]] = []
"""Every deprecation that there is, in the order in which modules are loaded."""


def renamed_argument(
    function: str, old: str, new: str, since: tuple[int, int]
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """A decorator for a function whose argument ``old`` has become ``new``."""
    deprecation = Deprecation(function, old, new, since)
    DEPRECATIONS.append(deprecation)

    def decorate(f: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(f)
        def call(*args: Any, **named: Any) -> Any:
            if old in named:
                if new in named:
                    raise InputTypeError(f"{function} got both {new}= and its old name {old}=")
                warn(deprecation.message, DeprecationWarning)
                named[new] = named.pop(old)
            return f(*args, **named)

        return cast("Callable[Parameters, Result]", call)

    return decorate
