"""`stencil`: a traced function of the neighbours of every element of a grid, and its gradient.

The gradient is derived, by reverse mode of the function and by transposition of the reads: what an
element gave to the result at p as its neighbour with offset d, it gathers from p = q - d, if it is
q itself. Nothing is scattered, so sums are in a fixed order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr import ops
from symgrad.expr.tracers.array import array
from symgrad.kernel.formula import Formula
from symgrad.kernel.index import Index, all_hold
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.launch import Array, Launch
from symgrad.kernel.statements import Buffer
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.dispatches import each_of
from symgrad.tensor.formulas import Formulas
from symgrad.tensor.kernel import Runner, Shape, TensorKernel, launched

Mode = Literal["constant", "wrap"]
"""Values beyond the edges: zeros, or the other side of the grid; SciPy's words."""

Offset = tuple[int, int]

MOST_OFFSET: Final = 2**15
"""Rows or columns that a neighbour may be away, at most."""


# --- the skeletons --------------------------------------------------------------------------------


class _Grid:
    """Where an invocation is in a grid (rows, columns), and what stands some offset away."""

    def __init__(self, k: KernelIR, mode: Mode) -> None:
        self.k, self.mode = k, mode
        self.rows, self.columns = (Index(k, k.argument(name)) for name in ("rows", "columns"))
        self.point = Index(k, k.target.point(k))
        above, self.column = divmod(self.point, self.columns)
        self.grid, self.row = divmod(above, self.rows)

    def load(self, source: Buffer, offset: Offset, first: Index | None = None) -> int:
        """The number at an offset in a source of the grid's shape, which begins at ``first``."""
        k, (down, right) = self.k, offset
        (row, row_inside), (column, column_inside) = (
            self._moved(self.row, down, self.rows),
            self._moved(self.column, right, self.columns),
        )
        place = (self.grid * self.rows + row) * self.columns + column
        start = Index(k, k.word(0)) if first is None else first
        conditions = [truth for truth in (row_inside, column_inside) if truth is not None]
        if not conditions:
            return k.load(source, (start + place).id)
        inside = all_hold(k, *conditions)
        place = Index(k, k.add(ops.word_where, inside, place.id, self.point.id))
        value = k.load(source, (start + place).id)
        return k.add(ops.where, inside, value, k.constant(0.0))

    def _moved(self, index: Index, by: int, size: Index) -> tuple[Index, int | None]:
        """An index some steps further on, and whether it is in the grid, unless it must be."""
        if not by:
            return index, None
        if self.mode == "wrap":
            far = Index(self.k, self.k.word(abs(by))) % size
            return (index + (far if by > 0 else size - far)) % size, None
        if by > 0:
            return index + by, (index + by).below(size)
        return index - -by, self.k.add(ops.logical_not, index.below(-by))

    def store(self, results: Sequence[tuple[Buffer, Index, int]]) -> None:
        """Write values to buffers, if the invocation has an element; indices count from there."""
        k = self.k

        def put() -> None:
            for buffer, first, value in results:
                k.store(buffer, (first + Index(k, k.cell)).id, value)

        k.when(Index(k, k.cell).below(Index(k, k.count)), put)


@dataclass(frozen=True)
class Neighbourhood:
    """The program of ``y``: a formula of the numbers of ``u`` at some offsets from each element.

    With a ``reverse`` formula it reads ``dy`` as well, and writes ``slopes`` (offsets, elements):
    what each of these numbers gets as a cotangent.
    """

    offsets: tuple[Offset, ...]
    mode: Mode
    value: Formula
    reverse: Formula | None = None

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "neighbourhood")
        u, grid = k.buffer("u", "read"), _Grid(k, self.mode)
        neighbours = [grid.load(u, offset) for offset in self.offsets]
        (result,) = self.value(k, *neighbours)
        start = Index(k, k.word(0))
        results = [(k.buffer("y", "write"), start, result)]
        if self.reverse is not None:
            cotangent = k.load(k.buffer("dy", "read"), grid.point.id)
            slopes, count = k.buffer("slopes", "write"), Index(k, k.count)
            for n, slope in enumerate(self.reverse(k, *neighbours, cotangent)):
                results.append((slopes, count * n, slope))
        grid.store(results)
        return k


@dataclass(frozen=True)
class Gathered:
    """The program of ``du``: the sum of what each element got as a neighbour of others."""

    offsets: tuple[Offset, ...]
    mode: Mode

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "gathered")
        slopes, grid = k.buffer("slopes", "read"), _Grid(k, self.mode)
        total, count = k.constant(0.0), Index(k, k.count)
        for n, (down, right) in enumerate(self.offsets):
            slope = grid.load(slopes, (-down, -right), count * n)
            total = slope if not n else k.add(ops.add, total, slope)
        grid.store([(k.buffer("du", "write"), Index(k, k.word(0)), total)])
        return k


# --- the work -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stencil:
    """The work of a stencil: see `symgrad.tensor.kernel.Work`."""

    name: str
    offsets: tuple[Offset, ...]
    mode: Mode
    value: Formula
    reverse: Formula

    arguments = ("u",)
    cotangents = ("cotangent",)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shape of u: see `Work`."""
        (u,) = map(tuple, shapes)
        if len(u) < 2:
            raise InputError(f"u has shape {u}: (..., rows, columns) is needed")
        return [u]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call: see `Work`."""
        u, count = tuple(shapes[0]), math.prod(shapes[0])
        words = ("rows", u[-2]), ("columns", u[-1])
        inputs, outputs, scratch = [Array("u", u)], [Array("y", u)], list[Array]()
        bound, back = [("u", "u"), ("y", "y")], kind == "vjp"
        if back:
            inputs.append(Array("cotangent", u))
            outputs.append(Array("du", u))
            scratch.append(Array("slopes", (len(self.offsets), *u)))
            bound += [("dy", "cotangent"), ("slopes", "slopes")]
        program = Neighbourhood(self.offsets, self.mode, self.value, self.reverse if back else None)
        steps = [each_of(program, device_target, bound, count, words)]
        if back:
            gather, arrays = Gathered(self.offsets, self.mode), ("slopes", "du")
            pairs = list(zip(arrays, arrays, strict=True))
            steps.append(each_of(gather, device_target, pairs, count, words))
        name = f"{self.name}_{kind}"
        return Launch(name, tuple(inputs), tuple(outputs), tuple(scratch), tuple(steps))

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """A launch: see `Work`."""
        return launched(self, kind, shapes, backend, options)


# --- the verb -------------------------------------------------------------------------------------


def stencil(
    f: Callable[[Any], Any],
    offsets: Sequence[Sequence[int]],
    *,
    mode: Mode = "constant",
    name: str | None = None,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
) -> TensorKernel:
    """The kernel of a function of the neighbours of every element of a grid, with its gradient.

    ``run(u)`` takes u (..., rows, columns), one grid or many, and gives, of the same shape,
    ``f([u[i + di, j + dj] for di, dj in offsets])`` at every i, j. ``vjp(u, dy)`` gives that and
    the gradient by u. f is traced once, as a function of an array (neighbours,) that returns one
    number, of symgrad's or NumPy's operations; nothing need be linear in it.

    Args:
        f: the function.
        offsets: pairs (rows down, columns to the right) of whole numbers, each once.
        mode: what stands beyond the edges, in the words of ``scipy.ndimage``: "constant" for
            zeros, "wrap" for the opposite side, as on a torus.
        name: what the kernel is called; by default as f is.
        device: as for `linear`.
        math: as for `linear`.
        dtype: as for `linear`.

    Raises:
        InputTypeError: if f is no function. InputError: for offsets that are no pairs of whole
            numbers, or are there twice, and of ``run`` for a u with fewer than two axes.
        TraceError: if f cannot be traced, or returns something else than one number.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> heat = sg.stencil(lambda v: v[0] + 0.1 * (v[1:].sum() - 4.0 * v[0]),
        ...                   [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], device="cpu")
        >>> u = np.zeros((3, 3)); u[1, 1] = 1.0
        >>> heat.run(u).round(2).tolist()
        [[0.0, 0.1, 0.0], [0.1, 0.6, 0.1], [0.0, 0.1, 0.0]]
        >>> y, (du,) = heat.vjp(u, np.ones((3, 3)))
        >>> du[0].round(2).tolist()  # what leaves through the edges is lost
        [0.8, 0.9, 0.8]
    """
    if not callable(f):
        raise InputTypeError(f"f={f!r}: a function of an array of neighbours is needed")
    if mode not in get_args(Mode):
        raise InputError(f"mode={mode!r}: use {' or '.join(map(repr, get_args(Mode)))}")
    pairs = _pairs(offsets)
    shown = name or getattr(f, "__name__", "stencil").replace("<lambda>", "stencil")
    options = Options(shown, math=math, dtype=dtype_name(dtype), comments=False)
    names = tuple(f"u{n}" for n in range(len(pairs)))
    formulas = Formulas(partial(_of_neighbours, f), names, options)
    work = Stencil(shown, pairs, mode, formulas.value(), formulas.reverse(names))
    return TensorKernel(work, options, device)


def _of_neighbours(f: Callable[[Any], Any], *neighbours: Any) -> Any:
    """One number of the numbers at all offsets."""
    result = f(array(neighbours))
    if isinstance(result, np.ndarray) and result.ndim == 0:
        result = result.item()
    if isinstance(result, tuple | list | dict | np.ndarray):
        raise TraceError(f"the stencil returned {result!r}: one number is needed")
    return result


def _pairs(offsets: Sequence[Sequence[int]]) -> tuple[Offset, ...]:
    """The offsets, checked."""
    pairs: list[Offset] = []
    for offset in offsets:
        try:
            down, right = (operator.index(n) for n in offset)
        except (TypeError, ValueError):
            raise InputError(
                f"offsets has {offset!r}: pairs of whole numbers are needed, rows down and "
                "columns to the right, as [(0, 0), (-1, 0), (1, 0)]"
            ) from None
        if max(abs(down), abs(right)) > MOST_OFFSET:
            raise InputError(f"offsets has {offset!r}: at most {MOST_OFFSET:,} either way")
        pairs.append((down, right))
    if not pairs:
        raise InputError("offsets is empty: a neighbour at least is needed, as [(0, 0)]")
    if twice := sorted({pair for pair in pairs if pairs.count(pair) > 1}):
        raise InputError(f"offsets has {twice[0]} twice: each neighbour is given once")
    return tuple(pairs)
