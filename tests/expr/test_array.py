"""NumPy's functions on expressions do what they do on numbers, or refuse."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from symgrad.errors import SymgradError, TraceError
from symgrad.expr.calls import verbs
from symgrad.expr.calls.numpy_calls import UFUNCS
from symgrad.expr.calls.numpy_functions import FUNCTIONS, MOVES
from symgrad.expr.graph.node import Graph, Handle, reachable
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.array import ExprArray, array
from symgrad.expr.tracers.expression import Condition, Expr, var
from symgrad.expr.tracing.trace import trace

A = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.5]])
V = np.array([0.5, 1.75, -0.625, 2.25, 3.0, -1.125])
ORDINARY = np.array([0.3, 0.7, 0.45, 0.9, 0.15, 0.6])


def numeric(result: Any, graph: Graph, at: np.ndarray) -> Any:
    """The numbers that a result stands for, nested as it is."""
    if isinstance(result, (list, tuple)):
        return type(result)(numeric(r, graph, at) for r in result)
    cells = array(result)
    given = {Expr(graph, k): x for k, x in enumerate(at)}
    flat = [_number(c, given) for c in cells.flat]
    return np.array(flat, dtype=float).reshape(cells.shape)


def _number(cell: Any, given: Any) -> float:
    if isinstance(cell, Condition):
        cell = functions.where(cell, 1.0, 0.0)
    return float(verbs.evaluate(cell, given)) if isinstance(cell, Handle) else float(cell)


def agree(f: Callable[[Any], Any], at: np.ndarray = V, rtol: float = 1e-14) -> None:
    """f of expressions, evaluated, is f of numbers: the same shapes and the same values."""
    found: list[Any] = []

    def traced(v: Any) -> Any:
        found.append(f(v))
        return v[0]

    graph = trace(traced, len(at)).graph
    with np.errstate(all="ignore"):
        compare(numeric(found[0], graph, at), f(at.copy()), rtol)


def compare(found: Any, expected: Any, rtol: float = 1e-14) -> None:
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            compare(a, b, rtol)
        return
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, np.asarray(expected, float), rtol=rtol, atol=rtol / 10)


M: Callable[[Any], Any] = lambda v: v.reshape(2, 3)  # noqa: E731

CASES: dict[str, Callable[[Any], Any]] = {
    "v + 1": lambda v: v + 1,
    "2 * v": lambda v: 2 * v,
    "v ** 2": lambda v: v**2,
    "2 ** v": lambda v: 2**v,
    "-v": lambda v: -v,
    "abs(v)": abs,
    "v % 2": lambda v: v % 2,
    "v // 2": lambda v: v // 2,
    "v > 0": lambda v: v > 0,
    "v == v": lambda v: v == v,
    "v * array": lambda v: v * np.arange(6.0),
    "array * v": lambda v: np.arange(6.0) * v,
    "float32 * v": lambda v: np.float32(2) * v,
    "float32 * v0": lambda v: np.float32(2) * v[0],
    "float64 / v0": lambda v: np.float64(2) / v[0],
    "v0 / float64": lambda v: v[0] / np.float64(2),
    "float64 ** v0": lambda v: np.float64(2) ** v[0],
    "int64 - v0": lambda v: np.int64(2) - v[0],
    "array * v0": lambda v: np.arange(3.0) * v[0],
    "v0 * array": lambda v: v[0] * np.arange(3.0),
    "v0 + list": lambda v: [*v, 1, 2, 3, 4, 5, 6],
    "v0 < array": lambda v: v[0] < np.arange(3.0),
    "array < v0": lambda v: np.arange(3.0) < v[0],
    "broadcast": lambda v: v[:, None] * v[None, :3],
    "slice": lambda v: v[1:5:2],
    "mask": lambda v: v[V > 0],
    "fancy": lambda v: v[[0, 0, 3]],
    "ellipsis": lambda v: M(v)[..., 0],
    "T": lambda v: M(v).T,
    "v @ v": lambda v: v @ v,
    "A @ v": lambda v: A @ v[:3],
    "v @ A": lambda v: v[:2] @ A,
    "A @ M": lambda v: A.T @ M(v),
    "M @ M": lambda v: M(v) @ M(v).T,
    "M @ v": lambda v: M(v) @ v[:3],
    "batched @": lambda v: np.stack([A.T, A.T]) @ M(v),
    "batched @ v": lambda v: np.stack([A, A]) @ v[:3],
    "sum": np.sum,
    "v.sum": lambda v: v.sum(),
    "M.sum": lambda v: M(v).sum(),
    "M.sum(0)": lambda v: M(v).sum(0),
    "M.sum(-1)": lambda v: M(v).sum(-1),
    "sum(M, axis=1)": lambda v: np.sum(M(v), axis=1),
    "sum(M, axis=(0, 1))": lambda v: np.sum(M(v), axis=(0, 1)),
    "sum(M)": lambda v: np.sum(M(v)),
    "sum keepdims": lambda v: np.sum(M(v), axis=1, keepdims=True),
    "M.sum keepdims": lambda v: M(v).sum(keepdims=True),
    "sum initial": lambda v: np.sum(v, initial=3.0),
    "sum where": lambda v: np.sum(v, where=V > 0),
    "v.sum where": lambda v: v.sum(where=V > 0),
    "prod where": lambda v: np.prod(M(v), axis=0, where=M(V) > 0),
    "max where": lambda v: np.max(v, where=v > 0.1, initial=0.5),
    "mean where": lambda v: np.mean(M(v), axis=1, where=M(v) > 0.1, keepdims=True),
    "std where": lambda v: np.std(v, where=V > 0, ddof=1),
    "sum dtype": lambda v: np.sum(v, dtype=float),
    "prod": np.prod,
    "v.prod": lambda v: v.prod(),
    "M.prod": lambda v: M(v).prod(),
    "prod axis": lambda v: np.prod(M(v), axis=0),
    "max": np.max,
    "min": np.min,
    "v.max": lambda v: v.max(),
    "M.max": lambda v: M(v).max(),
    "M.min": lambda v: M(v).min(),
    "M.max(1)": lambda v: M(v).max(1),
    "amax": lambda v: np.amax(M(v), axis=0),
    "mean": np.mean,
    "v.mean": lambda v: v.mean(),
    "M.mean": lambda v: M(v).mean(),
    "M.mean(0)": lambda v: M(v).mean(0),
    "mean axis": lambda v: np.mean(M(v), axis=1),
    "mean -1": lambda v: np.mean(M(v), axis=-1),
    "mean all axes": lambda v: np.mean(M(v), axis=(0, 1)),
    "var": np.var,
    "v.var": lambda v: v.var(),
    "M.var": lambda v: M(v).var(),
    "std": np.std,
    "v.std": lambda v: v.std(),
    "var axis": lambda v: np.var(M(v), axis=0, ddof=1),
    "cumsum": np.cumsum,
    "cumsum M": lambda v: np.cumsum(M(v)),
    "cumsum axis": lambda v: np.cumsum(M(v), axis=1),
    "v.cumsum": lambda v: v.cumsum(),
    "M.cumsum": lambda v: M(v).cumsum(),
    "cumprod": np.cumprod,
    "cumprod M": lambda v: np.cumprod(M(v)),
    "add.accumulate": lambda v: np.add.accumulate(M(v)),
    "add.reduce": lambda v: np.add.reduce(M(v)),
    "add.reduce None": lambda v: np.add.reduce(M(v), axis=None),
    "multiply.outer": lambda v: np.multiply.outer(v, v[:2]),
    "maximum.reduce": np.maximum.reduce,
    "dot": lambda v: np.dot(v, v),
    "dot M": lambda v: np.dot(M(v), v[:3]),
    "v.dot": lambda v: v.dot(v),
    "dot scalar": lambda v: np.dot(v[0], v),
    "vdot": lambda v: np.vdot(v, v),
    "inner": lambda v: np.inner(v, v),
    "inner M": lambda v: np.inner(M(v), M(v)),
    "outer": lambda v: np.outer(v, v[:3]),
    "matmul": lambda v: np.matmul(A, v[:3]),
    "trace": lambda v: np.trace(v[:4].reshape(2, 2)),
    "norm": np.linalg.norm,
    "norm M": lambda v: np.linalg.norm(M(v)),
    "norm 1": lambda v: np.linalg.norm(v, 1),
    "norm inf": lambda v: np.linalg.norm(v, np.inf),
    "norm axis": lambda v: np.linalg.norm(M(v), axis=1),
    "norm keepdims": lambda v: np.linalg.norm(M(v), axis=1, keepdims=True),
    "norm 2": lambda v: np.linalg.norm(v, ord=2),
    "norm of v0": lambda v: np.linalg.norm(v[0]),
    "where": lambda v: np.where(v > 0, v, 0),
    "where number": lambda v: np.where(v > 0, 1.0, -1.0),
    "where M": lambda v: np.where(M(v) > 0, M(v), A),
    "where mask": lambda v: np.where(V > 0, v, -v),
    "where v0": lambda v: np.where(v[0] > 0, v[0], 2.0),
    "clip": lambda v: np.clip(v, 0, 1),
    "v.clip": lambda v: v.clip(0, 1),
    "clip low": lambda v: np.clip(v, 0.0, None),
    "clip vectors": lambda v: np.clip(v, -(V**2), V**2),
    "round": np.round,
    "v.round": lambda v: v.round(),
    "diff": np.diff,
    "diff 2": lambda v: np.diff(v, n=2),
    "diff M": lambda v: np.diff(M(v)),
    "sinc": np.sinc,
    "polyval": lambda v: np.polyval([2, 0, 1], v),
    "polyval coefficients": lambda v: np.polyval(v, 0.5),
    "polyval v0": lambda v: np.polyval([2, 0, 1], v[0]),
    "trapezoid": np.trapezoid,
    "trapezoid x": lambda v: np.trapezoid(v, np.arange(6.0) ** 2),
    "trapezoid dx": lambda v: np.trapezoid(v, dx=0.5),
    "trapezoid M": lambda v: np.trapezoid(M(v)),
    "cross": lambda v: np.cross(v[:3], v[3:]),
    "cross M": lambda v: np.cross(M(v), A),
    "average": lambda v: np.average(v, weights=np.arange(6.0) + 1),
    "average plain": np.average,
    "average axis": lambda v: np.average(M(v), axis=1, weights=np.array([1.0, 2.0, 3.0])),
    "einsum": lambda v: np.einsum("ij,j->i", A, v[:3]),
    "einsum sum": lambda v: np.einsum("ij,ij", A, M(v)),
    "einsum outer": lambda v: np.einsum("i,j->ji", v, v),
    "einsum implicit": lambda v: np.einsum("ij,jk", A.T, M(v)),
    "tensordot": lambda v: np.tensordot(A, v[:3], axes=1),
    "tensordot 2": lambda v: np.tensordot(A, M(v)),
    "kron": lambda v: np.kron(v[:2], v[2:4]),
    "concatenate": lambda v: np.concatenate([v, [1.0], v[:2]]),
    "stack": lambda v: np.stack([v, v]),
    "stack scalars": lambda v: np.stack([v[0], v[1]]),
    "vstack": lambda v: np.vstack([v, V]),
    "hstack": lambda v: np.hstack([v[0], v]),
    "reshape": lambda v: np.reshape(v, (3, 2)),
    "ravel": lambda v: np.ravel(M(v)),
    "flip": np.flip,
    "roll": lambda v: np.roll(v, 1),
    "tile": lambda v: np.tile(v, 2),
    "repeat": lambda v: np.repeat(v, 2),
    "transpose": lambda v: np.transpose(M(v)),
    "diag": np.diag,
    "pad": lambda v: np.pad(v, 1),
    "tril": lambda v: np.tril(np.outer(v, v)),
    "split": lambda v: np.split(v, 3),
    "take": lambda v: np.take(v, [1, 2]),
    "append": lambda v: np.append(v, 1.0),
    "squeeze": lambda v: np.squeeze(v[None]),
    "size": np.size,
    "zeros_like": lambda v: np.zeros_like(v) + v,
    "ones_like": np.ones_like,
    "shape": lambda v: np.shape(M(v)),
    "list of expressions": lambda v: np.sum([v[0], v[1]]),
    "array of expressions": lambda v: np.sin(np.array([v[0], v[1]])),
    "iadd": lambda v: operator.iadd(v, 1.0),
    "imul": lambda v: operator.imul(v, v),
    "setitem": lambda v: _set(v),
    "real": np.real,
    "square": np.square,
    "v0.conjugate": lambda v: np.conjugate(v),
    "logaddexp.reduce": np.logaddexp.reduce,
    "logaddexp.reduce along an axis": lambda v: np.logaddexp.reduce(M(v), axis=1, keepdims=True),
    "logaddexp.reduce initial": lambda v: np.logaddexp.reduce(v, initial=1.0),
    "logaddexp.reduce from one": lambda v: np.logaddexp.reduce(v[1:], initial=v[0]),
    "logaddexp.reduce of none": lambda v: np.logaddexp.reduce(v[:0]),
    "logaddexp.accumulate": np.logaddexp.accumulate,
    "hypot.outer": lambda v: np.hypot.outer(v, v),
    "meshgrid": lambda v: np.meshgrid(v, v[:2]),
    "any": lambda v: np.logical_or.reduce(v > 2.0),
    "all": lambda v: np.logical_and.reduce(v > -2.0),
    "logical_not": lambda v: np.logical_not(v > 0),
    "mask arithmetic": lambda v: (v > 0) * v + ~(v > 0),
    "and": lambda v: (v > 0) & (v < 2),
    "xor": lambda v: (v > 0) ^ (v < 2),
    "bool &": lambda v: (V > 0) & (v < 2),
    "copy": lambda v: v.copy(),
    "flatten": lambda v: M(v).flatten(),
    "swapaxes": lambda v: M(v).swapaxes(0, 1),
    "empty sum": lambda v: np.sum(v[:0]),
    "empty prod": lambda v: np.prod(v[:0]),
    "len": lambda v: len(v),
    "polynomial": lambda v: sum(c * v**k for k, c in enumerate([1.0, 2.0, 3.0])),
    "quadratic form": lambda v: v[:3] @ (A.T @ A) @ v[:3],
    "v.tolist": lambda v: np.sum(v.tolist()),
    "v.ptp": lambda v: v.max() - v.min(),
    "softmax": lambda v: np.exp(v - v.max()) / np.sum(np.exp(v - v.max())),
}


def _set(v: Any) -> Any:
    w = v.copy()
    w[0] = w[1] * 2.0
    w[2:] = 1.0
    return w


@pytest.mark.parametrize("name", CASES)
def test_numpy_on_expressions_is_numpy_on_numbers(name: str) -> None:
    agree(CASES[name])


OF_INTEGERS = np.left_shift, np.right_shift, np.gcd, np.lcm, np.bitwise_count


def ufuncs() -> list[Any]:
    others = np.clip, np.invert, *OF_INTEGERS
    return sorted((u for u in UFUNCS if u not in others), key=lambda u: u.__name__)


@pytest.mark.parametrize("ufunc", ufuncs(), ids=lambda u: u.__name__)
def test_every_ufunc_on_vectors_scalars_and_plain_object_arrays(ufunc: Any) -> None:
    logical = ufunc.__name__.startswith(("logical", "bitwise"))
    at = ORDINARY + (1.0 if ufunc is np.arccosh else 0.0)

    def call(v: Any) -> Any:
        w = v[::-1]
        pairs = [(v, w), (v, 0.5), (1.5, v), (v[0], v[1]), (v[0], 0.5), (np.float32(1.5), v[0])]
        if logical:
            pairs = [(v > 0.5, w > 0.5)]
        if ufunc is np.ldexp:  # its second argument is an integer
            pairs = [(v, np.arange(-3, len(v) - 3)), (v, 5), (v[0], -2)]
        if ufunc.nin == 1:
            return [ufunc(v), ufunc(v[0]), ufunc(M(v))]
        return [ufunc(*p) for p in pairs]

    agree(call, at)


def test_the_tables_name_functions_of_numpy() -> None:
    assert all(callable(f) for f in [*FUNCTIONS, *MOVES, *UFUNCS])
    assert set(FUNCTIONS) & MOVES == set()


REFUSED: dict[str, Callable[[Any], Any]] = {
    "argmax": np.argmax,
    "v.argmax": lambda v: v.argmax(),
    "argsort": np.argsort,
    "v.sort": lambda v: v.sort(),
    "unique": np.unique,
    "interp of unsorted points": lambda v: np.interp(v, V, V),
    "interp at expressions": lambda v: np.interp(0.5, v, V),
    "too large to solve": lambda v: np.linalg.solve(np.eye(65) * v[0], np.ones(65)),
    "no square": lambda v: np.linalg.inv(M(v)),
    "structurally singular": lambda v: np.linalg.inv(v[0] * np.ones((2, 3))[:, :2] * np.eye(2)[0]),
    "eigenvalues": lambda v: np.linalg.eigvals(np.outer(v, v)),
    "einsum axes": lambda v: np.einsum("ij,j", v, v),
    "einsum sizes": lambda v: np.einsum("i,i", v, v[:2]),
    "fft": np.fft.fft,
    "isclose": lambda v: np.isclose(v, V),
    "allclose": lambda v: np.allclose(v, V),
    "nonzero": np.nonzero,
    "where alone": lambda v: np.where(v > 0),
    "histogram": np.histogram,
    "spacing": np.spacing,
    "norm 2 of M": lambda v: np.linalg.norm(M(v), 2),
    "into numbers": lambda v: np.add(v, 1, out=np.zeros(6)),
    "in-place on numbers": lambda v: operator.iadd(np.zeros(6), v),
    "assigned to numbers": lambda v: np.zeros(6).__setitem__(0, v[0]),
    "all into numbers": lambda v: np.zeros(6).__setitem__(slice(None), v),
    "astype": lambda v: v.astype(complex),
    "np.float64": lambda v: np.float64(v[0]),
    "np.array(dtype)": lambda v: np.array(v, dtype=float),
    "max of none": lambda v: np.max(v[:0]),
    "matmul shapes": lambda v: A @ v,
    "matmul scalar": lambda v: np.matmul(v, v[0]),
    "max of a plain array": lambda v: np.max(np.array([v[0], v[1]])),
    "maximum of plain arrays": lambda v: np.maximum(np.array([v[0]]), 0),
    "comparison of plain arrays": lambda v: np.array([v[0], v[1]]) > 0,
    "if array": lambda v: 1 if (v > 0).any() else 2,
    "bool of one": lambda v: bool(v[:1]),
    "cross 2": lambda v: np.cross(v[:2], v[2:4]),
    "bincount": lambda v: np.bincount(v),
    "float_power out": lambda v: np.float_power(v, 2, out=np.ones(6)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_go_wrong_is_an_error_of_ours(name: str) -> None:
    with pytest.raises((SymgradError, ValueError)) as caught:
        trace(lambda v: np.sum(REFUSED[name](v)), 6)
    assert isinstance(caught.value, SymgradError) or "more than one element" in str(caught.value)
    if "not defined" in str(caught.value):
        assert "at " in str(caught.value) and "np." in str(caught.value)


def test_keywords_that_are_not_known_are_refused_not_ignored() -> None:
    for f in (
        lambda v: np.nanprod(M(v), axis=0, where=M(V) > 0),
        lambda v: np.trace(v.reshape(2, 3), dtype=int),
        lambda v: np.quantile(v, 0.5, method="nearest"),
        lambda v: np.nanvar(v, where=V > 0),
        lambda v: np.cov(M(v), fweights=[1, 2, 1]),
    ):
        with pytest.raises(TypeError):
            trace(lambda v, f=f: np.sum(f(v)), 6)


def test_sums_are_balanced() -> None:
    def depth(graph: Graph, i: int) -> int:
        args = graph.args(i)
        return 1 + max(depth(graph, a) for a in args) if args else 0

    for f in (
        np.sum,
        lambda v: v.sum(),
        lambda v: np.ones(256) @ v,
        lambda v: v @ v,
        np.mean,
        np.prod,
    ):
        t = trace(f, 256)
        assert depth(t.graph, t.outputs[0]) <= 10


def test_balanced() -> None:
    assert balanced(operator.add, list(range(11))) == 55
    assert balanced(operator.add, [1, 2], 10) == 13
    assert balanced(operator.sub, [1, 2, 3]) == -4
    with pytest.raises(TraceError, match="no largest"):
        balanced(max, [])


def test_array() -> None:
    graph = Graph()
    x = Expr(graph, graph.input("x"))
    assert array(x).shape == () and array([[x, 1.0], [2, x]]).shape == (2, 2)
    assert isinstance(array([x]) * 2, ExprArray) and isinstance(array([x])[0:1], ExprArray)


def test_single_expressions_do_not_become_arrays() -> None:
    def f(v: Any) -> Any:
        for e in (
            np.sin(v[0]),
            np.float32(2) * v[0],
            v[0] * np.float64(2),
            np.maximum(v[0], 1),
            v[0] + np.array(1.0),
        ):
            assert type(e) is Expr
        assert type(np.where(v[0] > 0, v[0], 1.0)) is Expr and type(np.sum(v)) is Expr
        return v[0]

    trace(f, 2)


def put(a: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of an array after a change in place."""
    made = a.copy()
    change(made)
    return made


POINTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "concatenate": lambda v, x, z: np.concatenate([[z], v, [x, 1.0], np.atleast_1d(z)]),
    "concatenate axis": lambda v, x, z: np.concatenate([[[z, x]], [[x, 2.0]], M(v)[:, :2]]),
    "stack": lambda v, x, z: np.stack([z, x, z]),
    "stack of lists": lambda v, x, z: np.stack([[x, 1.0], [z, 2.0]]),
    "hstack": lambda v, x, z: np.hstack([z, v, x, 1.0]),
    "vstack": lambda v, x, z: np.vstack([z, [x]]),
    "column_stack": lambda v, x, z: np.column_stack([[z, x], v[:2]]),
    "append": lambda v, x, z: np.append(np.append(v, z), [x, z, 1.0]),
    "insert": lambda v, x, z: np.insert(v, [0, 2], [z, x]),
    "block": lambda v, x, z: np.block([[z, x], [1.0, z]]),
    "block of arrays": lambda v, x, z: np.block([z, v]),
    "r_": lambda v, x, z: np.r_[z, v, x, 1.0],
    "c_": lambda v, x, z: np.c_[v, z * v],
    "array": lambda v, x, z: np.array([z, x, 1.0]) * 2,
    "array of rows": lambda v, x, z: np.array([[z, x], [x, z]]) @ v[:2],
    "sin of a list": lambda v, x, z: np.sin([z, x]),
    "where": lambda v, x, z: np.where(z > 0, z, v),
    "where of lists": lambda v, x, z: np.where(v[:2] > z, [z, 1.0], [x, z]),
    "select": lambda v, x, z: np.select([z > 2, z > 0], [x, z]),
    "diag": lambda v, x, z: np.diag([z, x]),
    "flip": lambda v, x, z: np.flip([z, x, 2.0]),
    "take": lambda v, x, z: np.take([z, x, 2.0], [0, 1]),
    "sums": lambda v, x, z: np.sum([z, x, 1.0]) + np.mean([z, v[1]]),
    "dot": lambda v, x, z: np.dot([z, x, 1.0], v[:3]),
    "cross": lambda v, x, z: np.cross([z, x, 0.0], v[:3]),
    "solve": lambda v, x, z: np.linalg.solve([[z, 0.0], [0.5, x]], v[:2]),
    "kron": lambda v, x, z: np.kron([z, 1.0], [x, 2.0]),
    "pad": lambda v, x, z: np.pad(v, 1, constant_values=z),
    "full": lambda v, x, z: np.full(3, z) * x,
    "full_like": lambda v, x, z: np.full_like(v, z),
    "item": lambda v, x, z: put(v, lambda a: operator.setitem(a, 0, z)),
    "slice": lambda v, x, z: put(v, lambda a: operator.setitem(a, slice(2), [z, 2.0 * x])),
    "mask": lambda v, x, z: put(v, lambda a: operator.setitem(a, V > 1, z)),
    "fill": lambda v, x, z: put(v, lambda a: a.fill(z)),
    "put": lambda v, x, z: put(v, lambda a: np.put(a, [0, 2], [z, x])),
    "putmask": lambda v, x, z: put(v, lambda a: np.putmask(a, V > 1, z)),
    "fill_diagonal": lambda v, x, z: put(np.outer(v, v), lambda a: np.fill_diagonal(a, z)),
    "of an index": lambda v, x, z: np.stack([v[0, ...], np.squeeze(v[1:2])]),
    "results": lambda v, x, z: np.array([z, x]),
}


@pytest.mark.parametrize("name", POINTS)
def test_arrays_of_no_axes_are_what_they_hold(name: str) -> None:
    f = POINTS[name]
    traced = trace(lambda v: f(v, v[0], array(v[0])), 6)
    want = np.asarray(f(V, V[0], np.array(V[0])), dtype=float)
    assert traced.structure.keys == want.shape
    given = {i: V[k : k + 1] for k, i in enumerate(traced.inputs)}
    found = np.array(evaluate_graph(traced.graph, traced.outputs, given)).reshape(want.shape)
    np.testing.assert_allclose(found, want, rtol=1e-12)

    def elements(v: Any) -> Any:
        made = f(v, v[0], array(v[0]))
        if isinstance(made, ExprArray):
            assert not any(isinstance(e, np.ndarray) for e in made.flat)
        return v[0]

    trace(elements, 6)


F = np.array([[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
STRUCTURAL: list[tuple[str, Callable[[Any], Any], int]] = [
    ("a product of a matrix and a vector", lambda v: F @ v[:3], 5),
    ("its transpose", lambda v: v[:3] @ F, 5),
    ("einsum", lambda v: np.einsum("ij,j->i", F, v[:3]), 5),
    ("dot", lambda v: np.dot(F, v[:3]), 5),
    ("tensordot", lambda v: np.tensordot(F, v[:3], 1), 5),
    ("a multiple of the identity", lambda v: np.eye(3) * v[0], 3),
    ("a sum with one", lambda v: v[:9].reshape(3, 3) + np.eye(3), 3),
    ("a difference", lambda v: v[:9].reshape(3, 3) - np.eye(3), 3),
    ("a difference from one", lambda v: np.eye(3) - v[:9].reshape(3, 3), 9),
    ("a mask", lambda v: np.sum(np.array([0, 1, 1]) * v[:3]), 3),
    ("an outer product", lambda v: np.outer([0.0, 1.0], v[:3]), 3),
    ("a sum of what was padded", lambda v: np.sum(np.pad(v[:2], 3)), 1),
    ("a covariance", lambda v: F @ np.diag(v[:3]) @ F.T, 11),
]


@pytest.mark.parametrize(("f", "most"), [k[1:] for k in STRUCTURAL], ids=[k[0] for k in STRUCTURAL])
def test_zeros_of_arrays_are_no_operations(f: Callable[[Any], Any], most: int) -> None:
    traced = trace(f, 9)
    graph = traced.graph
    operations = [i for i in reachable(graph, traced.outputs) if graph.nodes[i][0].arity]
    assert len(operations) <= most
    point = np.random.default_rng(4).normal(size=9)
    values = evaluate_graph(graph, traced.outputs, dict(enumerate(point[:, None])))
    np.testing.assert_allclose(np.ravel(values), np.ravel(f(point)), rtol=1e-14, atol=0)


def test_a_zero_of_an_array_absorbs_and_a_number_0_does_not() -> None:
    x = var("x")
    of_array, *of_numbers = [
        np.array([0.0, 1.0]) @ array([x, x]),
        0.0 * x,
        (np.float64(0.0) * array([x]))[0],
    ]
    assert verbs.evaluate(of_array, {x: np.inf}) == np.inf
    assert all(np.isnan(verbs.evaluate(zero, {x: np.inf})) for zero in of_numbers)
