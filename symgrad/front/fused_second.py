"""The verbs for second derivatives: kernels of Hessians, and of their products with vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, overload

from symgrad.backend import placed
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.derivatives.strips import Checkpoint
from symgrad.expr.laws.simplify import Level
from symgrad.expr.tracers.tree import Sizes
from symgrad.expr.tracing.trace import Trace, require_feasible, scalar
from symgrad.front.deriving import (
    Making,
    dense,
    kernel_of,
    matrix_of,
    names_of,
    options_of,
    seed_of,
)
from symgrad.front.kernels import Kernel, assemble
from symgrad.front.keywords import (
    Function,
    MatrixOfPoints,
    MatrixOfRows,
    MatrixOfSums,
    OfPoints,
    OfRows,
    OfSums,
    asked_of_rows,
    penalty_of,
)
from symgrad.front.running import Inputs
from symgrad.kernel.shapes import unique
from symgrad.mathlib.define import Math
from symgrad.pipeline import Derivation, DType, Wanted, build, size
from symgrad.report.progress import Asked, staged
from symgrad.rows.each_row import RowsKernel, rows_kernel
from symgrad.rows.kernel import DataKernel
from symgrad.rows.loss import Request
from symgrad.rows.sums import SumsKernel
from symgrad.targets import DeviceChoice
from symgrad.values.parameters import of_row, variables_of
from symgrad.values.results import Scalar, derivatives
from symgrad.values.tables import ColumnNames, NanPolicy, Reduce


@overload
def fused_hessian(n: Sizes, f: Function, **options: Unpack[MatrixOfPoints]) -> Kernel: ...
@overload
def fused_hessian(
    n: Sizes, f: Function, **options: Unpack[MatrixOfSums]
) -> SumsKernel | RowsKernel: ...
@overload
def fused_hessian(n: Sizes, f: Function, **options: Unpack[MatrixOfRows]) -> RowsKernel: ...
def fused_hessian(
    n: Sizes,
    f: Function,
    *,
    mode: Mode = "auto",
    sparse: bool = False,
    row: int | None = None,
    columns: ColumnNames | None = None,
    codes: Mapping[str, Any] | None = None,
    reduce: Reduce | None = "sum",
    weights: str | int | None = None,
    nan_policy: NanPolicy = "propagate",
    regularizer: Function | None = None,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    simplify: Level = True,
    name: str | None = None,
    names: Sequence[str] | None = None,
    comments: bool = True,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
    progress: Asked = False,
) -> Kernel | DataKernel:
    """One kernel for a loss, its gradient and its Hessian: a float, (n,) and (n, n).

    The arguments are those of `fused_forward_backward`; ``sparse=True`` is as in `fused_jacobian`,
    and so is ``mode``, by which the gradient is differentiated.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_hessian(2, lambda v: v[0]**2 * v[1])
        >>> loss, gradient, hessian = kernel.run([2.0, 3.0])
        >>> hessian.tolist()
        [[6.0, 4.0], [4.0, 0.0]]
    """
    with staged(progress, "kernels"):
        options = options_of(f, name, math, dtype, simplify, comments, roll, checkpoint)
        over = asked_of_rows(row, columns, codes, reduce, weights, nan_policy, names, regularizer)
        if over is not None:
            penalty = penalty_of(partial(fused_hessian, sparse=sparse), n, regularizer, options)
            request = Request(f, n, *over, options, mode, penalty)
            return rows_kernel(request, "hessian", device, sparse)
        return hessian_kernel(n, f, Making(options, device, names), mode, sparse)


def hessian_kernel(
    n: Sizes, f: Function, making: Making, mode: Mode = "auto", sparse: bool = False
) -> Kernel:
    """The kernel of a loss of n variables, its gradient and its Hessian."""
    tree = variables_of(n)

    def derive(traced: Trace) -> list[Wanted]:
        graph, loss = traced.graph, scalar(traced, f).outputs[0]
        gradient = differentiate.vjp(graph, seed_of(traced, loss), traced.inputs)
        sought = Sought(gradient, traced.inputs, symmetric=True)
        entries, chosen_mode = accumulated(graph, sought, mode, partial(size, making.options))
        shape, second = (tree.size, tree.size), derivatives(tree, second=True)
        matrix = matrix_of(traced, "hessian", entries, shape, second, sparse)
        return [
            Wanted("loss", (loss,), Scalar()),
            Wanted("grad", dense(traced, gradient), derivatives(tree)),
            replace(matrix, mode=chosen_mode),
        ]

    derivation = Derivation(("hessian", tree, sparse, mode), derive)
    return kernel_of(f, tree, derivation, "loss, gradient and Hessian", making)


@overload
def fused_hvp(  # pyright: ignore[reportOverlappingOverload]: without rows it is of points
    n: Sizes, f: Function, **options: Unpack[OfPoints]
) -> Kernel: ...
@overload
def fused_hvp(n: Sizes, f: Function, **options: Unpack[OfSums]) -> SumsKernel: ...
@overload
def fused_hvp(n: Sizes, f: Function, **options: Unpack[OfRows]) -> RowsKernel: ...
def fused_hvp(
    n: Sizes,
    f: Function,
    *,
    row: int | None = None,
    columns: ColumnNames | None = None,
    codes: Mapping[str, Any] | None = None,
    reduce: Reduce | None = "sum",
    weights: str | int | None = None,
    nan_policy: NanPolicy = "propagate",
    regularizer: Function | None = None,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    simplify: Level = True,
    name: str | None = None,
    comments: bool = True,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
    progress: Asked = False,
) -> Kernel | DataKernel:
    """One kernel for a loss, its gradient, and its Hessian times a vector: ``run(x, vector)``.

    The arguments are those of `fused_forward_backward`; x and the vector have n numbers each, and
    their batches broadcast. Forward over reverse: it costs a few gradients, whatever n is.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_hvp(2, lambda v: v[0]**2 * v[1])
        >>> loss, gradient, product = kernel.run([2.0, 3.0], [0.0, 1.0])
        >>> product.tolist()
        [4.0, 0.0]
    """
    with staged(progress, "kernels"):
        options = options_of(f, name, math, dtype, simplify, comments, roll, checkpoint)
        over = asked_of_rows(row, columns, codes, reduce, weights, nan_policy, None, regularizer)
        if over is not None:
            penalty = penalty_of(fused_hvp, n, regularizer, options)
            request = Request(f, n, *over, options, penalty=penalty)
            return rows_kernel(request, "product", device)
        tree = variables_of(n)
        require_feasible(2 * tree.size)
        n = tree.size

        def derive(traced: Trace) -> list[Wanted]:
            graph, loss = traced.graph, scalar(traced, f).outputs[0]
            variables, vector = traced.inputs[:n], traced.inputs[n:]
            gradient = differentiate.vjp(graph, seed_of(traced, loss), variables)
            nonzero = [i for i in gradient if i is not None]
            products = differentiate.jvp(graph, dict(zip(variables, vector, strict=True)), nonzero)
            of = dict(zip(nonzero, products, strict=True))
            product = [None if i is None else of[i] for i in gradient]
            return [
                Wanted("loss", (loss,), Scalar()),
                Wanted("grad", dense(traced, gradient), derivatives(tree)),
                Wanted("product", dense(traced, product), derivatives(tree)),
            ]

        names = [
            *names_of(None, tree),
            *(f"d{name.removeprefix('x')}" for name in names_of(None, tree)),
        ]
        derivation = Derivation(("product with the Hessian", tree), derive)
        whole = of_row(f, tree)
        options = placed(options, device)
        built = build(lambda v: whole(v[:n]), 2 * n, derivation, options, unique(names))
        title = f"{options.name}: loss, gradient and Hessian * vector"
        return assemble(
            built, Inputs(("x", "vector"), (tree, tree)), options, title, device, single=False
        )
