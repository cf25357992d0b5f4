"""Products of matrices with a bias and an activation, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import InputError
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.programs.epilogue import Epilogue, FinishProgram
from symgrad.kernel.programs.matmul import ARGUMENTS, MatmulProgram, Operand
from symgrad.kernel.target import InGroups
from symgrad.pipeline import Options
from symgrad.tensor.kernel import Runner, launched
from symgrad.tensor.shapes import (
    Batch,
    Problem,
    Shape,
    chosen,
    groups_of,
    problem,
    require_columns,
)
from symgrad.tensor.sums import column_sums, for_elements, sums_of

MOST_GROUPS = 65_535
"""Groups in a row, at most."""


@dataclass(frozen=True)
class Epilogues:
    """What comes after the sums: of ``run``, of ``vjp``, and nothing, for gradients.

    Of an ``identity``, the slope is the cotangent itself.
    """

    run: Epilogue
    vjp: Epilogue
    none: Epilogue
    identity: bool


@dataclass(frozen=True)
class Products:
    """The work ``f(a b + bias)``, b being ``transposed`` in memory or not: see `Work`."""

    name: str
    arguments: tuple[str, ...]
    transposed: bool
    epilogues: Epilogues
    cotangents: tuple[str, ...] = ("cotangent",)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """One result: see `Work`."""
        (a, b), names = self._matrices(shapes), self.arguments
        if a[-1] != b[-2]:
            raise InputError(
                f"{names[1]} has shape {shapes[1]}: {names[0]} of shape {shapes[0]} has {a[-1]} "
                f"columns, so it is to have as many {'columns' if self.transposed else 'rows'}"
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
        found = (*batch, a[-2], b[-1])
        return [(*found[:-2], found[-1]) if len(shapes[0]) == 1 else found]

    def _matrices(self, shapes: Sequence[Shape]) -> tuple[Shape, Shape]:
        """The shapes of the operands, as they are multiplied."""
        a, b = map(tuple, shapes[:2])
        least = 1 if self.transposed else 2
        if len(a) < least or len(b) < 2 or (self.transposed and len(b) > 2):
            name, shape = (self.arguments[0], a) if len(a) < least else (self.arguments[1], b)
            wanted = "(out, in)" if self.transposed else "(.., rows, columns)"
            raise InputError(f"{name} has shape {shape}: it is to be a matrix, {wanted}")
        if self.transposed:
            return (a if len(a) > 1 else (1, *a)), (b[1], b[0])
        return a, b

    def problem(self, shapes: Sequence[Shape]) -> Problem:
        """What is multiplied."""
        return problem(*self._matrices(shapes))

    def launch(self, kind: str, shapes: Sequence[Shape], traits: Target) -> Launch:
        """What a call runs on a GPU: see `Work`."""
        return _Steps(self, kind, shapes).launch

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """NumPy's products on the host, for which it has a BLAS: see `Work`."""
        if backend.on_host:
            return OnHost(self, kind, shapes, backend, options)
        return launched(self, kind, shapes, backend, options)


@dataclass(frozen=True)
class Matrix:
    """An operand of a product in memory: neighbours are numbers ``along`` the reduction, or not."""

    name: str
    along: bool
    batch: Batch


class _Steps:
    """The dispatches of a call on a GPU."""

    def __init__(self, work: Products, kind: str, shapes: Sequence[Shape]) -> None:
        self.work, self.kind = work, kind
        self.p = work.problem(shapes)
        names = [*work.arguments, *["cotangent"] * (kind == "vjp")]
        self.inputs = [Array(n, tuple(s)) for n, s in zip(names, shapes, strict=True)]
        self.scratch: list[Array] = []
        self.dispatches: list[Dispatch] = []
        (result,) = work.results(shapes[: len(work.arguments)])
        self.outputs = [Array("result", result)]
        self._run() if kind == "run" else self._vjp()
        arrays = tuple(self.inputs), tuple(self.outputs), tuple(self.scratch)
        self.launch = Launch(f"{work.name}_{kind}", *arrays, tuple(self.dispatches))

    @property
    def a(self) -> Matrix:
        """The first operand."""
        return Matrix(self.work.arguments[0], True, self.p.a)

    @property
    def b(self) -> Matrix:
        """The second."""
        return Matrix(self.work.arguments[1], self.work.transposed, self.p.b)

    def _run(self) -> None:
        self._product(self.a, self.b, self.p, self.work.epilogues.run, self._bound())

    def _bound(self) -> dict[str, str]:
        """The arrays of the forward pass's epilogue."""
        return {"result": "result"} | ({"bias": self.work.arguments[2]} if self._has_bias else {})

    @property
    def _has_bias(self) -> bool:
        return len(self.work.arguments) == 3

    def _vjp(self) -> None:
        e, p, slope = self.work.epilogues, self.p, "cotangent"
        bound = self._bound()
        if not e.identity:
            slope = self._room("slope", p.batch * p.m * p.n)
            bound |= {"gradient": "cotangent", "slope": slope}
        self._product(self.a, self.b, p, e.run if e.identity else e.vjp, bound)
        outputs = [Array(f"d_{a.name}", a.shape) for a in self.inputs[:-1]]
        self.outputs += outputs
        self._gradients(slope)
        if self._has_bias:
            self._columns(slope, p.batch * p.m, p.n, outputs[2].name)

    def _gradients(self, slope: str) -> None:
        """Those of the operands, from the slope of their product."""
        p, each = self.p, Batch(1, self.p.batch)
        a, b, transposed = self.a, self.b, self.work.transposed
        of_a = replace(p, n=p.k, k=p.n, a=each, b=p.b)
        self._gradient(
            Matrix(slope, True, each), Matrix(b.name, not transposed, p.b), of_a, a.name, p.a
        )
        first, second = Matrix(a.name, False, p.a), Matrix(slope, False, each)
        if transposed:
            first, second = second, first
        m, n = (p.n, p.k) if transposed else (p.k, p.n)
        of_b = Problem(m, n, p.m, p.batch, first.batch, second.batch)
        self._gradient(first, second, of_b, b.name, p.b)

    def _gradient(self, a: Matrix, b: Matrix, p: Problem, name: str, batch: Batch) -> None:
        """The gradient of an operand: of each product, and summed over those that have the same."""
        size, outer = p.m * p.n, p.batch // (batch.each * batch.count)
        whole = batch.count == p.batch
        target = f"d_{name}" if whole else self._room(f"each_{name}", p.batch * size)
        self._product(a, b, p, self.work.epilogues.none, {"result": target})
        if not whole and batch.each > 1:
            last = outer == 1
            there = f"d_{name}" if last else self._room(f"some_{name}", outer * batch.count * size)
            self._sums(target, p.batch, size, batch.each, there)
            target = there
        if outer > 1:
            self._sums(target, outer, batch.count * size, outer, f"d_{name}")

    def _room(self, name: str, size: int) -> str:
        self.scratch.append(Array(name, (size,)))
        return name

    # dispatches ----------------------------------------------------------------------------------

    def _product(
        self, a: Matrix, b: Matrix, p: Problem, epilogue: Epilogue, bound: dict[str, str]
    ) -> None:
        """Products, and what comes after them."""
        tiles, splits = chosen(p.m, p.n, p.k, p.batch)
        groups = groups_of(tiles, p.m, p.n) * p.batch * splits
        edges = bool(p.m % tiles.rows or p.n % tiles.columns) or groups > MOST_GROUPS
        first, second = self._operand(a, p.m, p.k), self._operand(b, p.n, p.k)
        parts = (
            {"result": self._room(f"parts_{len(self.scratch)}", splits * p.batch * p.m * p.n)}
            if splits > 1
            else bound
        )
        program = MatmulProgram(
            tiles, first, second, self.work.epilogues.none if splits > 1 else epilogue,
            bool(p.k % tiles.depth), edges, p.n % 4 == 0,
        )  # fmt: skip
        numbers = self._numbers(p, first, second, splits, -(-p.k // tiles.depth), groups)
        arrays = {"a": a.name, "b": b.name} | parts
        self._dispatch(program, program.target, arrays, groups * tiles.width, groups, numbers)
        if splits > 1:
            size = {"n": p.n, "size": p.m * p.n}
            arrays = {"parts": parts["result"]} | bound
            self._each(FinishProgram(epilogue, splits), arrays, p.batch * p.m * p.n, size)

    def _operand(self, matrix: Matrix, beside: int, depth: int) -> Operand:
        """How an operand is read: a single row, or column, is both."""
        along = matrix.along or beside == 1
        return Operand(along, (depth if along else beside) % 4 == 0)

    def _numbers(
        self, p: Problem, a: Operand, b: Operand, splits: int, steps: int, groups: int
    ) -> dict[str, int]:
        """The arguments of the kernel."""
        many = [4 if o.quads else 1 for o in (a, b)]
        rows = [p.k if o.along else beside for o, beside in ((a, p.m), (b, p.n))]
        values = (
            p.m, p.n, p.k, rows[0] // many[0], rows[1] // many[1], p.m * p.k // many[0],
            p.n * p.k // many[1], p.a.each, p.a.count, p.b.each, p.b.count, splits,
            -(-steps // splits), groups,
        )  # fmt: skip
        return dict(zip(ARGUMENTS, values, strict=True))

    def _columns(self, table: str, rows: int, n: int, out: str) -> None:
        """The sums of columns."""
        dispatches, scratch = column_sums(table, rows, n, out, InGroups())
        self.dispatches += dispatches
        self.scratch += scratch

    def _sums(self, table: str, rows: int, n: int, each: int, out: str) -> None:
        """The sums of each so many rows."""
        self.dispatches.append(sums_of(table, rows, n, each, out, InGroups()))

    def _each(
        self, program: Any, arrays: dict[str, str], count: int, words: dict[str, int]
    ) -> None:
        self._dispatch(program, for_elements(InGroups()), arrays, count, 0, words)

    def _dispatch(
        self, program: Any, target: Target, arrays: dict[str, str], count: int, groups: int,
        words: dict[str, int],
    ) -> None:  # fmt: skip
        made = tuple(arrays.items()), count, groups, tuple(words.items())
        self.dispatches.append(Dispatch(program, target, *made))


class OnHost:
    """Calls on the host: products by NumPy, and what comes after them compiled."""

    def __init__(
        self, work: Products, kind: str, shapes: Sequence[Shape], backend: Backend,
        options: Options,
    ) -> None:  # fmt: skip
        self.work, self.kind, self.dtype = work, kind, np.dtype(options.dtype)
        (self.shape,) = work.results(shapes[: len(work.arguments)])
        self.finish = None
        if math.prod(self.shape) and not work.epilogues.identity:
            self.finish = backend.launch(self._launch(backend, options), options)

    def _launch(self, backend: Backend, options: Options) -> Launch:
        """What makes results of sums."""
        epilogue = self.work.epilogues.run if self.kind == "run" else self.work.epilogues.vjp
        graph, shape = epilogue.computation.graph, self.shape
        names = ["parts", *graph.names[1:]]
        arrays = {n: (shape[-1:] if n == "bias" else shape) for n in names}
        outputs = [o.name for o in epilogue.computation.outputs]
        bound = tuple((n, n) for n in (*names, *outputs))
        numbers = ("n", shape[-1]), ("size", math.prod(shape))
        traits = backend.traits(options.dtype, options.math)
        step = Dispatch(FinishProgram(epilogue), traits, bound, math.prod(shape), 0, numbers)
        inputs = tuple(Array(n, s) for n, s in arrays.items())
        return Launch(self.work.name, inputs, tuple(Array(n, shape) for n in outputs), (), (step,))

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The results: see `Runner`."""
        with np.errstate(all="ignore"):
            return self._computed(*arrays)

    def _computed(self, a: np.ndarray, b: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
        second = b.mT if self.work.transposed else b
        sums = np.matmul(a, second)
        if self.kind == "run":
            return [self._finished(sums, rest)[0]]
        result, slope = self._finished(sums, rest)
        bias = rest[:-1]
        return [result, *self._gradients(a, b, slope), *[_over_rows(slope) for _ in bias]]

    def _finished(self, sums: np.ndarray, rest: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The result, and the slope if there is a cotangent."""
        if self.finish is not None:
            return self.finish.run(sums, *rest)
        for bias in rest[: len(self.work.arguments) - 2]:
            sums += bias
        return [sums, rest[-1].copy()] if self.kind == "vjp" else [sums]

    def _gradients(
        self, a: np.ndarray, b: np.ndarray, slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Those of the operands."""
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
