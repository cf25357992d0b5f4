"""Numbers nested as the user has them, and as a row inside: arguments, and results of ``run``."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError, SymgradError
from symgrad.expr.tracers.tree import Block, Blocks, Tree, apart, flatten, numbers_as_array, tree_of
from symgrad.expr.tracing.trace import checked_count
from symgrad.values.arrays import real_numbers
from symgrad.values.tables import names_in

# Arguments: numbers nested and shaped outside, all of them in a row inside.


def variables_of(n: Any) -> Tree:
    """The variables that ``n`` asks for: a number of them, a shape, or dicts of either."""
    return tree_of(n) if isinstance(n, (Mapping, tuple, list, Tree)) else _count(checked_count(n))


@functools.lru_cache(64)
def _count(n: int) -> Tree:
    return tree_of(n)


def of_row(f: Callable[..., Any], tree: Tree) -> Callable[..., Any]:
    """f, whose first argument is nested as the tree, as a function of all its numbers in a row."""
    if tree.is_leaf and len(tree.keys) == 1:
        return f

    @functools.wraps(f)
    def row(v: Any, *more: Any) -> Any:
        return f(tree.nest((block.of(v)[()] for block in tree.blocks), Blocks), *more)

    return row


def in_a_row(x: Any, name: str) -> tuple[Tree, np.ndarray] | None:
    """How a container of arrays is nested, and all its numbers in a row; None of an array.

    Lists and tuples are arrays, unless there is a container among them or an array with axes.

    Raises:
        InputTypeError: for what holds no real numbers; errors call it by its name.
    """
    if not _is_container(x):
        return None

    def read(value: Any) -> tuple[list[Any], Tree] | None:
        if numbers_as_array(value) is None and apart(value) is not None:
            return None
        array = real_numbers(value, name)
        return [array], Tree("array", array.shape) if array.shape else Tree()

    arrays, tree = flatten(x, read)
    return tree, np.concatenate([np.empty(0), *(a.ravel() for a in arrays)])


def _is_container(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(_is_container(v) or (isinstance(v, np.ndarray) and v.ndim > 0) for v in x)
    return apart(x) is not None


@dataclass(frozen=True)
class Nest:
    """Parameters: a number, an array, or nested dicts of either, and the dtype they are used in."""

    tree: Tree
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.tree.size

    @cached_property
    def _row(self) -> tuple[int]:
        """The shape of all in a row."""
        return (self.size,)

    def flat(self, params: Any) -> np.ndarray:
        """All parameters in a row.

        Raises:
            InputError: for names or shapes that are not those of the tree. InputTypeError: for what
            holds no real numbers.
        """
        if type(params) is np.ndarray and params.dtype == self.dtype and params.shape == self._row:
            return params.copy()
        names = None if self.tree.is_nest(params) else names_in(params)
        if names is not None:
            raise InputTypeError(
                f"params is a table with {', '.join(map(repr, names))}: parameters come first, and "
                "rows behind them"
            )
        with np.errstate(over="ignore"):
            return rows_of(self.tree, params, "params", batched=False).astype(self.dtype)

    def nested(self, flat: np.ndarray) -> Any:
        """As the user has them, in fresh arrays; a number for a shape of ()."""
        if self.tree.keys != self._row:
            with np.errstate(over="ignore"):
                return self.tree.arrays(flat, self.dtype)
        if flat.dtype == self.dtype:
            return flat.copy()
        with np.errstate(over="ignore"):
            return flat.astype(self.dtype)


Read = Callable[[Any, str], Any]
"""``read(value, name)``: a user's value under this name as an array."""


def rows_of(
    tree: Tree,
    values: Any,
    name: str,
    batched: bool = True,
    read: Read = real_numbers,
    xp: Any = np,
) -> Any:
    """Values nested as a tree, or already in a row, as an array (..., size) of any real dtype.

    What stands before the shapes of the arrays is the batch; batches broadcast. ``xp`` has NumPy's
    functions for arrays of the kind that ``read`` gives.

    Raises:
        InputError: for names or shapes that are not those of the tree, and for a batch where there
        is to be none. InputTypeError: for what holds no real numbers.
    """
    if tree.is_nest(values):
        parts = zip(tree.parts(values, name), tree.blocks, strict=True)
        rows = [_row(read(v, b.name), b.name, b, batched) for v, b in parts]
        return joined(rows, name, xp)
    block = tree.blocks[0] if tree.is_leaf else Block(name, 0, (tree.size,))
    return _row(read(values, name), name, block, batched)


def _row(array: Any, name: str, block: Block, batched: bool) -> Any:
    """An array of a block's shape, or of all its numbers, behind the axes of a batch, in rows."""
    shape, count = block.shape, len(block.shape)
    if array.shape == shape:
        return array.reshape(-1)
    if array.ndim == 0 and shape == (1,):
        array = array.reshape(1)
    for length, tail in ((count, shape), (1, (block.size,))):
        lead = array.ndim - length
        if lead >= 0 and array.shape[lead:] == tail and (batched or not lead):
            return array.reshape(*array.shape[:lead], block.size)
    expected = f"the kernel takes {shape} or (..., {', '.join(map(str, shape))})"
    raise InputError(
        f"{name} has shape {array.shape}: {expected if batched else f'{shape} is needed'}"
    )


def joined(rows: Sequence[Any], name: str, xp: Any = np) -> Any:
    """Rows side by side, their batches broadcast."""
    if all(r.ndim == 1 for r in rows):
        return xp.concatenate(rows)
    if len({r.shape[:-1] for r in rows}) == 1:
        return xp.concatenate(rows, axis=-1)
    try:
        batch = np.broadcast_shapes(*[r.shape[:-1] for r in rows])
    except ValueError as error:
        raise InputError(f"the batches of {name} do not go together: {error}") from error
    return xp.concatenate([xp.broadcast_to(r, (*batch, r.shape[-1])) for r in rows], axis=-1)


Values = Any
"""An array (..., columns): NumPy's, or on a device."""

Reader = Callable[[], Any]
"""A function that reads a result, as an array or a number of its own."""


@dataclass(frozen=True)
class Scalar:
    """One number a point: a Python float for a single one."""

    shapes = ((),)
    """The shapes of the arrays that a result consists of, at a point."""

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        if batch or not isinstance(values, np.ndarray):
            return values.reshape(batch)
        return float(values[0, 0])

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return values.item

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        yield result


@dataclass(frozen=True)
class Array:
    """An array of fixed shape a point."""

    shape: tuple[int, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays that a result consists of, at a point."""
        return (self.shape,)

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        return values.reshape(batch + self.shape)

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return values.reshape(self.shape).copy

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        yield result


@dataclass(frozen=True)
class Nested:
    """The nesting that the traced function returned."""

    tree: Tree

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays that a result consists of, at a point."""
        return tuple(block.shape for block in self.tree.blocks)

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        rows = values.reshape((*batch, self.tree.size))
        return self.tree.build(rows) if isinstance(values, np.ndarray) else self.tree.seen(rows)

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return partial(self.tree.build, values)

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        return self.tree.parts(result, name)


@dataclass(frozen=True)
class Derivatives:
    """Derivatives for nested variables, nested as these: of numbers, an array ``lead`` of them.

    Second derivatives, if ``second``, are nested twice: ``hessian["a"]["b"]`` has the axes of the
    variables a and then those of b.
    """

    tree: Tree
    lead: tuple[int, ...] = ()
    second: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays that a result consists of, at a point."""
        shapes = [block.shape for block in self.tree.blocks]
        firsts = shapes if self.second else [self.lead]
        return tuple(first + shape for first in firsts for shape in shapes)

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        n = self.tree.size
        rows = values.reshape((*batch, *(self.lead or (n,) * self.second), n))
        nest = self.tree.arrays if isinstance(values, np.ndarray) else self.tree.seen
        if not self.second:
            return nest(rows)
        return self.tree.nest(
            nest(rows[..., b.start : b.start + b.size, :].reshape((*batch, *b.shape, n)))
            for b in self.tree.blocks
        )

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        if self.second:
            return partial(self.of, values, ())
        rows = values.reshape((*self.lead, self.tree.size))
        views = [block.of(rows) for block in self.tree.blocks]
        reads = [v.copy if v.ndim else partial(v.__getitem__, ()) for v in views]
        return self.tree.reading(iter(reads))

    def matrix(self, hessian: Any) -> np.ndarray:
        """Second derivatives, nested or sparse as they are, as one array (n, n) of float64."""
        if hasattr(hessian, "toarray"):
            return hessian.toarray().astype(float)
        sizes = [block.size for block in self.tree.blocks]
        blocks = self.parts(hessian, "hessian")
        rows = [[np.reshape(next(blocks), (a, b)) for b in sizes] for a in sizes]
        return np.block(rows).astype(float)

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """The arrays that a result, or what is nested like it, consists of."""
        parts = self.tree.parts(result, name)
        if not self.second:
            return parts
        return itertools.chain.from_iterable(self.tree.parts(row, name) for row in parts)


@dataclass(frozen=True)
class Sparse:
    """A SciPy CSR matrix a point; for a batch, an object array of them."""

    shape: tuple[int, int]
    indices: tuple[int, ...]
    indptr: tuple[int, ...]
    shapes = ()

    def of(self, values: Values, batch: tuple[int, ...]) -> Any:
        """The result for the columns of a batch of this shape."""
        if not isinstance(values, np.ndarray):
            return values.reshape((*batch, len(self.indices)))
        matrices = np.empty(len(values), dtype=object)
        for k, row in enumerate(values):
            matrices[k] = self._matrix(row)
        return matrices.reshape(batch) if batch else matrices[0]

    def reader(self, values: np.ndarray) -> Reader:
        """How to read the result of one point from its columns, which the next one overwrites."""
        return partial(self._matrix, values)

    def parts(self, result: Any, name: str) -> Iterator[Any]:
        """Refuse: a matrix of SciPy is no array that could be written to."""
        raise InputError(f"out= takes numbers and arrays: {name} is sparse")

    def _matrix(self, data: np.ndarray) -> Any:
        return scipy_sparse().csr_array((data.copy(), self.indices, self.indptr), shape=self.shape)


def scipy_sparse() -> Any:
    """SciPy's module of sparse matrices."""
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError as error:
        raise SymgradError("sparse matrices need SciPy: pip install 'symgrad[sparse]'") from error


Result = Scalar | Array | Nested | Derivatives | Sparse


def nested_result(tree: Tree) -> Result:
    """The result of a function, nested as it was returned."""
    if tree.is_leaf:
        return Array(tree.keys) if tree.keys else Scalar()
    return Nested(tree)


def derivatives(tree: Tree, lead: tuple[int, ...] = (), second: bool = False) -> Result:
    """Derivatives for the variables of a tree, of an array of numbers or of one; or second ones."""
    if tree.is_leaf:
        return Array((tree.keys if second else lead) + tree.keys)
    return Derivatives(tree, lead, second)
