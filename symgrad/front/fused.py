"""The verbs that make kernels: a Python function in, a `Kernel` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, overload

import numpy as np

from symgrad.backend import placed
from symgrad.errors import InputError, TraceError
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.derivatives.transpose import Checkpoint
from symgrad.expr.laws.simplify import Level
from symgrad.expr.tracers.tree import Sizes
from symgrad.expr.tracing.trace import EVERY_CALL, Trace, frozen_for, require_feasible, scalar
from symgrad.front.choice import LARGE_POINT, whole_or_elements
from symgrad.front.deriving import (
    Making,
    dense,
    gradient_kernel,
    kernel_of,
    matrix_of,
    names_of,
    options_of,
    seed_of,
    squares_kernel,
    values_kernel,
)
from symgrad.front.kernels import Kernel, assemble, shared
from symgrad.front.keywords import (
    Function,
    Jacobian,
    MatrixOfPoints,
    MatrixOfRows,
    MatrixOfSums,
    OfNamed,
    OfPoints,
    OfRows,
    OfSums,
    asked_of_rows,
    chosen,
    penalty_of,
)
from symgrad.front.running import Inputs
from symgrad.front.whole_kernels import values_of_whole
from symgrad.front.whole_rows import summed_over_rows
from symgrad.kernel.shapes import unique
from symgrad.mathlib.define import Math
from symgrad.pipeline import Derivation, DType, Wanted, build, size
from symgrad.report.progress import Asked, staged
from symgrad.rows.each_row import RowsKernel, rows_kernel
from symgrad.rows.kernel import DataKernel
from symgrad.rows.loss import Request
from symgrad.rows.squares import LeastSquaresKernel, least_squares_kernel
from symgrad.rows.sums import SumsKernel
from symgrad.targets import DeviceChoice
from symgrad.values.arrays import real_numbers
from symgrad.values.nested import Array, Scalar, derivatives, in_a_row, of_row, variables_of
from symgrad.values.tables import ColumnNames, NanPolicy, Reduce, columns_of


@overload
def fused_forward_backward(n: Sizes, f: Function, **options: Unpack[OfNamed]) -> Kernel: ...
@overload
def fused_forward_backward(n: Sizes, f: Function, **options: Unpack[OfSums]) -> DataKernel: ...
@overload
def fused_forward_backward(n: Sizes, f: Function, **options: Unpack[OfRows]) -> RowsKernel: ...
def fused_forward_backward(
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
    names: Sequence[str] | None = None,
    comments: bool = True,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
    progress: Asked = False,
) -> Kernel | DataKernel:
    """One kernel for a loss and its gradient: ``run(x)`` gives ``(f(x), df/dx)``.

    With ``row`` or ``columns`` the loss is that of one row of data, ``f(p, r)``, summed over all
    rows in one pass: ``run(p, rows)``. See `DataKernel`.

    Args:
        n: the number of variables; or their shape, () for one number; or a dict of numbers, shapes
            and dicts again: ``{"weights": (3, 2), "bias": ()}`` for ``p.weights`` and ``p.bias``.
            Points and gradients are then nested and shaped likewise.
        f: gets an array of n symbolic scalars and returns one scalar expression. It may use
            Python's operators, NumPy's functions and symgrad's, loops, closures; not ``if`` on an
            expression (``sg.where``). It is traced once, here: what it reads from a closure, an
            attribute or an array is a constant of the kernel.
        row: the number of columns of a row of data. f then gets the parameters and a row.
        columns: or else their names: ``r.x``. With shapes, ``{"id": (), "y": (8,)}``, a column is
            an array at each row: ``r.y`` has shape (8,), and a table has it as (N, 8). A column may
            be an index into the parameters: ``p[r.camera, :]``, or ``p.cameras[r.camera]``, or an
            array of them. A column may hold strings, categories, booleans or dates:
            `DataKernel.codes` says what numbers stand for them. The codes of labels can be compared
            and used as indices; text in other arithmetic is refused.
        codes: what these numbers stand for, a mapping by columns, so that another kernel's
            ``codes`` keep their meaning, as from a fit to its predictions.
        reduce: "sum" or "mean" of the losses of the rows; or None for the loss and the gradient of
            each row: see `RowsKernel`.
        weights: a column by which the loss of each row is multiplied; the mean is weighted too. A
            row of weight 0 contributes nothing, even where its loss is infinite or NaN.
        nan_policy: for rows that hold a NaN, as in SciPy: "propagate", "raise" or "omit".
        regularizer: a function of the parameters alone, a prior or a penalty, which is added once
            to the sum, or the mean, over the rows.
        device: "gpu", "cpu", an index of ``sg.devices()``, or None for the first real GPU, or else
            the CPU.
        math: "accurate"; "fast" for the device's own functions wherever it has them, and one
            reciprocal for all that is divided by one denominator; or "strict" for sums and products
            that no compiler fuses or reorders, and quotients and roots that are rounded correctly,
            so that devices whose sums and products are give the same bits, except for subnormals.
        dtype: "float32", "float32x2" or "float64": see `Device.dtypes`.
        simplify: True for laws that keep every bit of what f gives, and may change the last bits of
            derivatives; "real" for all laws of real numbers, or False.
        name: the kernel's name; f's by default.
        names: names for all variables in a row; x0, x1, ... by default, or those of n with numbers.
        comments: whether the source quotes your lines beside the statements they led to.
        checkpoint: what loops keep of iterations for reverse mode. "keep" is all that it reads;
            "sqrt" what is carried into strips of sqrt(n) of n iterations, each of which is run
            again then; a number, into strips of so many; "auto" keeps all that stays in the caches
            of the device, up to 8,192 numbers a point on the CPU and 512 on a GPU, and more where
            it has the memory and computing it again takes longer; longer loops run in strips.
            ``stats`` has what is kept.
        roll: whether the iterations of a Python loop that f writes out become a loop again, which
            takes far less to compile; results stay within the rounding.
        progress: True to show, once a second is over, how long making the kernel takes and which
            stage it is at, or a function that is called with a `Progress` as stages begin. A kernel
            is compiled when it is first run, of which ``run(x, progress=True)`` shows as much.

    Returns:
        A `Kernel`, or over data a `DataKernel`. For x of shape (n,) a kernel's ``run`` returns a
        float and an (n,) array, for x of shape (..., n) arrays of shapes (...,) and (..., n).

    Raises:
        TraceError: if f does not return one scalar, or uses an expression as a number.
        InputError: if n < 1, or an option is not one of its choices.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(3, lambda v: v[0]**2 + v[1]**2 + v[2]**2)
        >>> loss, grads = kernel.run([1.0, 2.0, 3.0])
        >>> loss, grads.tolist()
        (14.0, [2.0, 4.0, 6.0])
    """
    with staged(progress, "kernels"):
        options = options_of(f, name, math, dtype, simplify, comments, roll, checkpoint)
        over = asked_of_rows(row, columns, codes, reduce, weights, nan_policy, names, regularizer)
        if over is None:
            return gradient_kernel(n, f, Making(options, device, names))
        penalty = penalty_of(fused_forward_backward, n, regularizer, options)
        request = Request(f, n, *over, options, penalty=penalty)
        make = summed_over_rows if reduce else partial(rows_kernel, verb="gradient")
        return make(request, device=device)


def fused_least_squares(
    n: Sizes,
    residual: Function,
    *,
    row: int | None = None,
    columns: ColumnNames | None = None,
    codes: Mapping[str, Any] | None = None,
    reduce: Reduce | None = "sum",
    weights: str | int | None = None,
    nan_policy: NanPolicy = "propagate",
    regularizer: Function | None = None,
    mode: Mode = "auto",
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    simplify: Level = True,
    name: str | None = None,
    comments: bool = True,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
    progress: Asked = False,
) -> LeastSquaresKernel:
    """One pass over data for a sum of squares, its gradient and JᵀJ: see `LeastSquaresKernel`.

    ``residual(p, r)`` returns the residual of one row, or several. The arguments are those of
    `fused_forward_backward`; ``weights`` multiply the squares, and the Jacobian of the residuals of
    a row is made by the ``mode`` that takes the fewest operations: see `fused_jacobian`.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> misfit = lambda p, r: p[0] + p[1] * r[0] - r[1]
        >>> line = sg.fused_least_squares(2, misfit, row=2, device="cpu")
        >>> loss, gradient, jtj = line.run([1.0, 1.0], np.array([[0.0, 1.0], [1.0, 3.0]]))
        >>> loss, gradient.tolist(), jtj.tolist()
        (1.0, [-2.0, -2.0], [[2.0, 1.0], [1.0, 1.0]])
    """
    with staged(progress, "kernels"):
        options = options_of(residual, name, math, dtype, simplify, comments, roll, checkpoint)
        kinds = columns_of(row, columns, codes)
        if reduce is None:
            raise InputError(
                "for the residuals of each row and their Jacobian use sg.fused_jacobian"
            )
        penalty = penalty_of(squares_kernel, n, regularizer, options)
        request = Request(residual, n, kinds, reduce, weights, nan_policy, options, mode, penalty)
        return least_squares_kernel(request, device)


@overload
def fused_forward(n: Sizes, f: Function, **options: Unpack[OfNamed]) -> Kernel: ...
@overload
def fused_forward(n: Sizes, f: Function, **options: Unpack[OfSums]) -> SumsKernel: ...
@overload
def fused_forward(n: Sizes, f: Function, **options: Unpack[OfRows]) -> RowsKernel: ...
def fused_forward(
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
    names: Sequence[str] | None = None,
    comments: bool = True,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
    progress: Asked = False,
) -> Kernel | DataKernel:
    """One kernel for the values of f alone, which may be any nesting of scalars.

    The arguments are those of `fused_forward_backward`; f may return a scalar, an array, or tuples,
    lists and dicts of them, and ``run`` returns the same nesting, batched. So does a
    ``regularizer``, whose numbers are added to the sums over rows.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(2, lambda v: {"sum": v[0] + v[1], "both": v * 2})
        >>> kernel.run([1.0, 2.0])["sum"]
        3.0
    """
    with staged(progress, "kernels"):
        options = options_of(f, name, math, dtype, simplify, comments, roll, checkpoint)
        over = asked_of_rows(row, columns, codes, reduce, weights, nan_policy, names, regularizer)
        if over is not None:
            penalty = penalty_of(fused_forward, n, regularizer, options)
            request = Request(f, n, *over, options, penalty=penalty)
            return rows_kernel(request, "values", device)

        tree, making = variables_of(n), Making(options, device, names)
        return whole_or_elements(
            lambda _: values_of_whole(f, tree, options, device),
            lambda: values_kernel(f, tree, making),
            large=tree.size > LARGE_POINT,
        )


@overload
def fused_jacobian(n: Sizes, f: Function, **options: Unpack[Jacobian]) -> Kernel: ...
@overload
def fused_jacobian(n: Sizes, f: Function, **options: Unpack[MatrixOfSums]) -> SumsKernel: ...
@overload
def fused_jacobian(n: Sizes, f: Function, **options: Unpack[MatrixOfRows]) -> RowsKernel: ...
def fused_jacobian(
    n: Sizes,
    f: Function,
    *,
    wrt: Any = None,
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
    """One kernel for m values and their Jacobian: ``run(x)`` gives arrays (m,) and (m, n).

    The arguments are those of `fused_forward_backward`; f returns a vector of m scalars, and so
    does a ``regularizer``: they and their Jacobian are added to the sums over rows. With
    ``sparse=True`` only what is not structurally 0 is computed and stored, and the Jacobian is a
    SciPy CSR array (for a batch, an object array of them).

    ``wrt`` chooses the variables to differentiate for: a position or a name, or several, and the
    Jacobian is ``jacobian[:, wrt]``, without what it takes to make the rest of it. Positions may be
    anything that indexes an array of shape n. If n is a dict, names are its keys (of dicts within,
    joined by dots): "a" gives ``jacobian["a"]``, and ["a", "b"] a dict of both.

    Derivatives are made by the ``mode`` that takes the fewest operations, "auto"; ``stats.mode``
    says which. A "reverse" sweep for each value suits few values of many variables, "forward" with
    a tangent for each variable many values of few variables, as the steps of a simulation. "mixed"
    eliminates the nodes of the graph, those first that take the fewest products: the derivatives
    of each step come first, and then their products, whatever the size of either side. The digits
    are the same, except for rounding. Derivatives of `custom_vjp` are made in reverse by "auto".

    Raises:
        InputError: also for variables in ``wrt`` that do not exist.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_jacobian(2, lambda v: [v[0] * v[1], v[0] + v[1]])
        >>> values, jacobian = kernel.run([2.0, 3.0])
        >>> jacobian.tolist()
        [[3.0, 2.0], [1.0, 1.0]]
        >>> sg.fused_jacobian(2, lambda v: [v[0] * v[1], v[0] + v[1]], wrt=1).run([2.0, 3.0])[1]
        array([2., 1.], dtype=float32)
    """
    with staged(progress, "kernels"):
        options = options_of(f, name, math, dtype, simplify, comments, roll, checkpoint)
        over = asked_of_rows(row, columns, codes, reduce, weights, nan_policy, names, regularizer)
        if over is not None:
            if wrt is not None:
                raise InputError(
                    "wrt= is for kernels of points: a loss over rows is "
                    "differentiated for all parameters"
                )
            penalty = penalty_of(
                partial(fused_jacobian, mode=mode, sparse=sparse), n, regularizer, options
            )
            request = Request(f, n, *over, options, mode, penalty)
            return rows_kernel(request, "jacobian", device, sparse)
        tree = variables_of(n)
        places, result = chosen(tree, names_of(names, tree), wrt)

        def derive(traced: Trace) -> list[Wanted]:
            if not traced.outputs:
                raise TraceError("f returned an empty container: there is nothing to differentiate")
            sought = Sought(traced.outputs, [traced.inputs[k] for k in places])
            entries, chosen_mode = accumulated(traced.graph, sought, mode, partial(size, options))
            m = len(traced.outputs)
            shape, slopes = (m, len(places)), derivatives(result, (m,))
            matrix = matrix_of(traced, "jacobian", entries, shape, slopes, sparse)
            return [
                Wanted("values", traced.outputs, Array((m,))),
                replace(matrix, mode=chosen_mode),
            ]

        derivation = Derivation(("jacobian", tree, sparse, mode, places, result), derive)
        return kernel_of(f, tree, derivation, "values and Jacobian", Making(options, device, names))


@frozen_for(EVERY_CALL)
def forward_backward(f: Function, x: Any) -> Any:
    """Trace, compile and run in one line: ``(f(x), df/dx)`` as `fused_forward_backward` has them.

    f is traced at every call, so that it always computes what it does now. A kernel is compiled
    where the trace is new: see `value_and_grad`. x may also be dicts, dataclasses, and lists and
    tuples of such and of arrays; f is given them, and the gradient is nested likewise.

    Example:
        >>> import symgrad as sg
        >>> def square(v):
        ...     return v @ v
        >>> sg.forward_backward(square, [3.0, 4.0])[0]
        25.0
    """
    options = options_of(f, None, "accurate", "float32", True, comments=True)
    making = Making(options, make=shared)
    nested = in_a_row(x, "x")
    if nested is None:
        n = (np.shape(real_numbers(x, "x")) or (1,))[-1]
        return gradient_kernel(n, f, making).run(x)
    tree, row = nested
    kernel = gradient_kernel(tree.size, of_row(f, tree), making)
    loss, gradient = kernel.run(row)
    return loss, tree.arrays(gradient)


# Second derivatives: Hessians, and their products with vectors.


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
