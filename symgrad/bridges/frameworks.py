"""Kernels as functions of PyTorch and JAX, whose derivatives are kernels too."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from symgrad.backend import backend_of
from symgrad.errors import DifferentiationError, InputTypeError, SymgradError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving, jvp, vjp
from symgrad.expr.graph.node import INPUT, Graph
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.shapes import Computation, Output, unique
from symgrad.pipeline import Options, simplified
from symgrad.targets import Device
from symgrad.values.nested import Result, rows_of


class Loss(Protocol):
    """A loss of n numbers and its gradient, at rows (..., n) of them."""

    @property
    def n(self) -> int:
        """The number of variables."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that it is computed in."""
        ...

    @property
    def curvature(self) -> RowFunction | None:
        """The gradient as a function, whose derivative is symmetric; None where it has none."""
        ...

    def pair(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses (...) and the gradients (..., n)."""
        ...


@dataclass(frozen=True)
class PointLoss:
    """The loss of a kernel: ``run`` gives its columns, and its gradient is a function too."""

    run: Callable[[np.ndarray], Sequence[np.ndarray]]
    curvature: RowFunction

    @property
    def n(self) -> int:
        """The number of variables."""
        return self.curvature.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that the kernel computes in."""
        return self.curvature.dtype

    def pair(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses (...) and the gradients (..., n)."""
        batch = x.shape[:-1]
        rows = np.ascontiguousarray(x, self.dtype).reshape(math.prod(batch), self.n)
        loss, gradient = self.run(rows)
        return loss.reshape(batch), gradient.reshape(*batch, self.n)


@dataclass(frozen=True)
class DataLoss:
    """A loss over data: ``run`` gives it and its gradient (n,) for one set of parameters (n,)."""

    run: Callable[[np.ndarray], tuple[float, np.ndarray]]
    n: int
    dtype: np.dtype[Any]
    curvature: None = None

    def pair(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses (...) and the gradients (..., n), one set of parameters after the other."""
        batch = x.shape[:-1]
        loss, gradient = np.empty(batch, self.dtype), np.empty(x.shape, self.dtype)
        for k in np.ndindex(*batch):
            loss[k], gradient[k] = self.run(x[k])
        return loss, gradient


class RowFunction:
    """A function of n numbers that gives m, computed by a kernel that is made when first run.

    ``roots`` are nodes of a graph with n inputs. ``pulled`` and ``pushed`` are its products with
    a cotangent or a tangent, which are such functions too: so derivatives of any order can be had.
    """

    def __init__(
        self, graph: Graph, roots: Sequence[int], options: Options, device: Device
    ) -> None:
        self._graph, self._roots = graph, tuple(roots)
        self._options, self._device = options, device
        self.dtype = options.floats
        self.n, self.m = len(graph.names), len(self._roots)

    def run(self, x: np.ndarray) -> np.ndarray:
        """The results (..., m) at rows (..., n) of the function's dtype."""
        batch = x.shape[:-1]
        rows = np.ascontiguousarray(x, self.dtype).reshape(math.prod(batch), self.n)
        (values,) = self._program.run(rows)
        return values.reshape(*batch, self.m)

    @cached_property
    def _program(self) -> Any:
        simple, roots = simplified(self._graph, self._roots, self._options)
        computation = Computation(self._options.name, simple, (Output("values", tuple(roots)),))
        return backend_of(self._device).map(computation, self._options, self._options.name)

    @cached_property
    def pulled(self) -> RowFunction:
        """Rows x and g, side by side -> g times the Jacobian at x: the vector-Jacobian product."""

        def derive(graph: Graph, cotangents: list[int]) -> list[int | None]:
            seeds: dict[int, int] = {}
            for root, g in zip(self._roots, cotangents, strict=True):
                seeds[root] = graph.add(ops.add, seeds[root], g) if root in seeds else g
            return vjp(graph, seeds, self._inputs)

        return self._derived("g", self.m, derive)

    @cached_property
    def pushed(self) -> RowFunction:
        """Rows x and v, side by side -> the Jacobian at x times v: the Jacobian-vector product."""

        def derive(graph: Graph, tangents: list[int]) -> list[int | None]:
            return jvp(graph, dict(zip(self._inputs, tangents, strict=True)), self._roots)

        return self._derived("d", self.n, derive)

    @property
    def _inputs(self) -> list[int]:
        return [self._graph.intern((INPUT, k)) for k in range(self.n)]

    def _derived(
        self, prefix: str, count: int, derive: Callable[[Graph, list[int]], list[int | None]]
    ) -> RowFunction:
        """The function of ``count`` more inputs that a derivation finds."""
        graph = self._graph.copy()
        names = unique([*graph.names, *(f"{prefix}{k}" for k in range(count))])
        with deriving(graph):
            roots = derive(graph, [graph.input(name) for name in names[self.n :]])
            zero = graph.constant(0.0)
        options = replace(self._options, name=f"{self._options.name}_{prefix}")
        return RowFunction(graph, [zero if i is None else i for i in roots], options, self._device)


# Kernels as PyTorch's functions: autograd goes through them, and so does ``torch.func``.


@functools.cache
def torch() -> Any:
    """PyTorch."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise SymgradError("as_torch needs PyTorch: pip install 'symgrad[torch]'") from error


def read(value: Any, name: str) -> Any:
    """A user's values as a tensor of real numbers; gradients go to tensors in lists, too.

    Raises:
        InputTypeError: for what holds no real numbers, or none that can be read.
    """
    t = torch()
    try:
        parts = isinstance(value, (list, tuple)) and any(
            isinstance(v, (t.Tensor, list, tuple)) for v in value
        )
        tensor = t.stack([read(v, name) for v in value]) if parts else t.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputTypeError(f"{name} is not a tensor of real numbers: {error}") from error
    if tensor.is_complex() or tensor.is_meta or tensor.layout != t.strided:
        kind = "meta" if tensor.is_meta else f"{tensor.layout} {tensor.dtype}"
        raise InputTypeError(
            f"{name} is a tensor ({kind}): one of real numbers is needed, which is dense "
            "(x.to_dense()) and on a device; take x.real and x.imag apart"
        )
    return tensor


def to_host(x: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A tensor's numbers: its own memory, if it is on the host and has the dtype."""
    tensor_dtype = getattr(torch(), dtype.name)
    return x.detach().to("cpu", tensor_dtype).contiguous().numpy()


def like(values: np.ndarray, x: Any) -> Any:
    """An array as a tensor like another, in the array's memory where that can be."""
    dtype = x.dtype if x.is_floating_point() else None
    return torch().from_numpy(values).to(x.device, dtype)


def in_front(info: Any, in_dims: tuple[int | None, ...], tensors: tuple[Any, ...]) -> list[Any]:
    """Tensors whose axis of ``vmap`` is the first; those that lack it are repeated."""
    return [
        x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(tensors, in_dims, strict=True)
    ]


@functools.cache
def torch_functions() -> Any:
    """``rows(function, x)`` and ``pair(loss, x)``: the autograd functions, made when first used."""
    t = torch()

    forward_ad = t.autograd.forward_ad

    def outwards(rule: Callable[..., Any]) -> Callable[..., Any]:
        """A rule for ``jvp`` that forward modes around its own go through.

        PyTorch ends them all while it calls the rule: derivatives of it would be taken for 0.
        """

        def jvp(ctx: Any, _: None, v: Any) -> Any:
            with forward_ad._set_fwd_grad_enabled(True):
                saved = [forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors]
                return rule(ctx, saved, v)

        return jvp

    class Rows(t.autograd.Function):
        """A `RowFunction` at rows x (..., n)."""

        @staticmethod
        def forward(function: RowFunction, x: Any) -> Any:
            return like(function.run(to_host(x, function.dtype)), x)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[RowFunction, Any], output: Any) -> None:
            ctx.function, x = inputs
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> tuple[None, Any]:
            (x,) = ctx.saved_tensors
            return None, Rows.apply(ctx.function.pulled, t.cat([x, g], -1))

        @staticmethod
        @outwards
        def jvp(ctx: Any, saved: Sequence[Any], v: Any) -> Any:
            return Rows.apply(ctx.function.pushed, t.cat([*saved, v], -1))

        @staticmethod
        def vmap(info: Any, in_dims: Any, function: RowFunction, x: Any) -> tuple[Any, int]:
            (x,) = in_front(info, in_dims[1:], (x,))
            return Rows.apply(function, x), 0

    class Pair(t.autograd.Function):
        """A `Loss` and its gradient at rows x (..., n): the gradient is at hand for backward."""

        @staticmethod
        def forward(loss: Loss, x: Any) -> tuple[Any, Any]:
            value, gradient = loss.pair(to_host(x, loss.dtype))
            return like(value, x), like(gradient, x)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Loss, Any], output: tuple[Any, Any]) -> None:
            ctx.loss, x = inputs
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x, output[1])
            ctx.save_for_forward(x, output[1])

        @staticmethod
        def backward(ctx: Any, g: Any, direction: Any) -> tuple[None, Any]:
            x, gradient = ctx.saved_tensors
            parts = [] if g is None else [g[..., None] * gradient]
            if direction is not None:
                parts.append(product(ctx.loss, x, direction))
            return None, sum(parts[1:], parts[0]) if parts else None

        @staticmethod
        @outwards
        def jvp(ctx: Any, saved: Sequence[Any], v: Any) -> tuple[Any, Any]:
            x, gradient = saved
            return (gradient * v).sum(-1), product(ctx.loss, x, v)

        @staticmethod
        def vmap(info: Any, in_dims: Any, loss: Loss, x: Any) -> tuple[Any, tuple[int, int]]:
            (x,) = in_front(info, in_dims[1:], (x,))
            return Pair.apply(loss, x), (0, 0)

    def product(loss: Loss, x: Any, direction: Any) -> Any:
        """The Hessian times a direction: it is symmetric, so both modes take the cheaper one."""
        if loss.curvature is None:
            raise DifferentiationError(
                "second derivatives of a loss over data are not available here: use sg.fused_hvp"
            )
        return Rows.apply(loss.curvature.pushed, t.cat([x, direction], -1))

    return SimpleNamespace(rows=Rows.apply, pair=Pair.apply)


def as_torch(function: Loss | RowFunction, tree: Tree, result: Result) -> Callable[[Any], Any]:
    """A function of tensors nested as the tree that gives its result, or the loss, as tensors."""
    t = torch()

    @t.compiler.disable
    def call(x: Any) -> Any:
        row = rows_of(tree, x, "x", read=read, xp=t)
        if isinstance(function, RowFunction):
            return result.of(torch_functions().rows(function, row), tuple(row.shape[:-1]))
        return torch_functions().pair(function, row)[0]

    return call


# Kernels as JAX's functions: ``jit``, ``vmap`` and ``grad`` go through them.


@functools.cache
def jax() -> Any:
    """JAX."""
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise SymgradError("as_jax and from_jax need JAX: pip install 'symgrad[jax]'") from error


@functools.cache
def jax_functions() -> Any:
    """``rows(function, x)`` and ``pair(loss, x)``: JAX's functions, made when first used."""
    j, jnp = jax(), jax().numpy

    def outside(run: Callable[..., Any], x: Any, *tails: tuple[int, ...]) -> Any:
        """The results of a function of NumPy's arrays, each of the batch of x and its tail."""
        shapes = [j.ShapeDtypeStruct((*x.shape[:-1], *tail), x.dtype) for tail in tails]

        def call(x: Any) -> list[np.ndarray]:
            return [np.asarray(result, shapes[0].dtype) for result in run(np.asarray(x))]

        return j.pure_callback(call, shapes, x, vmap_method="expand_dims")

    @functools.partial(j.custom_vjp, nondiff_argnums=(0,))
    def rows(function: RowFunction, x: Any) -> Any:
        """A `RowFunction` at rows x (..., n)."""
        return outside(lambda x: [function.run(x)], x, (function.m,))[0]

    def rows_forward(function: RowFunction, x: Any) -> tuple[Any, Any]:
        return rows(function, x), x

    def rows_backward(function: RowFunction, x: Any, g: Any) -> tuple[Any]:
        return (rows(function.pulled, jnp.concatenate([x, g], -1)),)

    rows.defvjp(rows_forward, rows_backward)

    @functools.partial(j.custom_vjp, nondiff_argnums=(0,))
    def pair(loss: Loss, x: Any) -> tuple[Any, Any]:
        """A `Loss` and its gradient at rows x (..., n): the gradient is at hand for backward."""
        value, gradient = outside(loss.pair, x, (), (loss.n,))
        return value, gradient

    def pair_forward(loss: Loss, argument: Any) -> tuple[Any, Any]:
        value, gradient = pair(loss, argument.value)
        return (value, gradient), (argument.value, gradient)

    def pair_backward(loss: Loss, residuals: tuple[Any, Any], cotangents: Any) -> tuple[Any]:
        x, gradient = residuals
        g, direction = cotangents
        zero = j.custom_derivatives.SymbolicZero
        pulled = jnp.zeros_like(x) if isinstance(g, zero) else g[..., None] * gradient
        if isinstance(direction, zero):
            return (pulled,)
        if loss.curvature is None:
            raise DifferentiationError(
                "second derivatives of a loss over data are not available here: use sg.fused_hvp"
            )
        both = jnp.concatenate([x, direction], -1)
        return (pulled + rows(loss.curvature.pushed, both),)

    pair.defvjp(pair_forward, pair_backward, symbolic_zeros=True)
    return SimpleNamespace(rows=rows, pair=pair)


def as_jax(function: Loss | RowFunction, tree: Tree, result: Result) -> Callable[[Any], Any]:
    """A function of arrays nested as the tree that gives its result, or the loss, as JAX's."""
    jnp = jax().numpy

    def read(value: Any, name: str) -> Any:
        try:
            array = jnp.asarray(value)
        except (TypeError, ValueError) as error:
            raise InputTypeError(f"{name} is not an array of real numbers: {error}") from error
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise InputTypeError(f"{name} holds {array.dtype}: take x.real and x.imag apart")
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)

    def call(x: Any) -> Any:
        row = rows_of(tree, x, "x", read=read, xp=jnp)
        if isinstance(function, RowFunction):
            return result.of(jax_functions().rows(function, row), row.shape[:-1])
        return jax_functions().pair(function, row)[0]

    return call
