"""A plan run by the NumPy interpreter: the CPU's back end where there is no compiled one."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.evaluate import evaluate_graph
from symgrad.expr.simplify import inputs_of
from symgrad.kernel.plan import Plan

BLOCK = 8192
"""Points computed together: as many as keep the values of a graph in the cache."""


class Interpreter:
    """Runs a plan point block by point block; any number of threads may."""

    def __init__(self, plan: Plan, dtype: Any) -> None:
        self.plan = plan
        self.dtype = np.dtype(dtype)
        self.seconds = 0.0
        self._inputs = inputs_of(plan.graph)
        self._roots = [i for o in plan.outputs for i in o.nodes]

    def run(self, points: np.ndarray) -> list[np.ndarray]:
        """points (B, n) -> an array (B, columns) for each output."""
        results = [np.empty((len(points), len(o.nodes)), self.dtype) for o in self.plan.outputs]
        for start in range(0, len(points), BLOCK):
            self._run_block(points[start : start + BLOCK], results, start)
        return results

    def _run_block(self, points: np.ndarray, results: list[np.ndarray], start: int) -> None:
        # one point is computed as two: NumPy's loops then take the same path as for a batch
        columns = np.ascontiguousarray(points.T if len(points) > 1 else np.repeat(points.T, 2, 1))
        inputs = dict(zip(self._inputs, columns, strict=True))
        values = iter(evaluate_graph(self.plan.graph, self._roots, inputs, self.dtype.type))
        for result in results:
            for k in range(result.shape[1]):
                result[start : start + len(points), k] = next(values)[: len(points)]
