"""Products of matrices with a bias and an activation, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import InputError
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.epilogue import FinishProgram
from symgrad.pipeline import Options
from symgrad.tensor.kernel import Runner, launched
from symgrad.tensor.shapes import (
    Problem,
    Shape,
    problem,
    require_columns,
)
from symgrad.tensor.steps import Layer, Steps


@dataclass(frozen=True)
class Products(Layer):
    """The work ``f(a b + bias)``, b being ``transposed`` in memory or not: see `Work`.

    If it ``keeps`` what f is of, "run" gives that behind the result, and "vjp" takes it behind the
    cotangent.
    """

    cotangents: tuple[str, ...] = ("cotangent",)
    keeps: bool = False

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """One result: see `Work`."""
        (a, b), names = self._matrices(shapes), self.arguments
        if a[-1] != b[-2]:
            raise InputError(
                f"{names[1]} has shape {shapes[1]}: {names[0]} of shape {shapes[0]} has {a[-1]} "
                f"columns, so it must have as many {'columns' if self.transposed else 'rows'}"
            )
        if len(names) == 3:
            require_columns(names[2], tuple(shapes[2]), b[-1])
        try:
            batch = np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))
        except ValueError as error:
            raise InputError(
                f"{names[1]} has shape {shapes[1]}, {names[0]} {shapes[0]}: their batches do not "
                "broadcast"
            ) from error
        full_shape = (*batch, a[-2], b[-1])
        shape = (*full_shape[:-2], full_shape[-1]) if len(shapes[0]) == 1 else full_shape
        return [shape] * (1 + self.keeps)

    def _matrices(self, shapes: Sequence[Shape]) -> tuple[Shape, Shape]:
        """The shapes of the operands, as they are multiplied."""
        a, b = map(tuple, shapes[:2])
        least = 1 if self.transposed else 2
        if len(a) < least or len(b) < 2 or (self.transposed and len(b) > 2):
            name, shape = (self.arguments[0], a) if len(a) < least else (self.arguments[1], b)
            wanted = "(out, in)" if self.transposed else "(.., rows, columns)"
            raise InputError(f"{name} has shape {shape}: it must be a matrix, {wanted}")
        if self.transposed:
            return (a if len(a) > 1 else (1, *a)), (b[1], b[0])
        return a, b

    def problem(self, shapes: Sequence[Shape]) -> Problem:
        """What is multiplied."""
        return problem(*self._matrices(shapes))

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """What a call runs on a GPU: see `Work`."""
        result = self.results(shapes[: len(self.arguments)])[0]
        return Steps(self, self.pass_of(kind), shapes, self.problem(shapes), result).launch

    def pass_of(self, kind: str) -> str:
        """Which epilogue a kind of call has: see `Epilogues`."""
        return {"run": "keep", "vjp": "kept"}[kind] if self.keeps else kind

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """NumPy's products on the host, for which it has a BLAS: see `Work`."""
        if backend.on_host:
            return OnHost(self, kind, shapes, backend, options)
        return launched(self, kind, shapes, backend, options)


class OnHost:
    """Calls on the host: products by NumPy, and what comes after them compiled."""

    def __init__(
        self, work: Products, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> None:
        self.work, self.kind = work, work.pass_of(kind)
        self.shape = work.results(shapes[: len(work.arguments)])[0]
        self.finish = None
        if math.prod(self.shape):
            self.finish = backend.launch(self._launch(backend, options), options)

    def _launch(self, backend: Backend, options: Options) -> Launch:
        """What makes results of sums."""
        epilogue = self.work.epilogues.of(self.kind)
        graph, shape = epilogue.computation.graph, self.shape
        names = ["parts", *graph.names[1:]]
        arrays = {n: (shape[-1:] if n == "bias" else shape) for n in names}
        outputs = [o.name for o in epilogue.computation.outputs]
        bound = tuple((n, n) for n in (*names, *outputs))
        numbers = ("n", shape[-1]), ("size", math.prod(shape))
        device_target = backend.device_target(options.dtype, options.math)
        step = Dispatch(FinishProgram(epilogue), device_target, bound, math.prod(shape), 0, numbers)
        inputs = tuple(Array(n, s) for n, s in arrays.items())
        return Launch(self.work.name, inputs, tuple(Array(n, shape) for n in outputs), (), (step,))

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The results: see `Runner`."""
        with np.errstate(all="ignore"):
            return self._computed(*arrays)

    def _computed(self, a: np.ndarray, b: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
        many = len(self.work.arguments) - 2
        biases, others = rest[:many], rest[many:]
        if self.kind == "kept":
            operands = [others[1], others[0]]
        else:
            operands = [np.matmul(a, b.mT if self.work.transposed else b), *biases, *others]
        results = self._finished(operands)
        if self.kind in ("run", "keep"):
            return results
        result, slope = results if len(results) > 1 else (*results, others[0])
        return [result, *self._gradients(a, b, slope), *[_over_rows(slope) for _ in biases]]

    def _finished(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What the epilogue gives."""
        if self.finish is not None:
            return self.finish.run(*operands)
        return [np.empty(self.shape, operands[0].dtype) for _ in range(1 + (self.kind != "run"))]

    def _gradients(
        self, a: np.ndarray, b: np.ndarray, slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradients of the operands."""
        of_a = np.matmul(slope, b if self.work.transposed else b.mT)
        if b.ndim > 2:
            return _summed(of_a, a.shape), _summed(np.matmul(a.mT, slope), b.shape)
        rows, slopes = _rows(a), _rows(slope)
        of_b = slopes.T @ rows if self.work.transposed else rows.T @ slopes
        return of_a, of_b


def _over_rows(x: np.ndarray) -> np.ndarray:
    """The sums of columns."""
    rows = _rows(x)
    return np.ones(len(rows), x.dtype) @ rows


def _rows(x: np.ndarray) -> np.ndarray:
    """All rows, as those of a matrix."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _summed(x: np.ndarray, shape: Shape) -> np.ndarray:
    """The sum over what was broadcast."""
    more = x.ndim - len(shape)
    axes = tuple(k for k, n in enumerate(x.shape) if k < more or (shape[k - more] == 1 and n != 1))
    return x.sum(axes).reshape(shape) if axes else x
