"""Kernels of functions of large arrays: the face of `Kernel`, over programs of whole arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from symgrad import targets
from symgrad.arrays.fuse import flops
from symgrad.arrays.tape import Tape
from symgrad.arrays.trace import gradients
from symgrad.arrays.whole import WholeArray
from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.expr.tracers.tree import Blocks, Tree, flatten
from symgrad.front.kernels import Kernel
from symgrad.front.running import Inputs, Interface, Running
from symgrad.front.whole import Runner, WholeTrace, require_countable, runner
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.stats import Stats
from symgrad.pipeline import Clock, Options
from symgrad.values.nested import Result, Scalar, derivatives, nested_result


@dataclass(frozen=True)
class Outputs:
    """One result of a program of whole arrays: its arrays, as a row of columns."""

    name: str
    arrays: tuple[WholeArray, ...]
    result: Result


def gradient_of_whole(f: Callable[..., Any], tree: Tree, options: Options, device: Any) -> Kernel:
    """The kernel of a loss of whole arrays and its gradient.

    Raises:
        ElementsNeededError: where f has to be traced by its elements.
    """
    clock, traced = Clock(), WholeTrace(f, blanks(tree), options.checkpoint)
    loss = clock.time("trace", lambda: traced.number(called(traced, tree)))
    traced.require_whole()
    slopes = clock.time("differentiate", lambda: gradients(loss, traced.variables))
    wanted = (
        Outputs("loss", (loss,), Scalar()),
        Outputs("grad", tuple(slopes), derivatives(tree)),
    )
    return WholeKernel(traced.tape, tree, wanted, runner(options, device), clock.seconds)


def values_of_whole(f: Callable[..., Any], tree: Tree, options: Options, device: Any) -> Kernel:
    """The kernel of the values of a function of whole arrays, nested as it returns them.

    Raises:
        ElementsNeededError: where f has to be traced by its elements.
    """
    clock, traced = Clock(), WholeTrace(f, blanks(tree), options.checkpoint)
    leaves, nest = flatten(clock.time("trace", lambda: called(traced, tree)))
    if not any(isinstance(leaf, WholeArray) for leaf in leaves):
        raise ElementsNeededError("a result without whole arrays")
    traced.require_whole()
    arrays = [traced.variables[0].lift(leaf) for leaf in leaves]
    kinds = iter(_leaf(a) for a in arrays)
    result = nested_result(_with_leaves(nest, kinds))
    wanted = (Outputs("values", tuple(arrays), result),)
    return WholeKernel(traced.tape, tree, wanted, runner(options, device), clock.seconds)


def blanks(tree: Tree) -> list[np.ndarray]:
    """Arrays of the shapes of variables, without memory of their own.

    Raises:
        InputError: for more elements than 32 bits count.
    """
    arrays = [np.broadcast_to(0.0, block.shape) for block in tree.blocks]
    require_countable(arrays)
    return arrays


def called(traced: WholeTrace, tree: Tree) -> Any:
    """The result of a function for variables nested as the user has them."""
    return traced.call(lambda arrays: iter([tree.nest(iter(arrays), Blocks), {}]))


def _leaf(array: WholeArray) -> Tree:
    """How a result is nested that is one array, or one number of a kind."""
    kinds = {"f": None, "b": "condition", "i": "integer"}
    return Tree("array", array.shape) if array.shape else Tree(kinds[array.kind])


def _with_leaves(nest: Tree, leaves: Any) -> Tree:
    """A nest with these in the place of its leaves."""
    if nest.is_leaf:
        return next(leaves)
    children = tuple(_with_leaves(child, leaves) for child in nest.children)
    return Tree(nest.kind, nest.keys, children, nest.like)


class Columns:
    """A program as what `Kernel` runs: points (B, n) in, columns of results (B, k) out.

    The points of a batch run one after the other: each has work for all of a device.
    """

    def __init__(self, tape: Tape, tree: Tree, wanted: Sequence[Outputs], run: Runner) -> None:
        self._tree, self._wanted, self._runner = tree, wanted, run
        self._outer = tape.arrays[len(tree.blocks) :]
        outputs = [a for o in wanted for a in o.arrays]
        start = time.perf_counter()
        self.compiled = run.compiled(tape, outputs)
        self.seconds = time.perf_counter() - start

    def run(self, points: Any) -> list[Any]:
        """The columns of each result at some points."""
        rows = [self._at(points[k]) for k in range(len(points))]
        if len(rows) == 1:
            return [row.reshape(1, -1) for row in rows[0]]
        if not rows:
            sizes = (sum(a.size for a in o.arrays) for o in self._wanted)
            return [np.empty((0, size), self._runner.options.floats) for size in sizes]
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def bind(self, inputs: Sequence[Any], outs: Sequence[Any]) -> Callable[[], None]:
        """A call that writes the columns of some points to these arrays."""

        def call() -> None:
            for out, column in zip(outs, self.run(inputs[0]), strict=True):
                out[...] = column

        return call

    def _at(self, point: Any) -> list[Any]:
        """The results at a point (n,), each in a row."""
        arrays = [*(block.of(point) for block in self._tree.blocks), *self._outer]
        stays = isinstance(point, ResidentArray)
        values = iter(self._runner.run(self.compiled, arrays, stays))
        return [_row([next(values) for _ in o.arrays], point.dtype) for o in self._wanted]


def _row(parts: Sequence[Any], dtype: Any) -> Any:
    """Arrays one behind the other, as real numbers."""
    flat = [p.reshape(-1) if p.dtype == dtype else p.astype(dtype).reshape(-1) for p in parts]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


class WholeKernel(Kernel):
    """The kernel of a function of large arrays, which are traced as a whole: see `Kernel`.

    It has no expressions of single numbers: what needs these says what to use instead.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> kernel = sg.fused_forward_backward(10_000, lambda v: np.sum(v * v), device="cpu")
        >>> loss, grad = kernel.run(np.ones(10_000))
        >>> loss, grad.shape
        (10000.0, (10000,))
    """

    _process = (*Kernel._process, "_columns_of_points")

    def __init__(
        self, tape: Tape, tree: Tree, wanted: Sequence[Outputs], run: Runner,
        seconds: dict[str, float],
    ) -> None:  # fmt: skip
        self._tape, self._wanted, self._runner = tape, tuple(wanted), run
        interface = Interface(
            Inputs(("x",), (tree,)), tuple(o.result for o in wanted), len(wanted) == 1
        )
        self._stand(interface, run.options, run.device)
        self._point_shape = self._array_shape = None  # points are large: they are not copied
        self._seconds = seconds

    def _begin(self) -> None:
        super()._begin()
        self._columns_of_points: Once[None, Columns] = Once(1)

    def _compiled(self) -> Columns:
        make = partial(Columns, self._tape, self.tree, self._wanted, self._runner)
        return self._columns_of_points.get(None, make)

    def _run_on_device(self, arrays: Sequence[Any], out: Sequence[Any] = ()) -> Any:
        if self._backend.on_host:
            return super()._run_on_device(arrays, out)
        points, batch = self._inputs.pack_on_device(arrays)
        if len(out):
            raise InputError("out= takes arrays of the host here: results on a device are new ones")
        return self._returned(self._compiled().run(points), batch)

    def _make_flagging(self) -> None:
        """Whole arrays have no loops that end early."""

    @property
    def _expressions(self) -> NoReturn:
        raise InputError(
            f"{self.name} is a kernel of whole arrays: it has no expressions of single numbers, "
            "by which kernels are audited, exported, minimised from many starts or handed to "
            "other frameworks. as_scipy() and sg.minimize are there; print(kernel.stages) and "
            "kernel.wgsl show what runs"
        )

    def to(self, device: targets.DeviceChoice) -> Kernel:
        """This kernel on another device: "gpu", "cpu", an index, or a `Device`."""
        run = runner(self._options, device)
        return WholeKernel(self._tape, self.tree, self._wanted, run, self._seconds)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the arrays that ``run`` returns."""
        return tuple(o.name for o in self._wanted)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the variables: those of their arrays."""
        return tuple(block.name for block in self.tree.blocks)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules, each complete in itself, with the entry point ``main``."""
        return self._compiled().compiled.modules

    @property
    def stages(self) -> Any:
        """The stages: what runs, one after the other."""
        return self._compiled().compiled.plan

    @property
    def stats(self) -> Stats:
        """The kernel's size, and the seconds that each stage of making it took."""
        columns = self._compiled()
        program = columns.compiled.program
        numbers = sum(a.size for a in (*program.inputs, *program.outputs))
        every, own = (flops(program.scalars, a) for a in (program.outputs, program.outputs[:1]))
        return Stats(
            nodes=len(program.scalars.graph), operations_loss=own, operations=every,
            flops_loss=own, flops=every, bytes_per_point=numbers * self._dtype.itemsize,
            registers=0, shaders=len(columns.compiled.plan.parts),
            seconds=self._seconds | {"compile": columns.seconds},
            mode="reverse" if len(self._wanted) > 1 else None,
        )  # fmt: skip

    def __repr__(self) -> str:
        shapes = ", ".join(f"{o.name} {sum(a.size for a in o.arrays)}" for o in self._wanted)
        return (
            f"<symgrad kernel {self.name}: arrays of {self.n_inputs:,} numbers -> {shapes}; "
            f"{self._options.dtype} on {self.device}>"
        )

    def _repr_latex_(self) -> None:
        """There is no formula."""

    def __getstate__(self) -> dict[str, Any]:
        return Running.__getstate__(self)
