"""Updates of parameters that are nests of arrays: `adamw_update` and `clip_by_global_norm`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from symgrad.backend import backend_of
from symgrad.errors import InputError, UnsupportedError
from symgrad.expr.tracers.tree import Tree, flatten
from symgrad.kernel.host.resident import ResidentArray
from symgrad.optimize.arguments import number
from symgrad.optimize.method import Rate
from symgrad.optimize.rules import AdamW
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.kernel import TensorKernel
from symgrad.tensor.updates import Update


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
