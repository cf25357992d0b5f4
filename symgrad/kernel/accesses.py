"""Reads and writes of the items of a scope: numbers by their nodes, and buffers by index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import (
    Buffer,
    Call,
    Fill,
    For,
    If,
    Let,
    Load,
    Read,
    ReadRow,
    Reduce,
    Statement,
    Store,
    StoreRow,
)


def operands(kernel: KernelIR, item: int | Statement) -> Sequence[int]:
    """The values that an item needs where it stands: not those that its scopes need.

    Of an index they are what it is made of, where the item knows that.
    """
    match item:
        case int():
            return kernel.graph.args(item)
        case For(lo=lo, hi=hi, inits=inits):
            return lo, hi, *inits
        case If(condition=condition):
            return (condition,)
        case Load(index=index, axes=axes):
            return axes or (index,)
        case Store(index=index, axes=axes, value=value):
            return (*axes, value) if axes else (index, value)
        case Let(value=value) | Reduce(value=value):
            return (value,)
        case ReadRow(row=row):
            return (row,)
        case StoreRow(values=values):
            return values
        case Call(args=args):
            return args
        case _:
            return ()


def accesses(kernel: KernelIR, item: int | Statement) -> Iterator[tuple[Buffer, int | None]]:
    """The buffer that an item reads or writes, and the index; None for many."""
    if isinstance(item, int):
        op, *args = kernel.graph.nodes[item]
        if isinstance(op, Read):
            yield op.buffer, args[0]
    elif isinstance(item, (Load, Store)):  # a union would be made anew at every call
        yield item.buffer, item.index
    elif isinstance(item, (Fill, ReadRow, StoreRow)):
        yield item.buffer, None
