"""The work of a call, as data that every back end takes: programs, arrays, sizes, arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.expr.graph.node import Op
from symgrad.kernel.language.execute import POISON, execute
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.statements import BOUND, Buffer, Call, For, If, Routine, Scope
from symgrad.kernel.passes.split import Iterations
from symgrad.kernel.shapes import Reduction
from symgrad.kernel.stats import GUESSED_ITERATIONS
from symgrad.values.arrays import host_dtype, memory_dtype

Read = Callable[[str], np.ndarray]
"""Reads the numbers of an array of a launch, by its name, as the last call has left them."""

Total = Callable[[Sequence[np.ndarray], Read], np.ndarray]
"""Adds up, in float64, the outputs of a call, which are partial sums; it may read more arrays."""

Program = Callable[[Any], KernelIR]
"""Writes a kernel for a target: hashable, and if launches are to pickle, it does."""

CACHED_KERNELS: Final = 64
"""Kernels that are cached as they were written."""

LARGEST_WORD: Final = 2**32 - 1

SAME_BITS: Final = {"i", "u"}
"""Kinds of numbers that a kernel may take for each other: an integer is the word of its bits."""

_kernels: Once[Any, KernelIR] = Once(CACHED_KERNELS)


@dataclass(frozen=True)
class Size:
    """The length of an axis that each call gives."""

    name: str

    def __repr__(self) -> str:
        return self.name


BATCH: Final = Size("batch")
"""How many points a call has, of which each is computed by itself."""

ROWS: Final = Size("rows")
"""How many rows of data each point has."""

STEPS: Final = Size("steps")
"""How many steps are done of each point: see `Until`."""


@dataclass(frozen=True)
class Array:
    """An array of a launch: its numbers are of one kind of `kernel.language.statements.KINDS`.

    Its ``floats`` may be of a dtype with fewer digits than the kernels'.
    """

    name: str
    shape: tuple[int | Size, ...]
    kind: str = "f"
    floats: str = field(default="", repr=False)

    @property
    def has_batch(self) -> bool:
        """Whether one of its axes is that of the batch."""
        return BATCH in self.shape

    @property
    def by_columns(self) -> bool:
        """Whether the same numbers of neighbouring points of a batch are neighbours."""
        return self.has_batch and self.shape[0] != BATCH

    def of(self, batch: int, rows: int | None = None) -> tuple[int, ...]:
        """The lengths of its axes, for a batch of so many points of so many rows each."""
        if rows is None:
            return tuple([batch if isinstance(n, Size) else n for n in self.shape])
        lengths = {BATCH: batch, ROWS: rows}
        return tuple([lengths[n] if isinstance(n, Size) else n for n in self.shape])

    @property
    def size(self) -> int:
        """How many numbers it has; with the axis of a batch, for each of its points."""
        return math.prod(self.of(1))

    def dtype(self, floats: Any) -> np.dtype[Any]:
        """The type of its numbers in memory, where the kernels' are such ``floats``."""
        if self.floats:
            return memory_dtype(self.floats)
        kinds = {"f": floats, "d": np.float64, "i": np.int32, "u": np.uint32}
        return np.dtype(kinds[self.kind])


@dataclass(frozen=True)
class Part:
    """Numbers of an array that stand in a row: ``size`` of them, from number ``first`` on."""

    array: str
    first: int
    size: int

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The part of an array in C order, as a view."""
        return numbers.reshape(-1)[self.first : self.first + self.size]

    def meets(self, other: Part) -> bool:
        """Whether they have a number in common."""
        apart = self.first + self.size <= other.first or other.first + other.size <= self.first
        return self.array == other.array and not apart


@dataclass(frozen=True)
class Dispatch:
    """One kernel over so many invocations: what writes it, and what it is given.

    ``program`` writes it for ``target``, whose width is that of its groups. ``arrays`` are pairs of
    a buffer's name in the kernel and an array's name in the launch, or a part of that array. There
    are ``groups`` of invocations, or, where it is 0, as many as ``count`` takes; more invocations
    than ``count`` have nothing to do, which the kernel sees to. A ``count`` of `BATCH` is an
    invocation a point, and so many ``groups`` are a group a point. ``arguments`` are pairs of a
    name and a word, or the size that it is. ``cost`` is what an invocation costs, in additions, if
    that is known better than by counting.
    """

    program: Program
    target: Target
    arrays: tuple[tuple[str, str | Part], ...]
    count: int | Size
    groups: int | Size = 0
    arguments: tuple[tuple[str, int | Size], ...] = ()
    cost: int = 0

    @cached_property
    def kernel(self) -> KernelIR:
        """The kernel, which is written once for all launches."""
        return _kernels.get((self.program, self.target), lambda: self.program(self.target))

    def __reduce__(self) -> Any:
        sizes = self.count, self.groups, self.arguments, self.cost
        return type(self), (self.program, self.target, self.arrays, *sizes)

    def at(self, batch: int, rows: int = 1, steps: int = 1) -> Dispatch:
        """The dispatch for a batch of so many points, with so many rows each."""
        if not isinstance(self.count, Size):
            return self
        sizes = {BATCH: batch, ROWS: rows, STEPS: steps}
        words = tuple((a, sizes[n] if isinstance(n, Size) else n) for a, n in self.arguments)
        groups = batch if isinstance(self.groups, Size) else self.groups
        return replace(self, count=batch, groups=groups, arguments=words)

    @property
    def invocations(self) -> int:
        """How many invocations have something to do, where no batch says it."""
        assert isinstance(self.count, int), f"the size of the {self.count} is not known"
        return self.count

    @property
    def number_of_groups(self) -> int:
        """The groups that run."""
        assert isinstance(self.groups, int), f"the size of the {self.groups} is not known"
        return self.groups or -(-self.invocations // self.target.width)

    @property
    def bound(self) -> list[tuple[Buffer, str]]:
        """The kernel's buffers that arrays are bound to, in its order, and the arrays' names."""
        names = self.names
        buffers = (b for b in self.kernel.buffers if b.space in BOUND and b.data is None)
        return [(b, names[b.name]) for b in buffers]

    @property
    def names(self) -> dict[str, str]:
        """The names of arrays, by the buffers' names."""
        return {b: a.array if isinstance(a, Part) else a for b, a in self.arrays}

    @property
    def parts(self) -> dict[str, Part]:
        """The parts of arrays that are bound alone, by the buffers' names."""
        return {b: a for b, a in self.arrays if isinstance(a, Part)}

    @property
    def words(self) -> list[int]:
        """The kernel's arguments, in its order."""
        if not self.arguments:
            return []
        words = {name: word for name, word in self.arguments if isinstance(word, int)}
        return [words[name] for name in self.kernel.arguments.values()]

    @cached_property
    def _iterations(self) -> Iterations:
        """The loops' iterations, with sizes and arguments as they are in this dispatch."""
        k, groups = self.kernel, self.number_of_groups
        exact = {k.count: self.invocations, k.groups: groups}
        exact |= zip(k.arguments, self.words, strict=True)
        last = {k.group: groups - 1, k.cell: groups * self.target.width - 1}
        intervals = {i: (word, word) for i, word in exact.items()}
        return Iterations(k, intervals | {i: (0, max(0, word)) for i, word in last.items()})

    @property
    def iterations(self) -> int:
        """Iterations of an invocation in loops, at most."""
        return self._iterations.total

    @property
    def operations(self) -> int:
        """About what an invocation costs, in additions."""
        return self.cost or self._cost(self.kernel.main)

    def _cost(self, scope: Scope) -> int:
        return sum(self._cost_of(item) for item in scope.items)

    def _cost_of(self, item: Any) -> int:
        match item:
            case int():
                op: Op = self.kernel.graph.nodes[item][0]
                return op.cost
            case For():
                iterations = self._iterations.of(item) // self._iterations.each(item)
                trips = iterations if iterations < LARGEST_WORD else GUESSED_ITERATIONS
                return trips * (1 + self._cost(item.scope))
            case If(sides=sides):
                return max(map(self._cost, sides))
            case Call(routine=routine):
                return self._cost(routine.scope)
            case Routine():
                return 0
            case _:
                return 1


@dataclass(frozen=True)
class StepCost:
    """The cost of a step of a point for an invocation: additions, and iterations of its loops.

    A row has ``terms`` that are shared by ``threads`` invocations; each has its own in blocks.
    """

    operations: int
    iterations: int
    row_operations: int = 0
    row_iterations: int = 0
    block_iterations: int = 0
    block: int = 1
    threads: int = 1
    terms: int = 1

    def share(self, rows: int) -> int:
        """How many of so many rows an invocation has at most."""
        return -(-rows * self.terms // self.threads)

    def operations_at(self, rows: int) -> int:
        """About the additions of a point of so many rows."""
        return self.operations + rows * self.row_operations

    def operations_alone(self, rows: int) -> int:
        """About the additions that an invocation does one after the other."""
        return self.operations_at(self.share(rows))

    def iterations_at(self, rows: int) -> int:
        """The iterations of an invocation in loops, at most."""
        share = self.share(rows)
        blocks = -(-share // self.block)
        return self.iterations + share * self.row_iterations + blocks * self.block_iterations


@dataclass(frozen=True)
class Until:
    """A host's policy: the only dispatch of a launch is repeated until nothing is left to do.

    It does `STEPS` steps of each point's state, or fewer where the state's last number, its flag,
    becomes 0. It changes ``states``, an output, which begin as the input ``start``. A host may cut
    the steps as it likes, and ends early where no flag is left. Where groups need not be whole,
    each dispatch adds to the words of ``progress``: the steps done of all points, and how many
    points go on.
    """

    cost: StepCost
    start: str = "start"
    states: str = "states"
    progress: str = "progress"


@dataclass(frozen=True)
class Launch:
    """All that one call runs: its arrays, and the dispatches that compute them, one by one.

    Sizes are numbers, but for that of the batch, if there is one: a launch is of arrays of certain
    shapes. Kernels are the same for all shapes where they take what depends on these by arguments.
    A launch is made once and run often.

    What a host makes of the dispatches and of the outputs is its policy. They are run once, unless
    they are repeated ``until`` nothing is left to do. Outputs that are partial sums have a
    ``total``, which is what `execute` gives, and a launch that is held, while ``run`` of a compiled
    launch gives the outputs as they are. A batch that is too large for a device goes through it in
    chunks.

    Invariants:
      1. No two arrays have one name.
      2. What a dispatch only reads was given, or written by a dispatch before.
      3. What a dispatch writes is no input, and it is bound to no other buffer there.
      4. All outputs are written.
      5. With a batch, all outputs have its axis, and each of its points is computed from the same
         one of the inputs alone, but for inputs without that axis: so parts of a batch may be
         computed one by one. Where the axis is not the first of an array, the host cannot cut it.

    Example:
        >>> from symgrad.expr import ops
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> def doubled(target):
        ...     k = KernelIR(target, "doubled")
        ...     x, y = k.buffer("x", "read"), k.buffer("y", "write")
        ...     value = k.load(x, k.target.point(k))
        ...     inside = k.add(ops.word_lt, k.cell, k.count)
        ...     k.when(inside, lambda: k.store(y, k.cell, k.add(ops.add, value, value)))
        ...     return k
        >>> arrays = (("x", "a"), ("y", "b"))
        >>> twice = Dispatch(doubled, SimdTarget(4, whole=False), arrays, count=3)
        >>> launch = Launch("twice", (Array("a", (3,)),), (Array("b", (3,)),), (), (twice,))
        >>> launch.verify()
        >>> launch.execute([np.array([1.0, 2.0, 3.0])])[0].tolist()
        [2.0, 4.0, 6.0]
    """

    name: str
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    scratch: tuple[Array, ...]
    dispatches: tuple[Dispatch, ...]
    until: Until | None = None
    total: Total | None = None

    @property
    def arrays(self) -> tuple[Array, ...]:
        """All arrays."""
        return *self.inputs, *self.outputs, *self.scratch

    @cached_property
    def has_batch(self) -> bool:
        """Whether the size of a batch is that of each call."""
        return any(a.has_batch for a in self.arrays)

    def at(self, batch: int, rows: int = 1, steps: int = 1) -> Launch:
        """The launch for a batch of so many points, with so many rows and steps each."""
        inputs, outputs, scratch = (
            tuple(replace(a, shape=a.of(batch, rows)) for a in group)
            for group in (self.inputs, self.outputs, self.scratch)
        )
        dispatches = tuple(d.at(batch, rows, steps) for d in self.dispatches)
        return Launch(self.name, inputs, outputs, scratch, dispatches, self.until, self.total)

    def verify(self) -> None:
        """Raise AssertionError with the first fault, if there is one."""
        launch = self.at(1) if self.has_batch else self
        for fault in launch.faults():
            raise AssertionError(f"{self.name}: {fault}")

    def faults(self) -> Iterator[str]:
        """The faults of a launch, in words."""
        arrays = {a.name: a for a in self.arrays}
        if len(arrays) < len(self.arrays):
            yield "two arrays have one name"
        filled = {a.name for a in self.inputs}
        for dispatch in self.dispatches:
            named = list(_unbound(dispatch, arrays))
            yield from named
            if named:
                return
            yield from _misfits(dispatch, arrays)
            yield from self._misused(dispatch, filled)
            filled.update(name for b, name in dispatch.bound if b.space == "write")
        yield from (f"nothing writes {a.name}" for a in self.outputs if a.name not in filled)

    def _misused(self, dispatch: Dispatch, filled: set[str]) -> Iterator[str]:
        """The faults of what a dispatch reads and writes, where these arrays have numbers."""
        bound = dispatch.bound
        inputs, names = {a.name for a in self.inputs}, [name for _, name in bound]
        for b, name in bound:
            if b.space == "read" and name not in filled:
                yield f"{dispatch.kernel.name} reads {name}, which nobody has written"
            if b.space == "write" and name in inputs:
                yield f"{dispatch.kernel.name} writes {name}, an input"
            if b.space == "write" and names.count(name) > 1:
                yield f"{dispatch.kernel.name} writes {name}, which it has as another buffer too"

    def execute(self, inputs: Sequence[np.ndarray], dtype: Any = np.float64, steps: int = 0) -> Any:
        """The outputs or their total, by the NumPy interpreter: `symgrad.kernel.language.execute`.

        So many ``steps`` are done of a launch that is repeated.

        Raises:
            AssertionError: for an index out of bounds, or a race.
        """
        if self.until:
            return [self._repeated(self.until, inputs, dtype, steps)]
        if self.has_batch:
            axis = self.inputs[0].shape.index(BATCH)
            return self.at(inputs[0].shape[axis]).execute(inputs, dtype)
        arrays = self._filled(inputs, dtype)
        self._run(arrays, dtype)
        outputs = [arrays[a.name] for a in self.outputs]
        return self.total(outputs, arrays.__getitem__) if self.total else outputs

    def _filled(self, inputs: Sequence[np.ndarray], dtype: Any) -> dict[str, np.ndarray]:
        """All arrays: the inputs, and poison in the others."""
        arrays = {
            a.name: np.ascontiguousarray(x, host_dtype(a.dtype(dtype)))
            for a, x in zip(self.inputs, inputs, strict=True)
        }
        for a in (*self.outputs, *self.scratch):
            arrays[a.name] = np.full(a.of(1), POISON[a.kind], host_dtype(a.dtype(dtype)))
        return arrays

    def _run(self, arrays: Mapping[str, np.ndarray], dtype: Any) -> None:
        """Run all dispatches once, in place."""
        for d in self.dispatches:
            bound = {b.name: arrays[name] for b, name in d.bound}
            bound |= {b: part.of(arrays[part.array]) for b, part in d.parts.items()}
            if d.number_of_groups:
                bound |= self._open_ended(d, dtype)
                words = dict(zip(d.kernel.arguments.values(), d.words, strict=True))
                execute(d.kernel, bound, d.invocations, d.number_of_groups, dtype, words)

    def _open_ended(self, d: Dispatch, dtype: Any) -> dict[str, np.ndarray]:
        """The invocations' own array of a size that no kernel says: all that a point is given."""
        names = [b.name for b in d.kernel.buffers if b.space == "own" and not b.size]
        size = max((a.size // d.invocations for a in self.inputs), default=0)
        cells = d.number_of_groups * d.target.width
        return {name: np.full((size, cells), POISON["f"], dtype) for name in names}

    def _repeated(
        self, until: Until, inputs: Sequence[np.ndarray], dtype: Any, steps: int
    ) -> np.ndarray:
        """The states after so many steps, of whole groups of points where groups have to be."""
        target, by_columns = self.dispatches[0].target, self.outputs[0].by_columns
        pairs = [*zip(self.inputs, inputs, strict=True)]
        lengths = {n: m for a, x in pairs for n, m in zip(a.shape, x.shape, strict=True)}
        count, unit = lengths[BATCH], target.width if target.whole else 1
        missing = -count % unit
        launch = self.at(count + missing, lengths[ROWS])
        padded = [
            np.pad(x, [(0, missing), *((0, 0),) * (x.ndim - 1)]) if a.shape[0] == BATCH else x
            for a, x in pairs
        ]
        arrays = launch._filled(padded, dtype)
        states = arrays[until.states]
        states[...] = arrays[until.start]
        flags = states[-1] if by_columns else states[:, -1]
        for _ in range(steps):
            if not flags.any():
                break
            if until.progress in arrays:
                arrays[until.progress][...] = 0
            launch._run(arrays, dtype)
        return states if by_columns else states[:count]


def _unbound(dispatch: Dispatch, arrays: Mapping[str, Array]) -> Iterator[str]:
    """The faults of the names that a dispatch gives."""
    kernel, array_names = dispatch.kernel, dispatch.names
    buffer_names = {b.name for b in kernel.buffers if b.space in BOUND and b.data is None}
    yield from (
        f"{kernel.name} is given no {name}" for name in sorted(buffer_names - array_names.keys())
    )
    yield from (
        f"{kernel.name} has no buffer {name}" for name in sorted(array_names.keys() - buffer_names)
    )
    unknown = sorted(set(array_names.values()) - arrays.keys())
    yield from (f"{kernel.name} is given {name}, an array that is not there" for name in unknown)
    wanted = set(kernel.arguments.values())
    if wanted != {name for name, _ in dispatch.arguments}:
        yield f"{kernel.name} takes the arguments {sorted(wanted)}"


def _misfits(dispatch: Dispatch, arrays: Mapping[str, Array]) -> Iterator[str]:
    """The faults of numbers: kinds, sizes, and what no word holds."""
    kernel = dispatch.kernel
    for b, name in dispatch.bound:
        array = arrays[name]
        if b.kind != array.kind and {b.kind, array.kind} != SAME_BITS:
            yield f"{b.name} of {kernel.name} has numbers of kind {b.kind}, {name} of {array.kind}"
        if b.floats != array.floats:
            yield f"{b.name} of {kernel.name} has other floats than {name}"
        part = dispatch.parts.get(b.name, Part(name, 0, array.size))
        if part.first % b.vector or not 0 <= part.first <= part.first + part.size <= array.size:
            yield f"{b.name} of {kernel.name} is {part}, and {name} has {array.size} numbers"
        if b.size and b.size > part.size:
            yield f"{b.name} of {kernel.name} has {b.size} numbers, {name} {part.size}"
    for value in (dispatch.invocations, dispatch.number_of_groups, *dispatch.words):
        if not 0 <= value <= LARGEST_WORD:
            yield f"{kernel.name} is given {value}, which is no word"


# --- sums over rows -------------------------------------------------------------------------------
# Launches that sum over rows, whose host adds up in float64 what kernels leave.


class SumsLaunch(Protocol):
    """A launch that sums over rows, and which of its inputs stay from call to call."""

    @property
    def launch(self) -> Launch:
        """The arrays and the dispatches of a call."""
        ...

    def resident(self, rows: Any, indices: np.ndarray | None) -> Mapping[str, Any]:
        """The inputs that stay: rows, and the indices of the entries that they look up."""
        ...


class HeldSums(Protocol):
    """A launch that sums over rows which stay where they are."""

    def run(self, *inputs: np.ndarray) -> np.ndarray:
        """The total of the sums, of the numbers of a call."""
        ...

    def begin(self, *inputs: np.ndarray) -> Callable[[], np.ndarray]:
        """Start `run`, and give the function that waits for it: it has to be called."""
        ...


class RowSums:
    """A reduction that is compiled for a device, which plans its launches, bound to rows or not.

    Any number of threads may use it.
    """

    seconds: float
    """How long it took to compile."""

    def __init__(self, reduction: Reduction) -> None:
        self.reduction = reduction

    def plan(self, count: int, indices: np.ndarray | None = None) -> SumsLaunch:
        """The launch over so many rows, for these indices if it depends on them."""
        raise NotImplementedError

    def hold(self, rows: Any, indices: np.ndarray | None) -> HeldSums:
        """A launch over these rows, which stay, and so do the entries that they look up.

        Raises:
            DeviceMemoryError: if there is no memory for them.
        """
        raise NotImplementedError

    def run(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The sums in float64 over rows (N, columns), C-contiguous, as ``bind(rows)`` has them."""
        return self.bind(rows).run(numbers)

    def bind(self, rows: Any, indices: np.ndarray | None = None) -> HeldSums:
        """The launch over these rows: ``run(numbers)`` gives the sums in float64.

        The numbers are those of `Reduction.packed`, and the sums (results,) are followed by what is
        added to the entries of tables. The rows (N, columns) of the host are copied to a device,
        and are read by the CPU where they are; so are the indices (N, count) of the entries.
        """
        self.require(rows, indices)
        return self.hold(rows, indices)

    def require(self, rows: Any, indices: np.ndarray | None) -> None:
        """Refuse rows of another width, or without their indices."""
        columns, count = self.reduction.columns, self.reduction.indices
        if rows.ndim != 2 or rows.shape[1] != columns:
            raise InputError(f"rows of shape {rows.shape}: expected (N, {columns})")
        if count and (indices is None or indices.shape != (len(rows), count)):
            raise InputError(f"indices for {len(rows)} rows: expected ({len(rows)}, {count})")
