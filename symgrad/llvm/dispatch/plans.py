"""Plans of array programs on the CPU: kernels, products and loops as one call of compiled code.

Every step of a plan is an instruction, and arrays have their places, so that nothing of Python runs
between kernels, nor from one iteration of a loop to the next. Kernels that are worth several
threads, and what NumPy does, are left to Python in between: see `symgrad.llvm.dispatch.driver`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from symgrad.arrays.array_loop import AROUND, CARRY, COUNTER, ROW, ArrayLoop
from symgrad.arrays.program import Constant, Input
from symgrad.arrays.scalars import Array
from symgrad.kernel.host import watch
from symgrad.kernel.host.memory import ALIGNMENT_BYTES, POOL
from symgrad.kernel.host.threads import share_out, worth
from symgrad.kernel.launch import Dispatch
from symgrad.kernel.stages.plan import Plan, Segment
from symgrad.kernel.stages.steps import CallStep, HostStep, ProductStep, Side, Step
from symgrad.llvm.compiler import llvm
from symgrad.llvm.device.cpu import NULL, Code, address, at, compile_source, function, pointers
from symgrad.llvm.device.recompile import Function
from symgrad.llvm.dispatch import driver as d
from symgrad.llvm.dispatch.compiled import STAYING_BYTES, kernel_of, placed
from symgrad.llvm.dispatch.driver import WORD, Argument, Assembly, Fixed, Moving, Place, Root
from symgrad.values.arrays import host_dtype

BUDGET: Final = 2**31
"""The cost in additions of what loops do until Python may look for signals."""

SMALL_PRODUCT: Final = 2**18
"""Products of numbers that OpenBLAS does in the thread that calls it."""

PIECE: Final = 64
"""A side of such a product that has all sides alike."""

LINES: Final = 16
"""Rows, columns and terms come in so many, but for the last ones."""

MULTIPLIED: Final = 2
"""Products of numbers, each with a sum, for the cost of an addition."""

Form = tuple[tuple[int, ...], np.dtype[Any]]
"""A shape and a dtype."""


@dataclass(frozen=True)
class Hosted:
    """A step that NumPy does, and the forms of what it reads and writes."""

    step: HostStep
    reads: Sequence[Form]
    writes: Sequence[Form]

    def run(self, addresses: Sequence[int]) -> None:
        """Do it, on arrays at these addresses."""
        reads, writes = addresses[: len(self.reads)], addresses[len(self.reads) :]
        given = [at(place, *form) for place, form in zip(reads, self.reads, strict=True)]
        results = self.step.run(given)
        for place, form, values in zip(writes, self.writes, results, strict=True):
            at(place, *form)[...] = np.reshape(values, form[0])


class Shared(NamedTuple):
    """Invocations of a kernel that several threads do, in groups of so many."""

    entry: Callable[..., None]
    workspace: Callable[[], Any]
    cells: int
    width: int
    threads: int

    def run(self, given: Any) -> None:
        """Do it, with what the kernel takes at an address."""
        entry, workspace, *how = self

        def some(first: int, end: int) -> None:
            entry(given, workspace(), first, end)

        share_out(some, *how)


class PlanAssembly(Assembly):
    """Instructions of a plan, and what Python does between them."""

    def __init__(self, math: str, dtype: str) -> None:
        super().__init__()
        self.math, self.dtype = math, dtype
        self.dtypes = {"f": host_dtype(dtype), "i": np.dtype(np.int32)}
        self.shared: list[Shared] = []
        self.hosted: list[Hosted] = []
        self.fixed: list[Fixed] = []
        self.entries: list[tuple[int, Function]] = []
        """The words that are addresses of kernels."""

    def nbytes(self, array: Array) -> int:
        """The bytes of an array."""
        return array.size * self.dtypes[array.kind].itemsize

    def share(self, shared: Shared, given: Sequence[int | Place | None], weight: int) -> None:
        """Write the instruction of a kernel that several threads do."""
        self.shared.append(shared)
        self.emit(d.SHARED, len(self.shared) - 1, *given, weight=weight)

    def constant(self, array: Constant) -> Place:
        """Where numbers that are known stand."""
        self.fixed.append(Fixed(np.ascontiguousarray(array.data, self.dtypes[array.kind])))
        return self.fixed[-1].place


class Writer:
    """Writes the instructions of a plan whose inputs have ``places``, as some outputs may."""

    def __init__(self, assembly: PlanAssembly, plan: Plan, places: dict[Array, Place]) -> None:
        self.assembly, self.plan, self.places = assembly, plan, places
        places |= {c: assembly.constant(c) for c in plan.program.constants}

    def write(self) -> None:
        """Write all of them."""
        for part in self.plan.parts:
            if isinstance(part, Segment):
                part.launch.verify()
                for step, dispatch in zip(part.steps, part.launch.dispatches, strict=True):
                    if dispatch.number_of_groups:
                        self._dispatch(step, dispatch)
            elif isinstance(part, CallStep) and part in self.plan.bodies:
                LoopWriter(self, part).write()
            elif not (isinstance(part, ProductStep) and self._product(part)):
                self._host(part)

    def place(self, array: Array) -> Place | None:
        """Where an array stands, or will; nowhere if it has no elements."""
        if not array.size:
            return None
        if array not in self.places:
            self.places[array] = self.assembly.new(self.assembly.nbytes(array))
        return self.places[array]

    def stored(self, array: Array) -> Place:
        """Where an array with elements stands, or will."""
        place = self.place(array)
        assert place is not None, "it has elements"
        return place

    def _dispatch(self, step: Step, dispatch: Dispatch) -> None:
        a = self.assembly
        planned = kernel_of(dispatch, a.math, a.dtype, packed=True).planned(dispatch)
        kernel, arrays = planned.function, dict((*step.reads, *step.writes))
        given = [*(self.place(arrays[b.name]) for b, _ in dispatch.bound), *planned.words]
        if planned.threads > 1:
            entry, workspace = function(d.ENTRY, kernel.entry), kernel.own_workspace
            shared = Shared(entry, workspace, planned.cells, planned.width, planned.threads)
            a.share(shared, given, planned.weight)
            return
        workspace = a.new(kernel.workspace) if kernel.workspace else None
        start = a.emit(d.CALL, 0, workspace, planned.cells, *given, weight=planned.weight)
        a.entries.append((start + 2, kernel))

    def _host(self, step: HostStep) -> None:
        a, groups = self.assembly, (step.inputs, step.writes)
        forms = [[(x.shape, a.dtypes[x.kind]) for x in group] for group in groups]
        a.hosted.append(Hosted(step, *forms))
        a.emit(d.HOST, len(a.hosted) - 1, *(self.place(x) for group in groups for x in group))

    def _product(self, step: ProductStep) -> bool:
        """Write products as calls of the BLAS of NumPy, if it takes factors as they stand.

        BLAS has matrices by columns, for which these are transposed, and so is their product.
        """
        parts = list(step.sides) if blas(self.assembly.dtypes["f"].char) else []
        if not parts or not step.writes[0].size:
            return False
        (_, (_, rows, depth)), (_, (_, columns, down)) = parts[0]
        if _laid(columns, down) is None or _laid(rows, depth) is None or not depth[0]:
            return False
        for n, part in enumerate(parts):
            self._part_of_product(step, *part, n * (step.writes[0].size // len(parts)))
        return True

    def _part_of_product(self, step: ProductStep, lhs: Side, rhs: Side, to: int) -> None:
        """Write the products of a part of a batch, whose results stand from a number on."""
        (begin, (left, rows, depth)), (start, (right, columns, down)) = lhs, rhs
        a, dtype = self.assembly, self.assembly.dtypes["f"]
        first, second = _laid(columns, down), _laid(rows, depth)
        assert first and second, "a BLAS takes them"
        size, many, sizes = dtype.itemsize, left[0], (rows[0], columns[0], depth[0])
        places = [
            self.stored(step.right.array).behind(start * size),
            self.stored(step.left.array).behind(begin * size),
            self.stored(step.writes[0]).behind(to * size),
        ]
        pieces = _pieces(sizes)
        lines = -(-rows[0] // pieces[0]) * pieces[0]
        moves = rows[1], depth[1], columns[1], down[1], columns[0], 1
        each = right[1], left[1], rows[0] * columns[0]
        one = int.from_bytes(np.ones((), dtype).tobytes(), "little")
        given = [
            blas(dtype.char), ord("T" if first[0] else "N"), ord("N" if second[0] else "T"), one,
            places[0], first[1], places[1], second[1], places[2], columns[0],
            *pieces, *sizes, lines, *(n * size for n in (*moves, *each)),
        ]  # fmt: skip
        weight, cells = many * prod(sizes) // MULTIPLIED, many * lines
        threads = worth(weight, ALIGNMENT_BYTES // size)
        entry = _driver()[0].entry
        if threads > 1 and pieces[0] < cells:
            shared = Shared(function(d.ENTRY, entry), lambda: NULL, cells, pieces[0], threads)
            a.share(shared, given, weight)
        else:
            a.emit(d.CALL, entry, None, cells, *given, weight=weight)


def _pieces(sizes: tuple[int, int, int]) -> list[int]:
    """The rows, columns and terms that BLAS multiplies at a time.

    OpenBLAS does small products in the thread that calls it, and large ones by threads that spin
    where others are at work. Pieces are cubes where the product has such sides.
    """
    pieces = [min(n, PIECE) for n in sizes]
    for side in (2, 1, 0):
        room = SMALL_PRODUCT // (prod(pieces) // pieces[side])
        pieces[side] = min(sizes[side], max(pieces[side], room // LINES * LINES))
    return [
        min(n, -(-n // -(-n // p) // LINES) * LINES) for n, p in zip(sizes, pieces, strict=True)
    ]


def _laid(outer: tuple[int, int], inner: tuple[int, int]) -> tuple[bool, int] | None:
    """Whether a matrix stands by rows rather than by columns, and the step from one to the next.

    Axes are given as their lengths and steps; None where neither is so.
    """
    (n, by), (m, along) = outer, inner
    if (along == 1 or m == 1) and (by >= m or n == 1):
        return True, max(by, m)
    if (by == 1 or n == 1) and (along >= n or m == 1):
        return False, max(along, n)
    return None


@functools.cache
def blas(kind: str) -> int:
    """The function that multiplies matrices of floats f or d, of the BLAS that NumPy has, or 0.

    All its arguments are addresses, so that its integers may have 32 bits or 64.
    """
    name = "dgemm" if kind == "d" else "sgemm"
    homes = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
    for home in filter(None, map(sys.modules.get, homes)):
        llvm().load_library_permanently(home.__file__)
    symbols = (f"scipy_{name}_64_", f"{name}_64_", f"{name}_")
    return next(filter(None, map(llvm().address_of_symbol, symbols)), 0)


class LoopWriter:
    """Writes the instructions of a loop.

    A carry has two places in turns, of what an iteration begins with, and of what the next one
    does. Where all of them are kept they stand one behind the other instead.
    """

    def __init__(self, around: Writer, step: CallStep) -> None:
        _, plan = around.plan.bodies[step]
        self._around, self._assembly, self._program = around, around.assembly, plan.program
        self._inner = Writer(around.assembly, plan, {})
        self._operands, self._results = step.call.operands, step.results
        self._loop: ArrayLoop = step.call.options[0]
        self._moving: list[Moving] = []
        self._at_begin: list[tuple[Any, ...]] = []
        self._at_end: list[tuple[Place, Array, Any]] = []
        """Copies of each iteration, and after the loop: to where, of what, and how many bytes."""
        self._after: list[tuple[Place, Place, int]] = []

    def write(self) -> None:
        """Write all of them."""
        a, loop, inner = self._assembly, self._loop, self._inner
        counter = a.new(WORD)
        given = list(zip(self._program.inputs, loop.roles, self._operands, strict=True))
        for x, role, operand in given:
            if role == COUNTER:
                inner.places[x] = counter
            elif x.size and role == AROUND:
                inner.places[x] = self._around.stored(operand)
            elif x.size and role == ROW and loop.count:
                self._read_row(x, operand)
        pairs = [(x, operand) for x, role, operand in given if role == CARRY]
        carries = [self._carry(j, *pair) if pair[0].size else None for j, pair in enumerate(pairs)]
        for j, carry in enumerate(carries):
            if carry is not None:
                self._becomes(self._program.outputs[j], carry[1].place)
        for r in range(loop.carries, len(self._program.outputs)):
            if r in self._results and self._results[r].size and not self._is_kept(r):
                self._write_row(self._program.outputs[r], self._results[r])
        order = (loop.count - 1, -1) if loop.reverse else (0, 1)
        first = carries[0] if loop.tested else None
        tests = (pairs[0][0].size, first[0].place) if first is not None else (0, None)
        with a.loop(loop.count, self._moving, counter, order, *tests):
            for copy in self._at_begin:
                a.copy(*copy)
            inner.write()
            for to, array, how in self._at_end:
                a.copy(to, inner.stored(array), *how)
        for copy in self._after:
            a.copy(*copy)

    def _move(self, base: Place, stride: int, phase: int = 0, mask: int = -1) -> Moving:
        self._moving.append(Moving(base, stride, phase, mask))
        return self._moving[-1]

    # carries -------------------------------------------------------------------------------------

    def _is_kept(self, r: int) -> bool:
        """Whether a result is all values that a carry begins with, one behind the other."""
        roles = dict[Array, str](zip(self._program.inputs, self._loop.roles, strict=True))
        return not self._loop.axis and roles.get(self._program.outputs[r]) == CARRY

    def _carry(self, j: int, x: Array, operand: Array) -> tuple[Moving, Moving]:
        """The places of a carry, and of the next one; where it is after the loop is noted."""
        a, loop, around = self._assembly, self._loop, self._around
        nbytes, count, results = a.nbytes(x), loop.count, self._results
        kept = [r for r, y in enumerate(self._program.outputs) if y is x and r >= loop.carries]
        kept = [r for r in kept if r in results and results[r].size and self._is_kept(r)]
        if kept:
            space, stride, mask = a.new((count + 1) * nbytes), nbytes, -1
            base = space.behind(count * nbytes) if loop.reverse else space
            stride = -nbytes if loop.reverse else nbytes
            for r in kept:
                begins = space.behind(nbytes) if loop.reverse else space
                self._ends(results[r], begins, count * nbytes)
        else:
            stride = -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            base, mask = a.new(2 * stride), 1
        current, following = (self._move(base, stride, phase, mask) for phase in (0, 1))
        a.copy(base, around.stored(operand), nbytes)
        self._inner.places[x] = current.place
        if j in results:
            last = current.place if loop.tested else base.behind(stride * (count & mask))
            self._ends(results[j], last, nbytes, moves=loop.tested)
        return current, following

    def _ends(self, result: Array, place: Place, nbytes: int, moves: bool = False) -> None:
        """Have a result stand at a place, where it is after the loop, or copied from it."""
        if moves or result in self._around.places:
            self._after.append((self._around.stored(result), place, nbytes))
        else:
            self._around.places[result] = place

    def _becomes(self, array: Array, place: Place) -> None:
        """Have what the body computes be written to a place, or copied there."""
        if isinstance(array, Input | Constant) or array in self._inner.places:
            self._at_end.append((place, array, (self._assembly.nbytes(array),)))
        else:
            self._inner.places[array] = place

    # rows ----------------------------------------------------------------------------------------

    def _rows(self, row: Array, whole: Place) -> tuple[Place, int, int, int]:
        """Where a row begins in each iteration; the bytes of a piece, how many, and their step."""
        loop, nbytes = self._loop, self._assembly.nbytes(row)
        times = prod(row.shape[: loop.axis])
        piece = nbytes // times
        base = whole.behind((loop.count - 1) * piece) if loop.reverse else whole
        moving = self._move(base, -piece if loop.reverse else piece)
        return moving.place, piece, times, loop.count * piece

    def _read_row(self, x: Array, operand: Array) -> None:
        at, piece, times, step = self._rows(x, self._around.stored(operand))
        if times == 1:
            self._inner.places[x] = at
            return
        self._inner.places[x] = self._assembly.new(piece * times)
        self._at_begin.append((self._inner.places[x], at, piece, times, (piece, step)))

    def _write_row(self, y: Array, result: Array) -> None:
        whole = self._around.stored(result)
        self._assembly.touch(whole)
        at, piece, times, step = self._rows(y, whole)
        if times == 1:
            self._becomes(y, at)
        else:
            self._at_end.append((at, y, (piece, times, (step, piece))))


# --- calls ----------------------------------------------------------------------------------------


@functools.cache
def _driver() -> tuple[Code, Any]:
    """The code that runs instructions and multiplies, and its function for the former."""
    source = d.driver()
    code = compile_source(source)
    return code, function(source.kind, code.address)


@dataclass
class State:
    """The instructions of a call that is running, in which addresses are those of that call."""

    words: np.ndarray
    pointers: Any
    code: Any
    memory: np.ndarray | None = None


class CompiledPlan:
    """A plan that is compiled for the CPU. Any number of threads may run it."""

    def __init__(self, plan: Plan, math: str, dtype: str) -> None:
        a, program = PlanAssembly(math, dtype), plan.program
        self._given = [(x.number, Argument()) for x in program.inputs]
        places = {x: root.place for x, (_, root) in zip(program.inputs, self._given, strict=True)}
        own = [y for y in dict.fromkeys(program.outputs) if y.size and y not in places]
        self._outputs = [
            (y, a.dtypes[y.kind], Argument()) for y in own if not isinstance(y, Constant)
        ]
        places |= {y: root.place for y, _, root in self._outputs}
        Writer(a, plan, places).write()
        a.finish()
        self.weight = a.weight
        """The cost of a call, in additions."""
        self._plan, self._assembly, self._idle = plan, a, list[State]()
        spans = [(s.nbytes, s.first, s.last) for s in a.scratch]
        starts, self._nbytes = placed(spans)
        self._words = np.array(a.words, np.int64)
        cells = [(n, at + k) for s, at in zip(a.scratch, starts, strict=True) for n, k in s.cells]
        self._scratch = np.array(cells, np.int64).reshape(-1, 2).T
        self._hot = [(n, kernel) for n, kernel in a.entries if kernel.may_improve]
        for root in a.fixed:
            self._point(pointers(self._words), root, root.numbers)
        for n, kernel in a.entries:
            self._words[n] = kernel.entry

    @staticmethod
    def _point(words: Any, root: Root, array: np.ndarray) -> None:
        """Note where an array stands."""
        if root.cells:
            start = address(array)
            for n, offset in root.cells:
                words[n] = start + offset

    def _state(self) -> State:
        """Instructions for a call."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        words = self._words.copy()
        return State(words, pointers(words), address(words))

    def _allot(self, state: State) -> None:
        """Give a call memory to work in."""
        if state.memory is None and self._nbytes:
            state.memory = POOL.empty((self._nbytes,), np.dtype(np.uint8))
            cells, offsets = self._scratch
            state.words[cells] = offsets + state.memory.__array_interface__["data"][0]

    def run(self, inputs: Sequence[np.ndarray]) -> dict[Array, np.ndarray]:
        """The arrays that are computed for the outputs, in memory of their own."""
        state, results = self._state(), dict[Array, np.ndarray]()
        self._allot(state)
        for number, root in self._given:
            self._point(state.pointers, root, inputs[number])
        for y, dtype, root in self._outputs:
            results[y] = POOL.empty(y.shape, dtype, aligned=False)
            self._point(state.pointers, root, results[y])
        if self._hot:
            self._drive_timed(state)
        else:
            self._drive(state)
        if self._nbytes > STAYING_BYTES:
            state.memory = None
        self._idle.append(state)
        return results

    def _drive_timed(self, state: State) -> None:
        """Run all instructions, and look for better code of kernels that may have some."""
        for n, kernel in self._hot:
            state.words[n] = kernel.entry
        start = time.perf_counter()
        self._drive(state)
        seconds = (time.perf_counter() - start) / len(self._hot)
        for _, kernel in self._hot:
            kernel.spend(seconds)

    def _drive(self, state: State) -> None:
        """Run all instructions."""
        drive: Callable[..., Any] = watch.code(_driver()[1])
        words, place = state.words, 0
        while True:
            place = drive(state.code, place, BUDGET)
            at = place // WORD
            operation, size, number = words[at : at + 3].tolist()
            if operation == d.END:
                return
            if operation == d.SHARED:
                self._assembly.shared[number].run(state.code + (place + 3 * WORD))
            elif operation == d.HOST:
                self._assembly.hosted[number].run(words[at + 3 : at + size // WORD].tolist())
            place += size if operation != d.REPEAT else 0
