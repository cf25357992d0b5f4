"""Kernels as PyTorch's functions: autograd goes through them, and so does ``torch.func``."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from symgrad.bridges.rows import Loss, RowFunction
from symgrad.errors import DifferentiationError, InputTypeError, SymgradError
from symgrad.expr.tracers.tree import Tree
from symgrad.values.parameters import rows_of
from symgrad.values.results import Result


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
def functions() -> Any:
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
            return result.of(functions().rows(function, row), tuple(row.shape[:-1]))
        return functions().pair(function, row)[0]

    return call
