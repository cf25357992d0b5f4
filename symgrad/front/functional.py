"""`value_and_grad`: JAX's verb, for functions of arrays and nested containers of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

import numpy as np

from symgrad.arrays.recording import Place, Recording, is_recorded
from symgrad.arrays.tape import open_tape
from symgrad.arrays.trace import gradients, nested_gradient
from symgrad.arrays.whole import WholeArray
from symgrad.backend import backend_of
from symgrad.expr.calls.transforms import chosen as chosen_of
from symgrad.expr.calls.transforms import value_and_grad_at
from symgrad.expr.derivatives.transpose import Checkpoint
from symgrad.expr.graph.node import Handle
from symgrad.expr.graph.written_out import prefer_whole
from symgrad.expr.laws.simplify import Level
from symgrad.expr.loops.open_loop import traced_graph
from symgrad.expr.tracers.array import ExprArray, TracedArray
from symgrad.expr.tracers.expression import Condition
from symgrad.expr.tracers.integers import SignedWord, Word
from symgrad.expr.tracers.tree import Block, Tree, flatten, numbers_as_array
from symgrad.expr.tracing.trace import EVERY_CALL, frozen_for
from symgrad.front.choice import LEAST_WHOLE, How, whole_or_elements
from symgrad.front.deriving import Making, gradient_kernel, options_of, pair_of
from symgrad.front.kernels import Kernel, shared
from symgrad.front.recall import Recall, Recallable, is_integers
from symgrad.front.whole import Nest, TracedCall, WholeTrace, require_countable, runner
from symgrad.kernel.host.memory import ResidentArray
from symgrad.mathlib.define import Math
from symgrad.optimize.starts import target_of
from symgrad.pipeline import DType, Options
from symgrad.report.progress import Asked, staged
from symgrad.targets import Device, DeviceChoice
from symgrad.values.arrays import real_numbers, warn_if_rounded

EXPRESSIONS = Handle, ExprArray, TracedArray
"""Arguments of whose trace the derivatives are."""

HALF: Final = 16
"""Bits of half a word."""


class Arguments:
    """The arguments of a call: what is traced of them is in ``arrays``, one after the other.

    ``nests`` has the arguments, taken apart, with a `Block` in the place of each of these.
    """

    def __init__(self, arguments: Sequence[Any], chosen: Sequence[int]) -> None:
        self.arrays: list[np.ndarray | ResidentArray] = []
        self.size = 0
        self.nests = [flatten(argument) for argument in arguments]
        for k in chosen:
            self._place(k, self._variable)
        self.wanted = self.size
        """The numbers that the gradient is taken for: they come first."""
        variables = len(self.arrays)
        for k in sorted({*range(len(arguments))} - {*chosen}):
            self._place(k, self._data)
        self.data = self.arrays[variables:]
        """The arrays, and floats, that the gradient is not taken for."""

    def _place(self, k: int, placed: Callable[[Any], Any]) -> None:
        leaves, tree = self.nests[k]
        self.nests[k] = [placed(leaf) for leaf in leaves], tree

    def _variable(self, leaf: Any) -> Any:
        if leaf is None:
            return None
        return self._traced(leaf if _is_there(leaf) else real_numbers(leaf, "an argument"))

    def _data(self, leaf: Any) -> Any:
        """Floating-point numbers are data; whole ones, and what is no number, say what to do."""
        if not isinstance(leaf, (list, float)) and not hasattr(leaf, "__array__"):
            return leaf
        if _is_there(leaf):
            return self._traced(leaf)
        try:
            array = np.asarray(leaf)
        except (TypeError, ValueError):
            return leaf
        if array.dtype.kind == "f":
            return self._traced(real_numbers(leaf, "an argument"))
        return array if isinstance(leaf, (list, ResidentArray)) else leaf

    def _traced(self, array: np.ndarray | ResidentArray) -> Block:
        block = Block("", self.size, array.shape)
        self.arrays.append(array)
        self.size += block.size
        return block

    @property
    def real(self) -> list[Any]:
        """All arrays, whole numbers as real ones."""
        return [
            a if isinstance(a, ResidentArray) or a.dtype.kind == "f" else a.astype(np.float64)
            for a in self.arrays
        ]

    def whole(
        self, arrays: Sequence[Any], chosen: Sequence[int], recording: Recording | None
    ) -> Iterator[Any]:
        """All arguments, with these arrays in the place of those that are traced.

        Integers are those of the recording, if there is one.
        """
        given, rest = iter(arrays), sorted({*range(len(self.nests))} - {*chosen})
        integers = None if recording is None else iter(recording.given)
        filled = {k: nested(self.nests[k], given, integers) for k in (*chosen, *rest)}
        return (filled[k] for k in range(len(self.nests)))

    @property
    def _device_arrays(self) -> list[ResidentArray]:
        """The arrays that are on a GPU."""
        return [a for a in self.arrays if isinstance(a, ResidentArray)]

    def device(self, choice: DeviceChoice) -> Any:
        """The device of a call: the user's choice, and without one that of the arrays."""
        arrays = self._device_arrays
        return target_of(None, *arrays) if arrays and choice is None else choice

    def stay(self, device: Device) -> bool:
        """Whether results stay on a device, as some of the arrays are on one."""
        return bool(self._device_arrays) and not backend_of(device).on_host


def flat_of(arrays: Sequence[Any], stays: bool) -> np.ndarray | ResidentArray:
    """The numbers of all arrays, on a GPU if they stay on one."""
    given: list[Any] = [a if stays else np.asarray(a) for a in arrays]
    return np.concatenate([a.reshape(-1) for a in given]) if given else np.empty(0)


def of_flat(nest: tuple[list[Any], Tree], flat: Any) -> Any:
    """A nest with the numbers of a flat array in the place of its blocks."""
    leaves, tree = nest
    return tree.nest(b.of(flat)[()] if isinstance(b, Block) else b for b in leaves)


def nested(
    nest: tuple[list[Any], Tree], arrays: Iterator[Any], integers: Iterator[Any] | None = None
) -> Any:
    """A nest with the next arrays in the place of its blocks, and of its arrays of integers."""
    leaves, tree = nest

    def part(leaf: Any) -> Any:
        if isinstance(leaf, Block):
            return next(arrays)
        return leaf if integers is None or not is_integers(leaf) else next(integers)

    return tree.nest(map(part, leaves))


WHOLE: Final = object()
"""The place of a whole array in a result."""


class Returned:
    """The result of a function of whole arrays: its ``arrays``, and if there are ``others``.

    What is recorded is neither: it follows from the call's integers. ``nest`` is the result, of the
    values of the arrays and of what is recorded, and keeps no array.
    """

    def __init__(self, result: Any) -> None:
        leaves, self.tree = flatten(result, _numbers)
        self.leaves = [*map(_plain, leaves)]
        self.arrays = [leaf for leaf in self.leaves if isinstance(leaf, WholeArray)]
        places = list(map(_place, self.leaves))
        self.others = any(p is not WHOLE and type(p) is not Place for p in places)
        self.nest: Nest = functools.partial(_returned, places, self.tree)


def _numbers(value: Any) -> tuple[list[Any], Tree] | None:
    """A list of numbers, or of such lists, is a leaf; one of traced values is taken apart."""
    return None if _holds_traced(value) else numbers_as_array(value)


def _holds_traced(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_traced, value))
    return isinstance(value, (WholeArray, *EXPRESSIONS)) or is_recorded(value)


def _plain(leaf: Any) -> Any:
    """A value in a result; of an array of expressions that are all numbers, these."""
    if not isinstance(leaf, ExprArray) or any(isinstance(e, Handle) for e in leaf.flat):
        return leaf
    return np.array(leaf.tolist())


def _place(leaf: Any) -> Any:
    """The place of a value in a result, or the value itself where it is always the same."""
    if is_recorded(leaf):
        return leaf.value if leaf.is_fixed else Place(leaf.number)
    return WHOLE if isinstance(leaf, WholeArray) else leaf


def _returned(
    places: Sequence[Any], tree: Tree, values: Iterator[Any], recorded: Sequence[Any]
) -> Any:
    """A result, with values in the places of its arrays and of what is recorded."""

    def part(place: Any) -> Any:
        if type(place) is Place:
            return recorded[place.number]
        return next(values) if place is WHOLE else place

    return tree.nest(map(part, places))


def _is_there(leaf: Any) -> TypeGuard[ResidentArray]:
    """Whether it is an array of numbers on a GPU."""
    return isinstance(leaf, ResidentArray) and leaf.dtype.kind == "f"


def value_and_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    simplify: Level = True,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
    progress: Asked = False,
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns the value of f and its gradient, as ``jax.value_and_grad`` does.

    f takes arrays, or dicts, lists, tuples and dataclasses of them, and returns a scalar.
    ``argnums`` are the arguments that the gradient is taken for: an int gives one gradient, a
    sequence a tuple of them, each nested as its argument; all their numbers are variables, and
    None among them stays None. Arguments given by name are never among them. With ``has_aux`` f
    returns the scalar and anything else, and the result is ``((value, aux), gradient)``. The
    options are those of `fused_forward_backward`.

    Of the other arguments floats and arrays of floats are variables of the kernel too, whose
    values cost nothing to change. All else f gets as it is. Integers, and arrays of them and of
    truth values, may change without another trace, where f does no more with them than Python's
    operators and NumPy's functions do: indices, masks, a rate that falls with the number of the
    step. (The second call with others is traced once more; those on a GPU are read back.)
    Constants of the kernel are integers of which f asks more, as ``range(k)`` does, bools, None,
    strings, any object, and what `functools.partial` gives.

    Data in float64 that float32 rounds coarsely beside their spread, such as dates, lead to a
    warning: see `PrecisionWarning`.

    Inside a traced function, and of expressions, the value and the gradient are expressions of the
    same trace, as those of `grad` are.

    A `DeviceArray` among the arrays stays where it is, and so do the value and the gradient then,
    unless ``device`` is the CPU.

    What f takes from its closure, from globals, attributes or arrays is what it is at the call: as
    in JAX without ``jit``, f is traced at every call, unless all that it refers to is seen to be
    unchanged. Equal traces share a kernel; a constant that has changed needs a new kernel. Where f
    never changes, `fused_forward_backward` traces it once.

    Raises:
        InputError: if argnums names no argument, or one twice. InputTypeError: where ``argnums``
        holds what is no real number. TraceError: if f returns something else.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> loss = lambda p, x: np.sum((p["w"] * x + p["b"])**2)
        >>> value, grad = sg.value_and_grad(loss)({"w": 2.0, "b": 1.0}, np.array([1.0, 2.0]))
        >>> value, float(grad["w"])
        (34.0, 26.0)
    """
    options = options_of(f, None, math, dtype, simplify, True, roll, checkpoint)
    recall: Recall[Recallable] = Recall(f)
    chosen_among = functools.cache(functools.partial(chosen_of, argnums))

    def run(*args: Any, **named: Any) -> tuple[Any, Any]:
        if open_tape() is not None:
            parts = nested_gradient(f, chosen_of(argnums, len(args)), has_aux, args, named)
            return alone((parts[0], tuple(parts[1])))
        if traced_graph() is not None or any(isinstance(a, EXPRESSIONS) for a in args):
            return value_and_grad_at(f, argnums, has_aux, args, named)
        chosen = chosen_among(len(args))
        if (call := recall.find(args, named, chosen)) is not None:
            warn_of(call.form.arrays[call.form.variables :])
            return alone(call.run())
        arguments = Arguments([*args, named], chosen)
        warn_of(arguments.data)

        def traced(trace: Callable[..., Recallable], *how: Any) -> tuple[Any, Any]:
            of_call = functools.partial(trace, f, arguments, chosen, has_aux, options, device, *how)
            program = recall.traced(of_call, args, named, chosen)
            return alone(program.run(arguments.real))

        return whole_or_elements(
            functools.partial(traced, _whole),
            functools.partial(traced, _by_elements),
            large=require_countable(arguments.arrays) >= LEAST_WHOLE or not arguments.size,
            one_call=True,
            varies=recall.varies(args, named, chosen),
        )

    def warn_of(data: Sequence[Any]) -> None:
        for array in data:
            if isinstance(array, np.ndarray):
                warn_if_rounded(array, "an argument", options.dtype)

    def alone(result: tuple[Any, tuple[Any, ...]]) -> tuple[Any, Any]:
        first, grads = result
        return first, grads[0] if isinstance(argnums, (int, np.integer)) else grads

    @functools.wraps(f)
    @frozen_for(EVERY_CALL)
    def staged_run(*args: Any, **named: Any) -> tuple[Any, Any]:
        if not progress:
            return run(*args, **named)
        with staged(progress, "calls"):
            return run(*args, **named)

    return staged_run


def _whole(
    f: Callable[..., Any], arguments: Arguments, chosen: Sequence[int], has_aux: bool,
    options: Options, device: DeviceChoice, how: How, recording: Recording | None,
) -> TracedCall:  # fmt: skip
    """A call as a program of whole arrays: its value, what else f returns, and the gradients.

    Raises:
        ElementsNeededError: where f has to be traced by its elements.
    """
    run = runner(options, arguments.device(device))
    traced = WholeTrace(f, arguments.real, options.checkpoint, how.by_elements)
    result = traced.call(lambda leaves: arguments.whole(leaves, chosen, recording))
    traced.require_whole(how.small)
    value, aux = pair_of(f, result) if has_aux else (result, None)
    variables = traced.variables[: len(arguments.arrays) - len(arguments.data)]
    loss, more = traced.number(value), Returned(aux)
    outputs = [loss, *gradients(loss, variables), *more.arrays]
    nests, aux_of = [arguments.nests[k] for k in chosen], more.nest

    def nest(results: Iterator[Any], recorded: Any) -> tuple[Any, tuple[Any, ...]]:
        first = next(results)
        number = first if isinstance(first, ResidentArray) else first.item()
        grads = tuple([nested(n, results) for n in nests])
        return ((number, aux_of(results, recorded)) if has_aux else number), grads

    stays, others = arguments.stay(run.device), has_aux and more.others
    return run.call(traced, outputs, stays, nest, others, recording)


@dataclass(frozen=True)
class ByElements:
    """A kernel of the elements of a call's arrays, to be run with other numbers."""

    compiled: Kernel
    stays: bool
    """Whether numbers are, and stay, on the GPU."""
    nest: Callable[[Any], Any]
    """The result of the call, of that of the kernel."""
    others: bool
    """Whether the result holds what the kernel does not compute."""

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result of a call with these arrays."""
        return self.nest(self.compiled.run(flat_of(arrays, self.stays)))


def _by_elements(
    f: Callable[..., Any], arguments: Arguments, chosen: Sequence[int], has_aux: bool,
    options: Options, device: DeviceChoice, _: Recording | None,
) -> ByElements:  # fmt: skip
    """The value and the gradients of a call, by a kernel of the elements of its arrays."""
    call = ElementsCall(f, arguments, has_aux)
    making = Making(options, arguments.device(device), make=shared)
    kernel = gradient_kernel(arguments.size, call.of_flat, making, arguments.wanted, has_aux)
    nests = [arguments.nests[k] for k in chosen]

    def nest(results: Any) -> tuple[Any, tuple[Any, ...]]:
        value, gradient, *aux = results
        grads = tuple([of_flat(nest, gradient) for nest in nests])
        return (value, call.nested(aux[0])) if has_aux else value, grads

    return ByElements(kernel, arguments.stay(kernel.device), nest, has_aux and not call.is_traced)


@dataclass(frozen=True)
class Kth:
    """The place of an expression, or of an array of them, among all that were computed.

    Kernels compute floats: 1 and 0 for truth values, and the two halves of words of 32 bits, since
    floats of 32 bits have no more than 24 of them.
    """

    k: int
    dtype: np.dtype | None
    """The type of truth values and integers; None of floats, which have the kernel's."""

    def of(self, values: Sequence[Any]) -> Any:
        """Its value, of that type."""
        if self.dtype is None:
            return values[self.k]
        if self.dtype == bool:
            return np.not_equal(values[self.k], 0)
        low, high = (np.asarray(values[k]).astype(np.int64) for k in (self.k, self.k + 1))
        return (low + (high << HALF)).astype(self.dtype)[()]


def _dtype_of(traced: Any) -> np.dtype | None:
    """The type of traced truth values or integers; None of floats, and of mixed values."""
    kinds = {type(e) for e in traced.flat} if isinstance(traced, np.ndarray) else {type(traced)}
    if kinds == {Condition}:
        return np.dtype(bool)
    words = kinds - {int, bool}
    if not words or not words <= {Word, SignedWord}:
        return None
    return np.dtype(np.int64 if len(words) > 1 else np.uint32 if Word in words else np.int32)


class ElementsCall:
    """f as a function of one flat array, which gives the expressions in what f returns.

    If that is a loss, ``has_aux`` says whether something stands beside it.
    """

    def __init__(
        self, f: Callable[..., Any], arguments: Arguments, has_aux: bool | None = None
    ) -> None:
        nests = arguments.nests

        @functools.wraps(f, ("__qualname__",), ())  # the name, and what is wrapped: all takes long
        def flat_function(v: Any) -> Any:
            *args, named = (of_flat(nest, v) for nest in nests)
            result = f(*args, **named)
            if has_aux is None:
                return self._traced_of(result)
            prefer_whole(0, traced_graph())
            is_pair = has_aux and isinstance(result, tuple) and len(result) == 2
            return (result[0], self._traced_of(result[1])) if is_pair else result

        self.of_flat = flat_function

    def _traced_of(self, result: Any) -> list[Any]:
        """The expressions in it, and arrays of them: the kernel computes these."""
        traced: list[Any] = []

        def noted(leaf: Any) -> Any:
            leaf = leaf.elements() if isinstance(leaf, TracedArray) else _plain(leaf)
            if not (
                isinstance(leaf, Handle) or (isinstance(leaf, np.ndarray) and leaf.dtype == object)
            ):
                return leaf
            place = Kth(len(traced), _dtype_of(leaf))
            words: Any = leaf
            halves = place.dtype is not None and place.dtype != bool
            traced.extend([words & (1 << HALF) - 1, words >> HALF] if halves else [leaf])
            return place

        leaves, self._tree = flatten(result, _numbers)
        self._leaves = [noted(leaf) for leaf in leaves]
        return traced or [0.0]

    @property
    def is_traced(self) -> bool:
        """Whether all that f returned is computed by the kernel."""
        return all(isinstance(leaf, Kth) for leaf in self._leaves)

    def nested(self, values: list[Any]) -> Any:
        """The result of f, of the values of its expressions."""
        return self._tree.nest(
            leaf.of(values) if isinstance(leaf, Kth) else leaf for leaf in self._leaves
        )
