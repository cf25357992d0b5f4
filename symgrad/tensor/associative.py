"""`associative_scan`, and NumPy's `accumulate`: scans by an associative operation.

Elements are read twice. A pass that looks back reads them once (Merrill and Garland, 2016,
"Single-pass parallel prefix scan with decoupled look-back"; with decoupled fallback, for devices
that promise no progress: Smith, Levien and Owens, 2025), but adds up what is there when it looks,
so that sums of floats differ from call to call. With totals of blocks, combined in a fixed order,
it was tried: groups wait for each other longer than reading twice takes, 73 to 81 us for 2**24 sums
on an H200, which these dispatches take 60 us for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.group_scan import Accumulate, Chunk, Input, Recipe
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.dispatches import Joined, each_of, sums_of
from symgrad.tensor.kernel import Shape, TensorKernel, Work
from symgrad.tensor.recipes import Combine, Recipes
from symgrad.values.arrays import name_of

BUSY_GROUPS: Final = 2_112
"""Groups that are enough to keep large devices busy, each with a part."""

BUSY_INVOCATIONS: Final = 65_536
"""Invocations that are, if each works alone."""

BUSY_LANES: Final = 128
"""Invocations in step that keep the cores of a host busy."""

LEAST_ELEMENTS: Final = 32
"""Elements of a part, at least."""


ARRAYS_JOINED: Final = 6
"""Arrays that are brought together at once."""


@dataclass(frozen=True)
class Accumulated:
    """A scan of (rows, length, columns) elements; ``sizes`` are these three.

    Arrays of its own have names that begin with ``tag``.
    """

    recipes: Recipes
    recipe: Recipe
    sizes: tuple[int, int, int]
    device_target: Target
    tag: str = "forward"

    @cached_property
    def chunk(self) -> Chunk | None:
        """A chunk that groups scan at once; None where each invocation scans a part alone."""
        if self.device_target.in_step or self.sizes[2] > 1:
            return None
        return Chunk.of(self.recipe, self.sizes[1])

    @cached_property
    def target(self) -> Target:
        """The target of the programs."""
        if self.chunk is None:
            return self.device_target.working_alone()
        return self.device_target.of_width(self.chunk.width)

    @cached_property
    def steps(self) -> int:
        """The steps of a sequence that parts consist of: chunks, or elements."""
        return -(-self.sizes[1] // (self.chunk.length if self.chunk else 1))

    @cached_property
    def span(self) -> int:
        """The steps of a part."""
        rows, _, columns = self.sizes
        alone = BUSY_LANES if self.device_target.in_step else BUSY_INVOCATIONS
        wanted = BUSY_GROUPS if self.chunk else alone
        parts = max(1, wanted // max(1, rows * columns))
        fewest = 1 if self.chunk else LEAST_ELEMENTS
        return max(-(-self.steps // parts), min(fewest, self.steps), 1)

    @property
    def parts(self) -> int:
        """The parts of a sequence."""
        return max(1, -(-self.steps // self.span))

    @property
    def totals(self) -> str:
        """The name of the array of totals."""
        return f"{self.tag}_totals"

    @property
    def before(self) -> str:
        """The name of the array of scanned totals, where invocations work alone."""
        return f"{self.tag}_before"

    @cached_property
    def scratch(self) -> list[Array]:
        """The arrays of its own."""
        if self.parts == 1:
            return []
        rows, _, columns = self.sizes
        shape = self.recipe.size, rows, self.parts, columns
        if self.chunk:
            return [Array(self.totals, shape)]
        arrays = [Array(self.totals, shape), Array(self.before, shape)]
        return [*arrays, *(self._of_totals.scratch)]

    @cached_property
    def _of_totals(self) -> Accumulated:
        rows, _, columns = self.sizes
        recipe = self.recipes.totals(self.recipe, self.totals, self.before)
        sizes = rows, self.parts, columns
        return Accumulated(self.recipes, recipe, sizes, self.device_target, f"{self.tag}_again")

    @cached_property
    def dispatches(self) -> list[Dispatch]:
        """The dispatches in their order."""
        if self.parts == 1:
            return [self._dispatch(Accumulate(self.recipe, self.chunk), self.recipe.outputs)]
        totals = Accumulate(self.recipe, self.chunk, totals=True)
        several = Accumulate(self.recipe, self.chunk, several=True)
        before = self.totals if self.chunk else self.before
        return [
            self._dispatch(totals, (), ("totals", self.totals)),
            *([] if self.chunk else self._of_totals.dispatches),
            self._dispatch(several, self.recipe.outputs, ("before", before)),
        ]

    def _dispatch(
        self, program: Accumulate, outputs: Sequence[str], *more: tuple[str, str]
    ) -> Dispatch:
        rows, length, columns = self.sizes
        width, many = self.target.width, rows * self.parts
        groups = many if self.chunk else -(-many * columns // width)
        names = [*self.recipe.arrays(program.totals), *outputs]
        words = {
            "rows": rows,
            "length": length,
            "columns": columns,
            "parts": self.parts,
            "span": self.span,
        }
        count = groups * width if self.chunk else many * columns
        arrays = (*((name, name) for name in names), *more)
        target = self.target.in_grid(groups)
        return Dispatch(program, target, arrays, count, groups, tuple(words.items()))


@dataclass(frozen=True)
class Planes:
    """A scan of more arrays than a kernel binds: they are the planes of one, and so are results."""

    scan: Accumulated
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, scan: Accumulated) -> Planes:
        """This scan, of planes."""
        recipe, tag = scan.recipe, scan.tag
        names = recipe.arrays(False)
        inputs = tuple(
            i if i.name not in names else Input(f"{tag}_inputs", i.shift, names.index(i.name))
            for i in recipe.inputs
        )
        planes = replace(recipe, inputs=inputs, outputs=(f"{tag}_results",))
        return cls(replace(scan, recipe=planes), tuple(names), recipe.outputs)

    @property
    def _size(self) -> int:
        return math.prod(self.scan.sizes)

    @property
    def scratch(self) -> list[Array]:
        """The arrays of its own."""
        wide = {"inputs": len(self.names), "results": len(self.outputs)}
        planes = [Array(f"{self.scan.tag}_{n}", (w, *self.scan.sizes)) for n, w in wide.items()]
        return [*planes, *self.scan.scratch]

    @property
    def dispatches(self) -> list[Dispatch]:
        """The dispatches in their order."""
        parts = range(0, len(self.names), ARRAYS_JOINED)
        joined = [self._joined(n, self.names[n : n + ARRAYS_JOINED]) for n in parts]
        apart = [self._apart(n, name) for n, name in enumerate(self.outputs)]
        return [*joined, *self.scan.dispatches, *apart]

    def _joined(self, first: int, names: tuple[str, ...]) -> Dispatch:
        """The dispatch that makes arrays planes, from a plane on."""
        starts = [(f"{name}_start", (first + n) * self._size) for n, name in enumerate(names)]
        arrays = [*((name, name) for name in names), ("joined", f"{self.scan.tag}_inputs")]
        end = (first + len(names)) * self._size
        return each_of(Joined(names), self.scan.device_target, arrays, end, starts)

    def _apart(self, n: int, name: str) -> Dispatch:
        """The dispatch that makes a plane an array."""
        source, size = f"{self.scan.tag}_results", self._size
        return sums_of(source, 1, size, 1, name, self.scan.device_target, n * size)


def bindable(scan: Accumulated) -> Accumulated | Planes:
    """The scan, with no more arrays than kernels bind."""
    recipe = scan.recipe
    bound = len(recipe.arrays(False)) + len(recipe.outputs) + 1
    most = scan.device_target.bindings
    return Planes.of(scan) if most is not None and bound > most else scan


@dataclass(frozen=True)
class AssociativeScan(Work):
    """The work of a scan of elements of ``size`` numbers: see `associative_scan`."""

    recipes: Recipes
    axis: int

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.recipes.options.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that it takes."""
        return tuple(f"x{n}" for n in range(self.recipes.size))

    @property
    def cotangents(self) -> tuple[str, ...]:
        """The names of the cotangents of its results."""
        return tuple(f"g{n}" for n in range(self.recipes.size))

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the elements: see `symgrad.tensor.kernel.Work`."""
        require_elements(shapes, self.axis)
        return [tuple(shape) for shape in shapes]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call: see `symgrad.tensor.kernel.Work`."""
        sizes = require_elements(shapes, self.axis)
        shape, size = tuple(shapes[0]), self.recipes.size
        inputs, outputs = [Array(n, shape) for n in self.arguments], ["y"]
        scans = [Accumulated(self.recipes, self.recipes.forward(), sizes, device_target)]
        if kind == "vjp":
            inputs += [Array(n, shape) for n in self.cotangents]
            outputs.append("d")
            scans.append(
                Accumulated(self.recipes, self.recipes.backward(), sizes, device_target, "back")
            )
        named = tuple(Array(f"{kind}{n}", shape) for kind in outputs for n in range(size))
        bound = list(map(bindable, scans))
        scratch = tuple(a for scan in bound for a in scan.scratch)
        dispatches = tuple(d for scan in bound for d in scan.dispatches)
        return Launch(self.name, tuple(inputs), named, scratch, dispatches)


class ScanKernel(TensorKernel):
    """A kernel whose elements may be numbers or tuples: there are as many arrays as these have."""

    def _work_of(self, count: int) -> AssociativeScan:
        work = self._work
        assert isinstance(work, AssociativeScan), "a scan is made of recipes"
        return replace(work, recipes=replace(work.recipes, size=max(count, 1)))


def require_elements(shapes: Sequence[Shape], axis: int) -> tuple[int, int, int]:
    """The rows, the length and the columns of arrays of elements.

    Raises:
        InputError: if they have different shapes, or no such axis.
    """
    first = tuple(shapes[0])
    for n, shape in enumerate(shapes):
        if tuple(shape) != first:
            raise InputError(f"element {n} has shape {tuple(shape)}, and the first one {first}")
    if len(first) < -axis:
        raise InputError(f"arrays of shape {first} have no axis {axis}")
    rows = 1
    for n in first[: len(first) + axis]:
        rows *= n
    return rows, first[axis], first[-1] if axis == -2 else 1


def associative_scan(
    combine: Combine,
    *,
    axis: int = -1,
    reverse: bool = False,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> ScanKernel:
    """The kernel of a scan by an associative operation: ``y[0] = x[0], y[t] = f(y[t - 1], x[t])``.

    ``combine(a, b)`` is any function that can be traced, such as ``np.add``, ``np.multiply``,
    ``np.maximum`` or ``np.logaddexp``, of which the scans are the cumulative sum, product, maximum
    and log-sum-exp. Elements may be tuples: ``run(x0, x1)`` has ``combine`` take and return tuples
    of two numbers, and gives two arrays. All arrays have one shape, (.., length), or with
    ``axis=-2`` (.., length, k). A ``reverse`` scan begins at the last element. ``vjp`` takes a
    cotangent of each result behind the arrays; the gradient is derived, and is a scan itself.

    Sequences are done in parts, which are put together in a fixed order: ``combine`` has to be
    associative up to rounding, and need not commute.

    Raises:
        InputError: for another axis, or what is no function; of ``run`` and ``vjp``, for arrays of
            different shapes.
        TraceError: of these, if ``combine`` cannot be traced, or returns more or fewer numbers.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> sg.associative_scan(np.add, device="cpu").run([1.0, 2.0, 3.0]).tolist()
        [1.0, 3.0, 6.0]
        >>> line = lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1])  # g after f, of slope and value
        >>> both = sg.associative_scan(line, device="cpu")
        >>> both.run([0.5, 0.5, 0.5], [1.0, 1.0, 1.0])[1].tolist()
        [1.0, 1.5, 1.75]
        >>> (y, _), (dslope, dvalue) = both.vjp([0.5] * 3, [1.0] * 3, [0.0] * 3, [0.0, 0.0, 1.0])
        >>> dvalue.tolist()
        [0.25, 0.5, 1.0]
    """
    if not callable(combine):
        raise InputTypeError(f"combine={combine!r}: use a function of two elements such as np.add")
    if axis not in (-1, -2):
        raise InputError(f"axis={axis!r}: use -1 for arrays (.., length), -2 for (.., length, k)")
    options = Options("associative_scan", math=math, dtype=dtype_name(dtype), comments=False)
    work = AssociativeScan(Recipes(combine, 1, bool(reverse), options), axis)
    return ScanKernel(work, options, device)


@functools.cache
def _kernel(ufunc: np.ufunc, axis: int, device: int, dtype: Any) -> TensorKernel:
    return associative_scan(ufunc, axis=axis, device=device, dtype=dtype)


def accumulated(ufunc: np.ufunc, x: ResidentArray, axis: int) -> ResidentArray:
    """The array that ``ufunc.accumulate`` gives along an axis, counted from the first."""
    rows, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    shape = (rows, x.shape[axis], columns) if columns > 1 else (rows, x.shape[axis])
    kernel = _kernel(ufunc, -2 if columns > 1 else -1, x.device.index, name_of(x.dtype))
    return kernel.run(x.reshape(shape)).reshape(x.shape)
