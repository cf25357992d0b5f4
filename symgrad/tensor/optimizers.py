"""Updates of parameters that are nests of arrays: `adamw_update` and `clip_by_global_norm`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from symgrad.backend import backend_of
from symgrad.errors import InputError, UnsupportedError
from symgrad.expr import ops
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.tree import Tree, flatten
from symgrad.kernel.host.memory import ResidentArray
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.updates import (
    NUMBERS_PER_INVOCATION,
    RANGES,
    SCALE,
    SQUARES_PER_GROUP,
    EachNumber,
    Shared,
    SquareSums,
)
from symgrad.optimize.arguments import number
from symgrad.optimize.method import Rate, Rule
from symgrad.optimize.rules import AdamW, shortened
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.dispatches import ALONE_INVOCATIONS
from symgrad.tensor.formulas import Formulas
from symgrad.tensor.kernel import Shape, TensorKernel, Work

ARRAYS_PER_KERNEL: Final = 7
"""Arrays whose squares one kernel adds up."""

CACHED: Final = 64
"""Most updates of other numbers of arrays that are kept."""


@dataclass(frozen=True)
class Update(Work):
    """The work of an update of ``count`` arrays: see `symgrad.tensor.kernel.Work`.

    With a ``rule`` it takes the arrays, their gradients, those of each part of the rule's memory,
    and what they share, and gives all but the gradients anew. Without one it takes gradients, and
    gives them, and the factor that they were multiplied with beside the length that they had. The
    length of all gradients is ``limit`` at most, if there is one.
    """

    rule: Rule | None
    limit: float | None
    options: Options
    count: int = 1

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.options.name

    @cached_property
    def memory(self) -> tuple[Any, ...]:
        """The memory of the rule for one number."""
        return () if self.rule is None else tuple(self.rule.start(1))

    @property
    def parts(self) -> int:
        """The parts of the memory that each number has."""
        return sum(np.ndim(part) > 0 for part in self.memory)

    @property
    def first(self) -> np.ndarray:
        """The first values of what numbers share: the other parts, and the number of steps."""
        alone = [float(part) for part in self.memory if not np.ndim(part)]
        return np.array([*alone, 0.0])

    @property
    def kinds(self) -> list[str]:
        """The arrays that each array comes with, itself first."""
        if self.rule is None:
            return ["g"]
        return ["x", "g", *(f"m{n}_" for n in range(self.parts))]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that it takes."""
        return self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        arrays = [f"{kind}{n}" for kind in self.kinds for n in range(self.count)]
        return (*arrays, *["shared"] * (self.rule is not None))

    @property
    def cotangents(self) -> tuple[str, ...]:
        """None: there is no gradient of an update."""
        return ()

    def of(self, count: int) -> Update:
        """The update of other numbers of arrays."""
        return _counted(self, count)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the results: see `symgrad.tensor.kernel.Work`."""
        if self.rule is None:
            return [*map(tuple, shapes), (2,)]
        all_shapes = [tuple(s) for s in shapes]
        return [*all_shapes[: self.count], *all_shapes[2 * self.count :]]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call: see `symgrad.tensor.kernel.Work`."""
        return _Steps(self, shapes, device_target).launch

    # formulas ------------------------------------------------------------------------------------

    def after(self, v: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """A number, and its own parts of the memory, after a step; and what numbers share.

        ``v`` are the number, its gradient and its memory, what numbers share, and the factor of
        gradients.
        """
        assert self.rule is not None, "there is a rule"
        own, shared = iter(v[2 : 2 + self.parts]), iter(v[2 + self.parts :])
        memory = tuple(array([next(own)]) if np.ndim(p) else next(shared) for p in self.memory)
        step, factor = next(shared), next(shared)
        x, memory = self.rule.update(array([v[0]]), array([v[1] * factor]), memory, step)
        each = [part[0] for part, p in zip(memory, self.memory, strict=True) if np.ndim(p)]
        common = [part for part, p in zip(memory, self.memory, strict=True) if not np.ndim(p)]
        return [x[0], *each], [*common, step + 1.0]

    def shared(self, *v: Any) -> list[Any]:
        """Shared numbers after a step, and behind them the factor of gradients, and their length.

        ``v`` are the sums of squares, if there is a limit, and what they share.
        """
        common = list(v if self.limit is None else v[RANGES:])
        length, factor = (0.0, 1.0)
        if self.limit is not None:
            length = _length(SCALE[self.options.dtype], *v[:RANGES])
            bounded = shortened(length, self.limit)
            factor = functions.where(ops.isfinite(length), bounded, math.nan)
        if self.rule is not None:
            number = [0.0] * (2 + self.parts)
            common = self.after([*number, *common, 1.0])[1]
        return [*common, factor, *[length] * (self.rule is None)]


def _length(scale: float, usual: Any, large: Any, small: Any) -> Any:
    """The root of the sum of all squares: see `SquareSums`."""
    with_large = np.sqrt(large + (usual / scale) / scale) * scale
    with_small = np.sqrt(usual + (small / scale) / scale)
    only_small = np.sqrt(small) / scale
    rest = functions.where(usual == 0.0, only_small, with_small)
    return functions.where(large == 0.0, rest, with_large)


@lru_cache(CACHED)
def _counted(work: Update, count: int) -> Update:
    """The work for so many arrays; where there are none, no length is limited."""
    return replace(work, count=count, limit=work.limit if count else None)


class _Steps:
    """The dispatches for arrays of certain shapes."""

    def __init__(self, work: Update, shapes: Sequence[Shape], device_target: Target) -> None:
        self.work, self.device_target = work, device_target
        self.shapes = [tuple(s) for s in shapes]
        self.sizes = [math.prod(s) for s in self.shapes[: work.count]]
        self.target = device_target.of_width(ALONE_INVOCATIONS)
        self.many = len(work.first) if work.rule is not None else 0
        """The numbers that are shared."""

    @property
    def launch(self) -> Launch:
        """All of it."""
        work = self.work
        inputs = [Array(*both) for both in zip(work.arguments, self.shapes, strict=True)]
        kinds = ["x", *work.kinds[2:]] if work.rule is not None else work.kinds
        arrays = {a.name: a for a in inputs}
        outputs = [
            Array(f"new_{kind}{n}", arrays[f"{kind}{n}"].shape)
            for kind in kinds
            for n in range(work.count)
        ]
        last = Array("new_shared", (self.many,)) if work.rule is not None else Array("given", (2,))
        scratch = [] if work.rule is None else [Array("given", (self.many + 1,))]
        if work.limit is not None:
            scratch.append(Array("sums", (RANGES * sum(map(stretches, self.sizes)),)))
        steps = [*self._squares(), self._shared(), *map(self._each, range(work.count))]
        return Launch(work.name, tuple(inputs), (*outputs, last), tuple(scratch), tuple(steps))

    def _squares(self) -> list[Dispatch]:
        """The sums of squares of gradients, several arrays at once."""
        if self.work.limit is None:
            return []
        groups = [*map(stretches, self.sizes)]
        ends = [0, *itertools.accumulate(groups)]
        return [
            self._squares_of(range(n, min(n + ARRAYS_PER_KERNEL, len(groups))), ends)
            for n in range(0, len(groups), ARRAYS_PER_KERNEL)
        ]

    def _squares_of(self, numbers: range, ends: Sequence[int]) -> Dispatch:
        start, groups = ends[numbers[0]], ends[numbers[-1] + 1] - ends[numbers[0]]
        words = [("start", start)]
        for i, n in enumerate(numbers):
            words += [(f"size{i}", self.sizes[n]), (f"first{i}", ends[n] - start)]
        arrays = [*((f"x{i}", f"g{n}") for i, n in enumerate(numbers)), ("sums", "sums")]
        target = self.target.in_grid(groups)
        count = groups * target.width
        program = SquareSums(len(numbers), self.work.options.dtype)
        return Dispatch(program, target, tuple(arrays), count, groups, tuple(words))

    def _shared(self) -> Dispatch:
        work, limited = self.work, self.work.limit is not None
        names = [
            *(f"sum{n}" for n in range(RANGES * limited)),
            *(f"s{n}" for n in range(self.many)),
        ]
        formula = Formulas(work.shared, tuple(names), work.options).value()
        program = Shared(formula, self.many, limited)
        arrays = [("given", "given"), *[("sums", "sums")] * limited]
        arrays += [("old", "shared"), ("new", "new_shared")] if self.many else []
        words = [("many", sum(map(stretches, self.sizes)))] * limited
        return Dispatch(program, self.target, tuple(arrays), self.target.width, 1, tuple(words))

    def _each(self, n: int) -> Dispatch:
        """The update of an array."""
        work, kinds = self.work, self.work.kinds
        names = [*kinds, *(f"s{i}" for i in range(self.many)), "factor"]
        if work.rule is None:
            formula = Formulas(lambda g, factor: g * factor, tuple(names), work.options).value()
            results = kinds
        else:
            update = Formulas(lambda *v: work.after(v)[0], tuple(names), work.options)
            formula, results = update.value(), ["x", *kinds[2:]]
        program = EachNumber(formula, len(kinds), self.many + 1)
        arrays = [(f"x{i}", f"{kind}{n}") for i, kind in enumerate(kinds)]
        arrays += [(f"y{i}", f"new_{kind}{n}") for i, kind in enumerate(results)]
        arrays.append(("given", "given"))
        groups = -(-self.sizes[n] // (NUMBERS_PER_INVOCATION * self.target.width))
        target = self.target.in_grid(groups)
        words = (("size", self.sizes[n]),)
        return Dispatch(program, target, tuple(arrays), groups * target.width, groups, words)


def stretches(size: int) -> int:
    """The groups that add up the squares of so many numbers."""
    return -(-size // SQUARES_PER_GROUP)


class UpdateState(NamedTuple):
    """The state of an optimiser from step to step.

    ``memory`` are nests like the parameters, for AdamW the mean gradients and the mean squares.
    ``shared`` is one array of what all parameters share; its last number counts the steps.
    """

    memory: tuple[Any, ...]
    shared: Any


class _OverNests(TensorKernel):
    """A kernel whose arguments are nests of arrays."""

    _work: Update

    def _work_of(self, count: int) -> Update:
        arrays = (count - (self._work.rule is not None)) // len(self._work.kinds)
        return self._work.of(arrays)

    def vjp(self, *arrays: Any) -> NoReturn:
        """There is no gradient of an update.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"{self.name} updates arrays, and has no vjp")

    def _done(self, arrays: Sequence[Sequence[Any]], *more: Any) -> tuple[list[Any], list[Any]]:
        """The results for arrays by their kinds: those with elements, and what comes behind them.

        Arrays without elements are what they are.
        """
        full = [n for n, a in enumerate(arrays[0]) if all(_shape(a))]
        operands = [kind[n] for kind in arrays for n in full]
        results = self._call("run", [*operands, *more], self._work_with(len(operands) + len(more)))
        return full, results

    def _own(self, x: np.ndarray, *beside: Any) -> Any:
        """An array where the others are."""
        on_device = any(isinstance(a, ResidentArray) for a in beside)
        return backend_of(self.device).array(x, x.dtype) if on_device else x


class AdamWUpdate(_OverNests):
    """Steps of AdamW over nests of arrays: see `adamw_update`."""

    def run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, params: Any, gradients: Any, state: UpdateState | None = None
    ) -> Any:
        """The parameters after a step, and the state behind it.

        Raises:
            InputError: if gradients or the state are nested otherwise, or have other shapes.
            InputTypeError: for what holds no real numbers, or is on another device.
        """
        leaves, tree = flatten(params)
        slopes = _like(tree, gradients, leaves, "gradients")
        state = self.start(params) if state is None else state
        memory = [_like(tree, part, leaves, "state.memory") for part in state.memory]
        full, results = self._done([leaves, slopes, *memory], state.shared)
        many = len(full)
        parts = [results[n : n + many] for n in range(0, len(results) - 1, many)] if many else []
        updated = [
            _nested(tree, kind, full, part)
            for kind, part in zip([leaves, *memory], parts or [[]] * (1 + len(memory)), strict=True)
        ]
        return updated[0], UpdateState(tuple(updated[1:]), results[-1])

    __call__ = run

    def start(self, params: Any) -> UpdateState:
        """The state before the first step: zeros, beside the parameters."""
        leaves, tree = flatten(params)
        zeros = [self._own(np.zeros(_shape(a), self.dtype), a) for a in leaves]
        memory = tuple(tree.nest(iter(zeros), None) for _ in range(self._work.parts))
        shared = self._own(self._work.first.astype(self.dtype), *leaves)
        return UpdateState(memory, shared)


class ClipByGlobalNorm(_OverNests):
    """Nests of arrays, clipped together: see `clip_by_global_norm`."""

    def run(self, gradients: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradients, multiplied with one factor, and the norm that they had.

        Raises:
            InputTypeError: for what holds no real numbers, or is on another device.
        """
        leaves, tree = flatten(gradients)
        if not any(all(_shape(a)) for a in leaves):
            return gradients, self._own(np.zeros(1, self.dtype), *leaves)[0]
        full, results = self._done([leaves])
        return _nested(tree, leaves, full, results[:-1]), results[-1][1]

    __call__ = run


def _like(tree: Tree, value: Any, leaves: Sequence[Any], what: str) -> list[Any]:
    """The arrays of a nest like another one, of the shapes of its arrays."""
    parts = list(tree.parts(value, what))
    for part, leaf in zip(parts, leaves, strict=True):
        if _shape(part) != _shape(leaf):
            raise InputError(
                f"{what} has an array of shape {_shape(part)} for a parameter of shape "
                f"{_shape(leaf)}"
            )
    return parts


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array, or of what becomes one."""
    return value.shape if isinstance(value, (ResidentArray, np.ndarray)) else np.shape(value)


def _nested(tree: Tree, leaves: Sequence[Any], full: Sequence[int], results: Sequence[Any]) -> Any:
    """The nest with results in the place of arrays that have elements."""
    by_place = dict(zip(full, results, strict=True))
    return tree.nest((by_place.get(n, leaf) for n, leaf in enumerate(leaves)), None)


def adamw_update(
    lr: Rate = 0.001,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    max_norm: float | None = None,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> AdamWUpdate:
    """The kernel of a step of `AdamW` for parameters that are arrays, nested as you like.

    ``run(params, gradients, state)`` returns the parameters after a step and the next state; at the
    first step there is none. Nests are dicts, lists, tuples and dataclasses. Everything is done in
    one submit, and the rule is that of `AdamW`: ``lr`` is a number, or a function of the steps
    done. With ``max_norm`` the gradients are first clipped, as by `clip_by_global_norm`.

    Raises:
        InputError: for a ``max_norm`` that is not above 0.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> update = sg.adamw_update(lr=0.1, weight_decay=0.0, device="cpu")
        >>> params, state = {"w": np.ones((2, 2)), "b": np.zeros(2)}, None
        >>> for _ in range(100):
        ...     gradients = {"w": 2 * params["w"], "b": 2 * (params["b"] - 3.0)}
        ...     params, state = update.run(params, gradients, state)
        >>> bool(abs(params["w"]).max() < 0.05), bool(abs(params["b"] - 3.0).max() < 0.05)
        (True, True)
    """
    rule = AdamW(lr, b1, b2, eps, weight_decay)
    limit = None if max_norm is None else _limit(max_norm)
    options = _options("adamw_update", math, dtype)
    return AdamWUpdate(Update(rule, limit, options), options, device)


def clip_by_global_norm(
    max_norm: float, *, device: DeviceChoice = None, math: Any = "accurate", dtype: Any = "float32"
) -> ClipByGlobalNorm:
    """The kernel that clips gradients, arrays nested as you like, to a norm of all together.

    ``run(gradients)`` returns these, multiplied with ``max_norm / norm`` where that is below 1, and
    the norm. Squares are added up in a fixed order, scaled where they would overflow or underflow,
    and those of numbers from 2**-48 to 2**48 with what rounding takes kept. If the norm is not
    finite, all results are NaN.

    Raises:
        InputError: for a ``max_norm`` that is not above 0.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> clip = sg.clip_by_global_norm(1.0, device="cpu")
        >>> (a, b), norm = clip.run([np.array([3.0]), np.array([0.0, 4.0])])
        >>> float(norm), a.tolist(), b.tolist()
        (5.0, [0.6000000238418579], [0.0, 0.800000011920929])
    """
    options = _options("clip_by_global_norm", math, dtype)
    return ClipByGlobalNorm(Update(None, _limit(max_norm), options), options, device)


def _limit(max_norm: float) -> float:
    limit = number(max_norm, "max_norm")
    if not limit > 0.0:
        raise InputError(f"max_norm={max_norm}: use a number above 0")
    return limit


def _options(name: str, math: Any, dtype: Any) -> Options:
    return Options(name, math=math, dtype=dtype_name(dtype), comments=False)
