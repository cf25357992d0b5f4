"""A loss of the parameters alone, a prior or a penalty, that is added once to sums over rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.expr.handles.tree import flatten


@dataclass(frozen=True)
class Penalty:
    """A regularizer, and the kernel of what is added to the results of a kernel over data.

    Its results are those of a kernel over data, nested alike.
    """

    f: Callable[..., Any]
    kernel: Any

    def added_to(self, results: Any, flat: np.ndarray) -> Any:
        """The results with its own; ``flat`` are all parameters, and behind them any vector."""
        n = self.kernel.n_inputs
        points = [flat] if len(flat) == n else np.split(flat, len(flat) // n)
        return _plus(results, self.kernel.run(*points))


def _plus(a: Any, b: Any) -> Any:
    """The sum of two results that are nested alike; those of most calls are not nested."""
    if type(a) is type(b) is tuple and not any(isinstance(x, dict | list | tuple) for x in a):
        return tuple(_sum(x, y) for x, y in zip(a, b, strict=True))
    leaves, tree = flatten(a, lambda _: None)
    pairs = zip(leaves, flatten(b, lambda _: None)[0], strict=True)
    return tree.nest(_sum(x, y) for x, y in pairs)


def _sum(a: Any, b: Any) -> Any:
    """The sum of two arrays; of a sparse one and another it is sparse."""
    return a + (type(a)(b) if hasattr(a, "tocsr") and isinstance(b, np.ndarray) else b)
