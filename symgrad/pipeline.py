"""The table of contents: from a Python function to what its kernel computes, on any device.

    trace -> differentiate -> simplify -> a graph with a shape: a map, a sum over rows, an iteration
          -> a skeleton, for the target of a device -> a kernel of the kernel language
          -> a launch: arrays, dispatches -> compiled -> bound to arrays -> called

This file has the first line, whose stages each take and return an immutable value that prints
itself. The graphs with a shape are `symgrad.kernel.shapes`; skeletons, `symgrad.kernel.skeletons`,
write them as kernels, and `symgrad.kernel.launch` says what a call runs; `symgrad.backend` has it
compiled for a device, by `symgrad.wgsl` or `symgrad.llvm`, which print kernels and run launches.
Functions of whole arrays go the same way: `symgrad.arrays` has the first line, on programs of
arrays, and `symgrad.kernel.stages` writes them as kernels, in launches again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np

from symgrad.cache import Once
from symgrad.errors import InputError
from symgrad.expr.derivatives.transpose import (
    UNKNOWN_DEVICE,
    Checkpoint,
    CheckpointPolicy,
    MemoryBudget,
    lengths_of_strips,
    require_checkpoint,
)
from symgrad.expr.graph.node import CONST, Graph, bits_float, paused_gc, reachable
from symgrad.expr.graph.region import in_regions, regions
from symgrad.expr.graph.verify import is_verified, verify
from symgrad.expr.graph.written_out import warn_of_lines
from symgrad.expr.laws.simplify import Level, simplify
from symgrad.expr.tracing.roll import rolled
from symgrad.expr.tracing.trace import Trace, trace
from symgrad.kernel.host import watch
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.stats import Derived, flops, operations
from symgrad.mathlib.arrange import share_quotients
from symgrad.mathlib.define import Math, inlined, lower, require_math
from symgrad.mathlib.signs import place_signs
from symgrad.values.arrays import host_dtype, warn_if_rounded
from symgrad.values.nested import Array, Result

DTypeName = Literal["float32", "float64", "float32x2"]

DType = DTypeName | type[float] | type[np.float32] | np.dtype[np.float32] | np.dtype[np.float64]
"""The type that kernels compute in: by its name, or as NumPy has it. NumPy's float64 is a float."""

DTYPES: Final[tuple[DTypeName, ...]] = get_args(DTypeName)


@dataclass(frozen=True)
class Options:
    """The user's choices for a kernel, which are checked here, whatever verb they are given to.

    Raises:
        InputError: for what is none of an option's choices.
    """

    name: str
    math: Math = "accurate"
    dtype: DTypeName = "float32"
    simplify: Level = True
    comments: bool = True
    roll: bool = True
    """Whether what Python loops have written out becomes loops."""
    checkpoint: Checkpoint = "auto"
    """The values that loops keep for reverse mode: see `symgrad.expr.derivatives.transpose`."""
    budget: MemoryBudget = UNKNOWN_DEVICE
    """The memory that the device has for it, unless one is chosen."""

    def __post_init__(self) -> None:
        require_math(self.math)
        dtype_name(self.dtype)
        require_checkpoint(self.checkpoint)
        if self.simplify not in (True, False, "real"):
            raise InputError(f'simplify={self.simplify!r}: use True, False or "real"')

    @property
    def keeping(self) -> CheckpointPolicy:
        """The policy of what loops keep, with all that it depends on."""
        return CheckpointPolicy(self.checkpoint, self.budget)

    @property
    def floats(self) -> np.dtype[Any]:
        """The dtype that the kernel's numbers have on the host: pairs are float64 there."""
        return host_dtype(self.dtype)

    @property
    def rounding(self) -> float:
        """By how much constants may be off, relatively: a part of what the dtype rounds by."""
        return 2.0 ** {"float32": -28, "float64": -51, "float32x2": -50}[self.dtype]


@dataclass(frozen=True)
class Wanted:
    """One array of results: its name, its nodes, and how ``run`` returns it."""

    name: str
    nodes: tuple[int, ...]
    result: Result
    mode: str | None = None
    """By which mode derivatives were made: see `accumulated`."""


@dataclass(frozen=True, eq=False)
class Built:
    """All that is known of a kernel before it meets a device; equal traces share one."""

    traced: Trace
    wanted: tuple[Wanted, ...]
    computation: Computation
    seconds: dict[str, float]

    @property
    def derived(self) -> Derived:
        """How derivatives were made."""
        graph, mode = self.traced.graph, next((w.mode for w in self.wanted if w.mode), None)
        return Derived(mode, lengths_of_strips(graph))


@dataclass(frozen=True)
class Derivation:
    """Differentiation: what a kind of kernel wants of a trace.

    Derivations of the same ``kind`` want the same of the same trace.
    """

    kind: Hashable
    derive: Callable[[Trace], Sequence[Wanted]] = field(compare=False)


def _values(traced: Trace) -> Sequence[Wanted]:
    return (Wanted("values", traced.outputs, Array((len(traced.outputs),))),)


VALUES: Final = Derivation("values", _values)
"""All that a function returns, in one array."""

CACHED_NODES: Final = 2**17
"""Nodes, all together, of the traces whose builds are cached: some 100 MiB."""

_kept: Once[Any, Built] = Once(CACHED_NODES)


def weight(graph: Graph) -> int:
    """The weight of a graph among those that are kept: at least so much that these are 64."""
    return max(len(graph), CACHED_NODES // 64)


def build(
    f: Callable[..., Any],
    n: int,
    derivation: Derivation,
    options: Options,
    names: Sequence[str] | None = None,
) -> Built:
    """From a Python function to what its kernel computes.

    The function is always traced, as what it computes may have changed since the last time, by a
    variable of a closure or the state of an object. All that follows depends on the trace alone,
    and is done once for equal ones: they share the computation.
    """
    clock, wanted = Clock(), None
    with paused_gc():
        traced = clock.time("trace", lambda: trace(f, n, names, [options.keeping]))
        key = traced.key
        if key is None:  # what derivatives of the user's own compute is in their results
            traced = _rolled(traced, options, clock)
            wanted = _differentiated(traced, derivation, options, clock)
            key = traced.content(wanted)
        make = partial(_derived, traced, wanted, derivation, options, clock)
        return _kept.get((key, derivation, options), make, weight(traced.graph))


def _rolled(traced: Trace, options: Options, clock: Clock) -> Trace:
    """The trace with loops, if the options ask for them; a warning of lines that write out much."""
    if not options.roll:
        return traced
    with_loops = clock.time("roll", lambda: rolled(traced, options.rounding))
    warn_of_lines(with_loops.graph, traced.graph)
    return with_loops


def _differentiated(
    traced: Trace, derivation: Derivation, options: Options, clock: Clock
) -> tuple[Wanted, ...]:
    traced.graph.notes[CheckpointPolicy] = options.keeping
    return clock.time("differentiate", lambda: tuple(derivation.derive(traced)))


def _derived(
    traced: Trace,
    wanted: tuple[Wanted, ...] | None,
    derivation: Derivation,
    options: Options,
    clock: Clock,
) -> Built:
    """All that follows from a trace, of which the derivatives may be there."""
    if wanted is None:
        traced = _rolled(traced, options, clock)
        wanted = _differentiated(traced, derivation, options, clock)
    traced.graph.release()
    graph, outputs = clock.time("simplify", lambda: simplify_outputs(traced, wanted, options))
    computation = Computation(options.name, graph, tuple(outputs))
    return Built(traced, wanted, computation, clock.seconds)


def simplify_outputs(
    traced: Trace, wanted: Sequence[Wanted], options: Options
) -> tuple[Graph, list[Output]]:
    """The graph of all results, simplified, its operations those that back ends know."""
    needed = [i for w in wanted for i in w.nodes]
    graph, roots = simplified(traced.graph, needed, options)
    return graph, _in_turn(wanted, roots)


def _in_turn(named: Iterable[Wanted | Output], roots: Iterable[int]) -> list[Output]:
    """Outputs of these names and sizes, of which the roots are the results, one after the other."""
    ends = iter(roots)
    return [Output(w.name, tuple(next(ends) for _ in w.nodes)) for w in named]


def simplified(
    graph: Graph,
    roots: Sequence[int],
    options: Options,
    regroup: bool = True,
    reread: Iterable[int] = (),
) -> tuple[Graph, list[int]]:
    """The graph of the roots, simplified and lowered to operations that back ends know.

    Each law of real numbers is cheaper where it stands, but may take apart what others share:
    ``simplify="real"`` is never dearer than the laws that keep every bit. ``regroup`` is that of
    `simplify`, ``reread`` that of `lower`.

    Raises:
        InputError: for a constant of the user's that the dtype cannot hold.
    """
    _require_range(graph, roots, options.dtype)
    lowered = _cheapest(graph, roots, options, regroup, reread)
    if is_verified(len(lowered[0])):
        verify(*lowered)
    return lowered


def size(options: Options, graph: Graph, roots: Sequence[int]) -> int:
    """The operations that computing these roots takes in a kernel."""
    return operations(*_cheapest(graph, roots, options, True, ()))


def _cheapest(
    graph: Graph,
    roots: Sequence[int],
    options: Options,
    regroup: bool,
    reread: Iterable[int],
) -> tuple[Graph, list[int]]:
    with watch.stage("simplify"):
        lowered = _lowered(graph, roots, options, regroup, reread)
        if options.simplify != "real":
            return lowered
        bits_kept = _lowered(graph, roots, replace(options, simplify=True), regroup, reread)
    return min(lowered, bits_kept, key=lambda candidate: flops(*candidate))


def _lowered(
    graph: Graph,
    roots: Sequence[int],
    options: Options,
    regroup: bool,
    reread: Iterable[int],
) -> tuple[Graph, list[int]]:
    definitions = inlined(options.math, options.dtype)
    graph, roots = simplify(graph, roots, options.simplify, definitions, regroup)
    graph.release()
    graph, roots = _arranged(graph, roots, options)
    graph, roots = lower(graph, roots, options.math, options.dtype, reread)
    graph.release()
    return graph, roots


def _arranged(graph: Graph, roots: Sequence[int], options: Options) -> tuple[Graph, list[int]]:
    """A simplified graph, and the regions within it, with fewer divisions and signs."""
    graph, arranged = in_regions(graph, roots, partial(_arranged, options=options))
    if options.simplify == "real" or (options.simplify and options.math == "fast"):
        graph, arranged = share_quotients(graph, arranged)
    return place_signs(graph, arranged) if options.simplify else (graph, arranged)


def dtype_name(dtype: Any) -> DTypeName:
    """The name of a dtype that kernels compute in, however it is given.

    Raises:
        InputError: for any other.
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    try:
        name = str(np.dtype(dtype))
    except TypeError:
        name = str(dtype)
    for choice in DTYPES:
        if name == choice:
            return choice
    raise InputError(
        f"dtype={name!r} is not a choice: use {', '.join(DTYPES[:-1])} or {DTYPES[-1]}"
    )


LEAST_DATA: Final = 4
"""Constants of one line from which on they are taken for data."""


def _require_range(graph: Graph, roots: Sequence[int], dtype: str) -> None:
    """Refuse constants of the user's that float32 does not hold; warn of data that it rounds."""
    if dtype == "float64":
        return
    parts = [(graph, roots), *((body.graph, body.yields) for body in regions(graph, roots))]
    for part, ends in parts:
        constants = [i for i, node in enumerate(part.nodes) if node[0] is CONST]
        values = {i: bits_float(part.nodes[i][1]) for i in constants}
        _require_float32(part, ends, values)
        if dtype == "float32":
            _warn_of_rounding(part, values)


def _require_float32(graph: Graph, roots: Sequence[int], values: dict[int, float]) -> None:
    largest = float(np.finfo(np.float32).max)
    beyond = {i for i, value in values.items() if largest < abs(value) < math.inf}
    if not beyond:
        return
    for i in reachable(graph, roots):
        if i in beyond:
            place = graph.place_of(i)
            raise InputError(
                f"the constant {graph.value(i)!r} is beyond float32's largest number, "
                f'{largest:.8g}; use float("inf"), or dtype="float64" with device="cpu"'
                + (f"\n  at {place}" if place else "")
            )


def _warn_of_rounding(graph: Graph, values: dict[int, float]) -> None:
    """Warn of data that a function takes from elsewhere: constants of one size that a line brings.

    What float32 rounds by much differs by little, and so has one exponent.
    """
    groups: dict[tuple[int, int], list[float]] = {}
    for i, value in values.items():
        groups.setdefault((graph.places[i], math.frexp(value)[1]), []).append(value)
    for (line, _), data in groups.items():
        if line and len(data) >= LEAST_DATA:
            warn_if_rounded(np.array(data), f"the data in {graph.sources[line]}", "float32")


class Clock:
    """The seconds that each stage took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, stage: str, run: Callable[[], Any]) -> Any:
        """The result of ``run``, noting how long it took."""
        start = time.perf_counter()
        with watch.stage(stage):
            result = run()
        self.seconds[stage] = time.perf_counter() - start
        return result
