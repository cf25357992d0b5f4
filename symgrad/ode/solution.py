"""The solution of a differential equation, with SciPy's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from symgrad.ode.integration import MESSAGES


@dataclass
class OdeResult:
    """The solution that `solve_ivp` gives, with SciPy's names; its fields are keys as well.

    Inside a traced function all numbers are expressions. Leading axes are those of the batch.

    Example:
        >>> import symgrad as sg
        >>> solution = sg.solve_ivp(lambda t, y: -y, (0, 1), [1.0], t_eval=[0.0, 0.5, 1.0])
        >>> solution.y.shape, solution["success"]
        ((1, 3), True)
    """

    t: Any
    """The times: those of t_eval, of the steps, or of the start and the end."""

    y: Any
    """The solution at each, (..., size, times); NaN from where it failed, or ended, on."""

    status: Any
    """0: the end was reached; 1: a terminal event; below 0: it failed, `message` says how."""

    nfev: Any
    """Evaluations of the right-hand side."""

    steps: Any
    """Attempts at steps, those that were repeated among them."""

    t_events: Any = None
    """For each event the times at which it happened."""

    y_events: Any = None
    """For each event the states then, before jumps."""

    @property
    def success(self) -> Any:
        """Whether the end, or a terminal event, was reached."""
        return self.status >= 0

    @property
    def message(self) -> Any:
        """The meaning of the status; of many problems, of each status that occurs."""
        if hasattr(self.status, "graph"):
            return "; ".join(f"{status}: {text}" for status, text in MESSAGES.items())
        if getattr(self.status, "ndim", 0):
            occurring = sorted({int(s) for s in self.status.ravel()})
            return "; ".join(f"{status}: {MESSAGES[status]}" for status in occurring)
        return MESSAGES[int(self.status)]

    def keys(self) -> list[str]:
        """The names of the fields."""
        return [*(f.name for f in fields(self)), "success", "message"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)
