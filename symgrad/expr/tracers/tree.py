"""Nests of arrays, and where their numbers stand in a row: dicts, lists, tuples, dataclasses.

To a traced function, parameters with names are `Blocks`.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, NameUnknownError, counted

_OWN: Final = frozenset({"items", "values", "get"})
"""Methods of mappings that parameters of the same name hide; ``keys`` they do not."""


class Blocks(Mapping[str, Any]):
    """Several blocks of parameters: ``p.cameras`` or ``p["cameras"]``, or blocks of them again.

    It is a mapping: ``dict(p)``, ``**p``, ``p.items()`` and loops over the names do what they do
    with a dict. The tree functions of JAX and of optree, where they are imported, know it.
    """

    def __init__(self, blocks: Mapping[str, Any]) -> None:
        self._blocks = dict(blocks)
        vars(self).update({name: self._blocks[name] for name in _OWN & set(self._blocks)})
        _register()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in vars(self).get("_blocks", ()):
            names = ", ".join(vars(self).get("_blocks", ()))
            raise NameUnknownError(f"there are no parameters {name!r}: the blocks are {names}")
        return self._blocks[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._blocks:
            raise NameUnknownError(
                f"there are no parameters {name!r}: the blocks are {', '.join(self._blocks)}"
            )
        return self._blocks[name]

    def get(self, key: str, default: Any = None) -> Any:
        """The block of this name, or else the default."""
        return self._blocks.get(key, default)

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<parameters {', '.join(self._blocks)}>"


def _flatten(blocks: Blocks) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(blocks[name] for name in blocks), tuple(blocks)


def _unflatten(names: tuple[str, ...], parts: Any) -> Blocks:
    return Blocks(dict(zip(names, parts, strict=True)))


_registered: list[object] = []
"""The modules whose tree functions know `Blocks`."""


def _register() -> None:
    """Make `Blocks` known to the tree functions that have been imported since."""
    for name in ("jax.tree_util", "optree"):
        module = sys.modules.get(name)
        if module is None or module in _registered:
            continue
        _registered.append(module)
        registry = getattr(module, "registry", None)
        everywhere = getattr(registry, "__GLOBAL_NAMESPACE", None)
        more = {} if everywhere is None else {"namespace": everywhere}
        module.register_pytree_node(Blocks, _flatten, _unflatten, **more)


@dataclass(frozen=True)
class Block:
    """An array of a nest: its name, where it begins in the row of all numbers, and its shape."""

    name: str
    start: int
    shape: tuple[int, ...]

    @cached_property
    def size(self) -> int:
        """The numbers in it."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """The numbers that one index takes from it."""
        return math.prod(self.shape[1:])

    def name_of(self, place: int) -> str:
        """The name of a number by its place in the row of all."""
        return f"{self.name}{place - self.start}"

    def of(self, values: Any) -> Any:
        """Its part of rows (..., numbers), shaped (..., *shape)."""
        part = values[..., self.start : self.start + self.size]
        return part.reshape((*values.shape[:-1], *self.shape))


@dataclass(frozen=True)
class Tree:
    """How arrays are nested.

    ``kind`` is None for one number, "condition" for one that says whether something is true,
    "integer" for one that is an integer,
    "array" for an array of shape ``keys``, "dict" with its keys, or the class of a list, tuple or
    dataclass, whose keys are its fields.
    """

    kind: Any = None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()
    like: Any = field(default=None, compare=False, repr=False)
    """An instance of a dataclass, whose static fields others have too; `Blocks`, if a dict was."""

    @cached_property
    def is_leaf(self) -> bool:
        """Whether it is an array or a number itself."""
        return self.kind in (None, "condition", "integer", "array")

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Its arrays, in order; the names of what contains them are joined by dots."""
        arrays: list[Block] = []
        for name, shape in self._leaves(""):
            start = arrays[-1].start + arrays[-1].size if arrays else 0
            arrays.append(Block(name or "p", start, shape))
        return tuple(arrays)

    def _leaves(self, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self.is_leaf:
            yield name, self.keys
            return
        for key, child in zip(self._labels, self.children, strict=True):
            yield from child._leaves(f"{name}.{key}" if name else str(key))

    @property
    def _labels(self) -> Iterable[Any]:
        return self.keys or range(len(self.children))

    @cached_property
    def _names(self) -> set[Any]:
        return set(self.keys)

    @cached_property
    def size(self) -> int:
        """The numbers in all arrays."""
        return sum(block.size for block in self.blocks)

    def nest(
        self, parts: Iterator[Any], wrap: Callable[[dict[str, Any]], Any] | None = dict
    ) -> Any:
        """The nest with these in the place of its arrays, and what ``wrap`` makes of its dicts.

        None leaves them what they were: dicts, or `Blocks`.
        """
        if self.is_leaf:
            return next(parts)
        children = [child.nest(parts, wrap) for child in self.children]
        if self.kind == "dict":
            return (wrap or self.like or dict)(dict(zip(self.keys, children, strict=True)))
        if self.like is not None:
            instance = copy.copy(self.like)  # not __init__, whose arguments may be others
            for name, part in zip(self.keys, children, strict=True):
                object.__setattr__(instance, name, part)
            return instance
        return self.kind(*children) if hasattr(self.kind, "_fields") else self.kind(children)

    def reading(self, reads: Iterator[Callable[[], Any]]) -> Callable[[], Any]:
        """A reader of a nest, by readers of its arrays."""
        if self.is_leaf:
            return next(reads)
        if self.kind == "dict":
            pairs = zip(self.keys, self.children, strict=True)
            named = [(key, child.reading(reads)) for key, child in pairs]
            return lambda: {key: read() for key, read in named}
        mine = [*itertools.islice(reads, len(self.blocks))]
        return lambda: self.nest(read() for read in mine)

    def build(self, values: np.ndarray) -> Any:
        """The nest of ``values`` (..., size): fresh arrays, and floats for single numbers."""
        parts = (block.of(values) for block in self.blocks)
        return self.nest(float(p) if p.ndim == 0 else p.copy() for p in parts)

    def arrays(self, values: np.ndarray, dtype: np.dtype[Any] | None = None) -> Any:
        """As `build`, with NumPy's numbers, which have a shape and a dtype, for floats."""
        kind = dtype or values.dtype
        return self.nest(block.of(values).astype(kind)[()] for block in self.blocks)

    def seen(self, values: Any) -> Any:
        """The nest of ``values`` (..., size): parts of them, of whatever kind of array they are."""
        return self.nest(block.of(values) for block in self.blocks)

    def parts(self, value: Any, what: str) -> Iterator[Any]:
        """The values in the place of the arrays in a nest like this one, in order.

        Raises:
            InputError: if it is nested otherwise; ``what`` is what it is called there.
        """
        if self.is_leaf:
            yield value
            return
        if self.kind == "dict":
            if not isinstance(value, Mapping) or set(value) != self._names:
                names = ", ".join(map(repr, self.keys))
                raise InputError(f"{what} must be a dict with the keys {names}")
        elif self.like is not None:
            if not isinstance(value, self.kind):
                raise InputError(f"{what} must be a {self.kind.__name__}")
            value = {name: getattr(value, name) for name in self.keys}
        elif not isinstance(value, (list, tuple)) or len(value) != len(self.children):
            raise InputError(
                f"{what} must be a list or a tuple of {counted(len(self.children), 'part')}"
            )
        for key, child in zip(self._labels, self.children, strict=True):
            if child.is_leaf:
                yield value[key]
            else:
                yield from child.parts(value[key], f"{what}[{key!r}]")

    def is_nest(self, value: Any) -> bool:
        """Whether a value is a container as this is, rather than all its numbers in a row."""
        if self.is_leaf:
            return False
        if self.kind == "dict":
            return isinstance(value, Mapping)
        if self.like is not None:
            return isinstance(value, self.kind)
        return isinstance(value, (list, tuple)) and len(value) == len(self.children)


def apart(value: Any) -> tuple[Tree, list[Any]] | None:
    """A container without what is in it, and its parts in order; None of what is no container.

    Of dataclasses, fields with ``metadata={"static": True}`` are none of the parts.
    """
    if isinstance(value, Mapping):
        like = Blocks if isinstance(value, Blocks) else None
        return Tree("dict", tuple(value), like=like), [value[name] for name in value]
    if isinstance(value, (list, tuple)):
        return Tree(type(value)), list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if not f.metadata.get("static")]
        names = [name for name in names if hasattr(value, name)]
        return Tree(type(value), tuple(names), like=value), [getattr(value, n) for n in names]
    return None


Leaf = Callable[[Any], "tuple[list[Any], Tree] | None"]
"""The values and the tree of what is not to be taken apart; None of all other values."""


def numbers_as_array(value: Any) -> tuple[list[Any], Tree] | None:
    """A list of numbers, or of such lists, is a leaf."""
    return ([value], Tree()) if _is_array(value) else None


def flatten(value: Any, leaf: Leaf = numbers_as_array) -> tuple[list[Any], Tree]:
    """The leaves of a nest, in order, and how they are nested.

    ``leaf`` says what is a leaf besides that which is no container, and what it consists of.
    """
    own = leaf(value)
    outer = apart(value) if own is None else None
    if outer is None:
        return own or ([value], Tree())
    pairs = [flatten(part, leaf) for part in outer[1]]
    node, children = outer[0], tuple(tree for _, tree in pairs)
    leaves = [v for part, _ in pairs for v in part]
    return leaves, Tree(node.kind, node.keys, children, node.like)


def _is_array(value: Any) -> bool:
    """Whether it is a list that stands for an array, rather than one of several parts."""
    return isinstance(value, list) and all(isinstance(v, _ELEMENTS) for v in value)


_ELEMENTS = list, int, float, np.generic

Sizes = int | Sequence[int] | Mapping[str, Any] | Tree
"""The sizes that users give as ``n``: see `tree_of`."""


def tree_of(n: Any) -> Tree:
    """The tree for ``n``: a number of parameters, a shape, or dicts of names and either, nested.

    A shape of () is one number. A tree is what it is.

    Raises:
        InputError: for anything else, and if there are no parameters.
    """
    tree = n if isinstance(n, Tree) else _tree(n, n)
    if not tree.size:
        raise InputError("a kernel needs at least one parameter")
    return tree


def _tree(n: Any, whole: Any) -> Tree:
    """The tree of a size, or of a part of the sizes ``whole``."""
    if isinstance(n, Mapping):
        for key in n:
            if not isinstance(key, str) or not key.isidentifier():
                raise InputError(f"n={whole!r}: the name of a block is an identifier, not {key!r}")
        return Tree("dict", tuple(n), tuple(_tree(size, whole) for size in n.values()))
    shape = tuple(n) if isinstance(n, (tuple, list)) else (n,)
    plain = all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) for s in shape)
    if not plain or min(shape, default=1) < 1:
        raise InputError(f"n={whole!r}: a number of parameters, a shape, or dicts of them")
    return Tree("array", tuple(int(s) for s in shape)) if shape else Tree()
