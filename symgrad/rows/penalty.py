"""A loss of the parameters alone, a prior or a penalty, that is added once to sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import flatten
from symgrad.values.results import Nested, Result


@dataclass(frozen=True)
class Penalty:
    """A regularizer, and the kernel of what is added to the results of a kernel over data.

    Its results are those of a kernel over data, nested alike.
    """

    f: Callable[..., Any]
    kernel: Any

    def require_like(self, result: Result, f: Callable[..., Any]) -> None:
        """Refuse a regularizer that returns other things than those that are summed, f's.

        Raises:
            TraceError: for another nesting, or another shape.
        """
        added, wanted = (_outline(r) for r in (self.kernel._results[0], result))
        if added != wanted:
            raise TraceError(
                f"the regularizer, {describe(self.f)}, returns {_shown(added)}, where "
                f"{describe(f)} returns {_shown(wanted)}: return results that are nested and "
                "shaped alike, 0.0 where nothing is added"
            )

    def added_to(self, results: Any, flat: np.ndarray) -> Any:
        """The results with its own; ``flat`` are all parameters, and behind them any vector."""
        n = self.kernel.n_inputs
        points = [flat] if len(flat) == n else np.split(flat, len(flat) // n)
        return _plus(results, self.kernel.run(*points))


def _outline(result: Result) -> list[tuple[str, tuple[int, ...]]]:
    """The names and the shapes of the arrays that a result consists of."""
    names = [b.name for b in result.tree.blocks] if isinstance(result, Nested) else [""]
    return list(zip(names, result.shapes, strict=True))


def _shown(outline: list[tuple[str, tuple[int, ...]]]) -> str:
    """An outline as a message has it."""
    each = [(name, f"an array {shape}" if shape else "a number") for name, shape in outline]
    return ", ".join(f"{name}: {what}" if name else what for name, what in each)


def _plus(a: Any, b: Any) -> Any:
    """The sum of two results that are nested alike; those of most calls are not nested."""
    if type(a) is type(b) is tuple and all(isinstance(x, (float, np.ndarray)) for x in a):
        return tuple(map(_sum, a, b))
    leaves, tree = flatten(a, lambda _: None)
    pairs = zip(leaves, flatten(b, lambda _: None)[0], strict=True)
    return tree.nest(_sum(x, y) for x, y in pairs)


def _sum(a: Any, b: Any) -> Any:
    """The sum of two arrays; of a sparse one and another it is sparse."""
    if type(b) is np.ndarray and type(a) is not np.ndarray and hasattr(a, "tocsr"):
        b = type(a)(b)
    return a + b
