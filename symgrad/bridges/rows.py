"""Functions of rows of numbers for frameworks to differentiate: their products are kernels too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from symgrad.backend import backend_of
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving, jvp, vjp
from symgrad.expr.graph.node import INPUT, Graph
from symgrad.kernel.shapes import Computation, Output, unique
from symgrad.pipeline import Options, simplified
from symgrad.targets import Device


class Loss(Protocol):
    """A loss of n numbers and its gradient, at rows (..., n) of them."""

    @property
    def n(self) -> int:
        """The number of variables."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that it is computed in."""
        ...

    @property
    def curvature(self) -> RowFunction | None:
        """The gradient as a function, whose derivative is symmetric; None where it has none."""
        ...

    def pair(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses (...) and the gradients (..., n)."""
        ...


@dataclass(frozen=True)
class PointLoss:
    """The loss of a kernel: ``run`` gives its columns, and its gradient is a function too."""

    run: Callable[[np.ndarray], Sequence[np.ndarray]]
    curvature: RowFunction

    @property
    def n(self) -> int:
        """The number of variables."""
        return self.curvature.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that the kernel computes in."""
        return self.curvature.dtype

    def pair(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses (...) and the gradients (..., n)."""
        batch = x.shape[:-1]
        rows = np.ascontiguousarray(x, self.dtype).reshape(math.prod(batch), self.n)
        loss, gradient = self.run(rows)
        return loss.reshape(batch), gradient.reshape(*batch, self.n)


@dataclass(frozen=True)
class DataLoss:
    """A loss over data: ``run`` gives it and its gradient (n,) for one set of parameters (n,)."""

    run: Callable[[np.ndarray], tuple[float, np.ndarray]]
    n: int
    dtype: np.dtype[Any]
    curvature: None = None

    def pair(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses (...) and the gradients (..., n), one set of parameters after the other."""
        batch = x.shape[:-1]
        loss, gradient = np.empty(batch, self.dtype), np.empty(x.shape, self.dtype)
        for k in np.ndindex(*batch):
            loss[k], gradient[k] = self.run(x[k])
        return loss, gradient


class RowFunction:
    """A function of n numbers that gives m, computed by a kernel that is made when first run.

    ``roots`` are nodes of a graph with n inputs. ``pulled`` and ``pushed`` are its products with
    a cotangent or a tangent, which are such functions too: so derivatives of any order can be had.
    """

    def __init__(
        self, graph: Graph, roots: Sequence[int], options: Options, device: Device
    ) -> None:
        self._graph, self._roots = graph, tuple(roots)
        self._options, self._device = options, device
        self.dtype = options.floats
        self.n, self.m = len(graph.names), len(self._roots)

    def run(self, x: np.ndarray) -> np.ndarray:
        """The results (..., m) at rows (..., n) of the function's dtype."""
        batch = x.shape[:-1]
        rows = np.ascontiguousarray(x, self.dtype).reshape(math.prod(batch), self.n)
        (values,) = self._program.run(rows)
        return values.reshape(*batch, self.m)

    @cached_property
    def _program(self) -> Any:
        simple, roots = simplified(self._graph, self._roots, self._options)
        computation = Computation(self._options.name, simple, (Output("values", tuple(roots)),))
        return backend_of(self._device).map(computation, self._options, self._options.name)

    @cached_property
    def pulled(self) -> RowFunction:
        """Rows x and g, side by side -> g times the Jacobian at x: the vector-Jacobian product."""

        def derive(graph: Graph, cotangents: list[int]) -> list[int | None]:
            seeds: dict[int, int] = {}
            for root, g in zip(self._roots, cotangents, strict=True):
                seeds[root] = graph.add(ops.add, seeds[root], g) if root in seeds else g
            return vjp(graph, seeds, self._inputs)

        return self._derived("g", self.m, derive)

    @cached_property
    def pushed(self) -> RowFunction:
        """Rows x and v, side by side -> the Jacobian at x times v: the Jacobian-vector product."""

        def derive(graph: Graph, tangents: list[int]) -> list[int | None]:
            return jvp(graph, dict(zip(self._inputs, tangents, strict=True)), self._roots)

        return self._derived("d", self.n, derive)

    @property
    def _inputs(self) -> list[int]:
        return [self._graph.intern((INPUT, k)) for k in range(self.n)]

    def _derived(
        self, prefix: str, count: int, derive: Callable[[Graph, list[int]], list[int | None]]
    ) -> RowFunction:
        """The function of ``count`` more inputs that a derivation finds."""
        graph = self._graph.copy()
        names = unique([*graph.names, *(f"{prefix}{k}" for k in range(count))])
        with deriving(graph):
            roots = derive(graph, [graph.input(name) for name in names[self.n :]])
            zero = graph.constant(0.0)
        options = replace(self._options, name=f"{self._options.name}_{prefix}")
        return RowFunction(graph, [zero if i is None else i for i in roots], options, self._device)
