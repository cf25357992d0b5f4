"""Products of matrices on a GPU: what a call dispatches, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from symgrad.kernel.language.target import MAX_WORKGROUPS, WorkgroupTarget
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.epilogue import Epilogue, FinishProgram
from symgrad.kernel.skeletons.matmul import ARGUMENTS, MatmulProgram
from symgrad.kernel.skeletons.tiles import Batch, Operand, Problem, chosen, groups_of
from symgrad.tensor.dispatches import column_sums, each_of, sums_of
from symgrad.tensor.shapes import Shape

BEHIND: Final = {"run": (), "keep": (), "vjp": ("cotangent",), "kept": ("cotangent", "kept")}
"""The arrays behind the arguments of calls, by their kinds."""


@dataclass(frozen=True)
class Epilogues:
    """Epilogues of sums: by the kinds of calls, and nothing, for gradients.

    ``keep`` gives also what the activation is of, and ``kept`` begins with that. Of an
    ``identity``, the slope is the cotangent itself.
    """

    run: Epilogue
    keep: Epilogue
    vjp: Epilogue
    kept: Epilogue
    none: Epilogue
    identity: bool

    def of(self, kind: str) -> Epilogue:
        """The epilogue of a kind of call."""
        return {"run": self.run, "keep": self.keep, "vjp": self.vjp, "kept": self.kept}[kind]


@dataclass(frozen=True)
class Layer:
    """A layer: ``f(a b + bias)`` of the ``arguments``, b being ``transposed`` or not."""

    name: str
    arguments: tuple[str, ...]
    transposed: bool
    epilogues: Epilogues


@dataclass(frozen=True)
class Matrix:
    """An operand of a product in memory: neighbours are numbers ``along`` the reduction, or not."""

    name: str
    along: bool
    batch: Batch


class Steps:
    """The dispatches of a call on a GPU."""

    def __init__(
        self,
        work: Layer,
        kind: str,
        shapes: Sequence[Shape],
        p: Problem,
        result: Shape,
        itemsize: int,
    ) -> None:
        self.work, self.kind, self.p, self.itemsize = work, kind, p, itemsize
        names = [*work.arguments, *BEHIND[kind]]
        self.inputs = [Array(n, tuple(s)) for n, s in zip(names, shapes, strict=True)]
        self.scratch: list[Array] = []
        self.dispatches: list[Dispatch] = []
        self.outputs = [Array("result", result)]
        {"run": self._run, "keep": self._keep, "vjp": self._vjp, "kept": self._from_kept}[kind]()
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
        self._forward(self._bound())

    def _keep(self) -> None:
        self.outputs.append(Array("kept", self.outputs[0].shape))
        self._forward(self._bound() | {"kept": "kept"})

    def _vjp(self) -> None:
        """Where columns of the slope can be summed as it is made, they are."""
        e, p, slope, bound = self.work.epilogues, self.p, "cotangent", self._bound()
        tiles, splits = chosen(p.m, p.n, p.k, p.batch, self.itemsize)
        sums, epilogue = None, e.vjp if self._has_bias or not e.identity else e.run
        if not e.identity:
            slope = self._scratch("slope", self.size)
            bound["slope"] = slope
        if "gradient" in epilogue.computation.graph.names:
            bound["gradient"] = "cotangent"
        if self._has_bias and splits == 1:
            rows = p.batch * -(-p.m // tiles.rows)
            sums = self._scratch("sums", rows * p.n), rows
            bound["sums"] = "sums"
        self._product(self.a, self.b, p, epilogue, bound)
        self._backward(slope, sums or (slope, p.batch * p.m))

    def _from_kept(self) -> None:
        slope = self._scratch("slope", self.size)
        arrays = {"parts": "kept", "gradient": "cotangent", "result": "result", "slope": slope}
        self._finish(FinishProgram(self.work.epilogues.kept), arrays, self.p)
        self._backward(slope, (slope, self.p.batch * self.p.m))

    @property
    def size(self) -> int:
        """The numbers of the result."""
        return self.p.batch * self.p.m * self.p.n

    def _bound(self) -> dict[str, str]:
        """The arrays of the forward pass's epilogue."""
        return {"result": "result"} | ({"bias": self.work.arguments[2]} if self._has_bias else {})

    @property
    def _has_bias(self) -> bool:
        return len(self.work.arguments) == 3

    def _forward(self, bound: dict[str, str]) -> None:
        self._product(self.a, self.b, self.p, self.work.epilogues.of(self.kind), bound)

    def _backward(self, slope: str, sums: tuple[str, int]) -> None:
        """The gradients of all arguments; that of the bias is the sum of so many rows."""
        arguments = self.inputs[: len(self.work.arguments)]
        outputs = [Array(f"d_{a.name}", a.shape) for a in arguments]
        self.outputs += outputs
        self._gradients(slope)
        if self._has_bias:
            dispatches, scratch = column_sums(*sums, self.p.n, outputs[2].name, WorkgroupTarget())
            self.dispatches += dispatches
            self.scratch += scratch

    def _gradients(self, slope: str) -> None:
        """The gradients of the operands, from the slope of their product."""
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
        target = f"d_{name}" if whole else self._scratch(f"each_{name}", p.batch * size)
        self._product(a, b, p, self.work.epilogues.none, {"result": target})
        if not whole and batch.each > 1:
            last = outer == 1
            destination = (
                f"d_{name}" if last else self._scratch(f"some_{name}", outer * batch.count * size)
            )
            self._sums(target, p.batch, size, batch.each, destination)
            target = destination
        if outer > 1:
            self._sums(target, outer, batch.count * size, outer, f"d_{name}")

    def _scratch(self, name: str, size: int) -> str:
        self.scratch.append(Array(name, (size,)))
        return name

    # dispatches ----------------------------------------------------------------------------------

    def _product(
        self, a: Matrix, b: Matrix, p: Problem, epilogue: Epilogue, bound: dict[str, str]
    ) -> None:
        """Products, and what comes after them."""
        tiles, splits = chosen(p.m, p.n, p.k, p.batch, self.itemsize)
        groups = groups_of(tiles, p.m, p.n) * p.batch * splits
        edges = bool(p.m % tiles.rows or p.n % tiles.columns) or groups > MAX_WORKGROUPS
        first, second = self._operand(a, p.m, p.k), self._operand(b, p.n, p.k)
        parts = (
            {"result": self._scratch(f"parts_{len(self.scratch)}", splits * p.batch * p.m * p.n)}
            if splits > 1
            else bound
        )
        program = MatmulProgram(
            tiles,
            first,
            second,
            self.work.epilogues.none if splits > 1 else epilogue,
            bool(p.k % tiles.depth),
            edges,
            p.n % 4 == 0,
        )
        numbers = self._numbers(p, first, second, splits, -(-p.k // tiles.depth), groups)
        arrays = {"a": a.name, "b": b.name} | parts
        words = tuple(numbers.items())
        dispatch = Dispatch(
            program, program.target, tuple(arrays.items()), groups * tiles.width, groups, words
        )
        self.dispatches.append(dispatch)
        if splits > 1:
            arrays = {"parts": parts["result"]} | bound
            self._finish(FinishProgram(replace(epilogue, summed=""), splits), arrays, p)

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
            p.m,
            p.n,
            p.k,
            rows[0] // many[0],
            rows[1] // many[1],
            p.m * p.k // many[0],
            p.n * p.k // many[1],
            p.a.each,
            p.a.count,
            p.b.each,
            p.b.count,
            splits,
            -(-steps // splits),
            groups,
        )
        return dict(zip(ARGUMENTS, values, strict=True))

    def _sums(self, table: str, rows: int, n: int, each: int, out: str) -> None:
        """The sums of each so many rows."""
        self.dispatches.append(sums_of(table, rows, n, each, out, WorkgroupTarget()))

    def _finish(self, program: FinishProgram, arrays: dict[str, str], p: Problem) -> None:
        """The dispatch of what comes after sums that are in memory."""
        words = ("n", p.n), ("size", p.m * p.n)
        count = p.batch * p.m * p.n
        self.dispatches.append(
            each_of(program, WorkgroupTarget(), list(arrays.items()), count, words)
        )
