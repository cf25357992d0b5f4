"""`network`: functions of arrays that call kernels, and the gradients of all their arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from symgrad.arrays.kernels import kernels_of
from symgrad.arrays.recording import Recording
from symgrad.arrays.tape import open_tape
from symgrad.arrays.trace import pulled_back
from symgrad.arrays.whole import WholeArray
from symgrad.backend import backend_of
from symgrad.errors import InputError, InputTypeError
from symgrad.expr.tracers.tree import Tree, flatten
from symgrad.front.functional import Returned
from symgrad.front.recall import Recall
from symgrad.front.whole import Runner, TracedCall, WholeTrace, runner
from symgrad.kernel.host.memory import ResidentArray
from symgrad.optimize.starts import target_of
from symgrad.pipeline import Options
from symgrad.report.kernel import KernelBase
from symgrad.values.arrays import name_of, real_numbers

PRECISIONS: Final = "float32", "float32x2", "float64"
"""The dtypes of kernels, the most precise last."""


class Network:
    """A function of arrays that calls kernels, with its gradients: see `network`.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.linear(sg.tanh, device="cpu")
        >>> twice = sg.network(lambda x, W, b: layer(layer(x, W, b), W, b))
        >>> isinstance(twice, sg.Network), twice(np.zeros((1, 2)), np.eye(2), np.zeros(2)).tolist()
        (True, [[0.0, 0.0]])
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._runs, self._vjps = _Calls(f, False), _Calls(f, True)

    def run(self, *arguments: Any) -> Any:
        """The result of the function.

        Raises:
            TraceError: where the function does with arrays what cannot be traced.
        """
        if open_tape() is not None:
            return self._f(*arguments)
        return self._runs.run(*arguments)[0]

    __call__ = run

    def vjp(self, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        """The result and the gradients: the cotangent of the result comes behind the arguments.

        The gradients are nested as the arguments are, in a tuple, and where these are on a device
        they are too. The cotangent is nested as the result is; of a number it is one.

        Raises:
            InputError: for a cotangent of another shape than the result. TraceError: where the
                function does with arrays what cannot be traced.
        """
        if not arguments:
            raise InputError(f"vjp of {self!r} takes a cotangent after the arguments")
        if open_tape() is not None:
            raise InputTypeError(
                "vjp cannot be called within a traced function: use sg.grad or sg.value_and_grad"
            )
        return self._vjps.run(*arguments)

    def __repr__(self) -> str:
        return f"<symgrad network {getattr(self._f, '__name__', self._f)!s}>"


def network(f: Callable[..., Any]) -> Network:
    """A function of arrays that calls kernels of arrays, with the gradients of all its arguments.

    ``f`` takes arrays, nested as you like, and gives an array or a nest of them. It calls kernels
    of arrays, such as `linear`, `rowwise` or `selective_scan` make, and does with arrays what
    NumPy does, as functions of `jit` do: what stands between kernels is compiled together. It is
    traced at every call, so each one may take another path, unless all that it refers to is seen to
    be unchanged; equal traces share what is compiled.

    Arrays that are on a device stay there. Without any, the kernels' device computes. What stands
    between kernels is in their precision; without kernels in float64 if an argument is. Layers keep
    what their activations are of.

    Raises:
        InputTypeError: if f is no function.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> hidden, out = sg.linear(sg.tanh, device="cpu"), sg.linear(device="cpu")
        >>> @sg.network
        ... def loss(p, x, y):
        ...     output = out(hidden(x, p["W"], p["b"]), p["V"], p["c"])
        ...     return ((output - y) ** 2).mean()
        >>> p = {"W": np.eye(2), "b": np.zeros(2), "V": np.ones((1, 2)), "c": np.zeros(1)}
        >>> value, (slopes, dx, dy) = loss.vjp(p, [[0.0, 0.0], [0.0, 0.0]], [[1.0], [3.0]], 1.0)
        >>> float(value), slopes["c"].tolist(), slopes["b"].tolist()
        (5.0, [-4.0], [-4.0, -4.0])
    """
    if not callable(f):
        raise InputTypeError(f"network takes a function that calls kernels, not {f!r}")
    return Network(f)


class _Calls:
    """The calls of one kind of a function: its results, or of them and a cotangent gradients too.

    A call like one that came before is not traced where nothing can have changed: see `Recall`.
    """

    def __init__(self, f: Callable[..., Any], has_cotangent: bool) -> None:
        self._f, self._has_cotangent, self._recall = f, has_cotangent, Recall(f)

    def run(self, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        """The result, and the gradients."""
        everywhere = tuple(range(len(arguments)))
        if (call := self._recall.find(arguments, {}, everywhere)) is not None:
            return call.run()
        nests = [flatten(argument) for argument in arguments]
        arrays = [_array(leaf) for leaves, _ in nests for leaf in leaves]
        start = len(arrays) - len(nests[-1][0]) if self._has_cotangent else len(arrays)
        trace = functools.partial(self._program, arrays, start, [tree for _, tree in nests])
        return self._recall.traced(trace, arguments, {}, everywhere).run(arrays)

    def _program(
        self, arrays: Sequence[Any], start: int, trees: Sequence[Tree], _: Recording | None
    ) -> TracedCall:
        """The program of a call whose cotangent's arrays ``start`` behind all others."""
        traced = WholeTrace(self._f, arrays)
        *primals, cotangent = trees if self._has_cotangent else (*trees, Tree())

        def filled(whole: Sequence[WholeArray]) -> Iterator[Any]:
            given = iter(whole)
            return iter([*(tree.nest(given, None) for tree in primals), {}])

        returned = Returned(traced.call(filled))
        gradients: list[WholeArray] = []
        if self._has_cotangent:
            given = cotangent.nest(iter(traced.variables[start:]))
            seeds = list(returned.tree.parts(given, "the cotangent"))
            gradients = _gradients(returned.leaves, seeds, traced.variables[:start])
        on_device = [a for a in arrays if isinstance(a, ResidentArray)]
        run = _runner(kernels_of(traced.tape), arrays, on_device)
        stays = bool(on_device) and not backend_of(run.device).on_host

        result_of, has_slopes = returned.nest, bool(gradients)

        def nest(values: Iterator[Any], recorded: Any) -> tuple[Any, tuple[Any, ...]]:
            result = result_of(values, recorded)
            slopes = primals if has_slopes else ()
            return result, tuple([tree.nest(values, None) for tree in slopes])

        return run.call(traced, [*returned.arrays, *gradients], stays, nest, returned.others)


def _gradients(
    results: Sequence[Any], cotangents: Sequence[Any], wrt: Sequence[WholeArray]
) -> list[WholeArray]:
    """The gradients of arguments, for cotangents of all results."""
    pairs: list[tuple[WholeArray, WholeArray]] = []
    for y, g in zip(results, cotangents, strict=True):
        if not isinstance(g, WholeArray):
            raise InputError(
                f"the cotangent of an array must be one array, not a {type(g).__name__}"
            )
        if np.shape(y) != np.shape(g):
            raise InputError(f"the cotangent has shape {np.shape(g)}, the result {np.shape(y)}")
        if isinstance(y, WholeArray) and y.kind == "f":
            pairs.append((y, g))
    return pulled_back([y for y, _ in pairs], [g for _, g in pairs], wrt)


def _runner(kernels: Sequence[KernelBase], arrays: Sequence[Any], on_device: Any) -> Runner:
    """Where programs run, and in which precision."""
    device: Any = "cpu"
    if on_device:
        device = target_of(None, *on_device)
    elif len({k.device for k in kernels}) == 1:
        device = kernels[0].device
    names = {k.precision for k in kernels} or {name_of(a.dtype) for a in arrays}
    known = names & {*PRECISIONS}
    return runner(_options(max(known, default="float32", key=PRECISIONS.index)), device)


@functools.cache
def _options(dtype: Any) -> Options:
    return Options("network", dtype=dtype)


def _array(value: Any) -> Any:
    """An argument as a program takes it."""
    if isinstance(value, ResidentArray):
        return value
    array = np.asarray(real_numbers(value, "a network"))
    return array if array.dtype.kind == "f" else array.astype(np.float64)
