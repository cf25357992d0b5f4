"""The invariants of a graph, checked: by tests after every pass, by the pipeline at its end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from symgrad.expr.graph.arrays import ArrayOp
from symgrad.expr.graph.node import (
    ARRAYS,
    CONST,
    HOLES,
    INPUT,
    INPUTS,
    INTEGER,
    TRUTH,
    WORD,
    Graph,
    Node,
    Op,
)
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Region

_NUMBERS: Final = frozenset((CONST, INTEGER, WORD, TRUTH))
"""Leaves that are numbers."""


MOST_VERIFIED: Final = 2_000
"""Nodes up to which graphs and kernels are verified wherever they are made."""


def is_verified(nodes: int) -> bool:
    """Whether a graph or a kernel of this many nodes is verified on its way to a device.

    What is long takes a tenth of its compilation, and up to a sixth: it is verified where the
    environment variable SYMGRAD_VERIFY is set, as in all tests. Only symgrad itself can make a
    fault; what users write is checked where it is traced.
    """
    return nodes <= MOST_VERIFIED or bool(os.environ.get("SYMGRAD_VERIFY"))


def verify(graph: Graph, roots: Sequence[int] = ()) -> None:
    """Raise AssertionError with the neighbourhood of the first fault, if there is one."""
    for fault in faults(graph, roots):
        raise AssertionError(fault)


def faults(graph: Graph, roots: Sequence[int] = ()) -> Iterator[str]:
    """The faults of a graph and of the regions in it, in words."""
    if len(set(graph.nodes)) != len(graph.nodes):
        yield "two nodes are equal: hash-consing failed"
    if len(graph.places) != len(graph.nodes):
        yield f"{len(graph.places)} places for {len(graph.nodes)} nodes"
    yield from (f"root {i} is no node" for i in roots if not 0 <= i < len(graph.nodes))
    names, kinds = len(graph.names), [str(node[0].result) for node in graph.nodes]
    expected = {op: _plain_arguments(op) for op in dict.fromkeys(node[0] for node in graph.nodes)}
    for i, node in enumerate(graph.nodes):
        of = expected[node[0]]
        if not (_is_sound(node, i, kinds, of) if of else _is_plain(node, names)):
            yield from _node_faults(graph, i)
    for op in expected:
        yield from (f"in the region of {op.name}: {fault}" for fault in _op_faults(op))


def _plain_arguments(op: Op) -> str:
    """The types of an operation's arguments; empty of leaves, loops and choices."""
    return op.signature.split("->")[0] if type(op) in (Op, ArrayOp) else ""


def _is_sound(node: Node, i: int, kinds: Sequence[str], expected: str) -> bool:
    """Whether operation i has no fault, found quickly."""
    op: Op = node[0]
    args: tuple[int, ...] = node[1:]
    if len(args) == 2:  # as the others, but most are: in half the time
        a, b = args
        before = 0 <= a < i and 0 <= b < i
        return before and kinds[a] + kinds[b] == expected and not (op.commutative and a > b)
    if not args or min(args) < 0 or max(args) >= i:
        return False
    types = "".join([kinds[a] for a in args])
    return types == expected and not (op.commutative and args[0] > args[1])


def _is_plain(node: Node, names: int) -> bool:
    """Whether a leaf is a sound number or input, found quickly; False of other leaves."""
    op = node[0]
    return len(node) == 2 and (op in _NUMBERS or (op is INPUT and node[1] < names))


def _node_faults(graph: Graph, i: int) -> Iterator[str]:
    """The faults of one node."""
    op, *rest = graph.nodes[i]
    shown = f"node {i}: {op.name}{tuple(rest)}"
    if not op.arity:
        yield from (f"{shown} {fault}" for fault in _leaf_faults(graph, graph.nodes[i]))
        return
    if len(rest) != op.arity:
        yield f"{shown} needs {op.arity} arguments"
    if any(not 0 <= a < i for a in rest):
        yield f"{shown} has an argument that does not stand before it"
        return
    expected = op.signature.split("->")[0]
    types = "".join(graph.type(a) for a in rest)
    if types != expected:
        yield f"{shown} takes {expected}, not {types}"
    if op.commutative and rest[0] > rest[1]:
        yield f"{shown} has its arguments out of order"
    if isinstance(op, Pick) and _result_type(graph.nodes[rest[0]][0], op.index) != op.result:
        yield f"{shown} is no result of node {rest[0]}"


def _leaf_faults(graph: Graph, node: Node) -> Iterator[str]:
    """The faults of a leaf."""
    op, *payload = node
    is_input, is_hole = op is INPUTS.get(op.result), op is HOLES.get(op.result)
    sized = op.result in ARRAYS and not op.constant
    if len(payload) != 1 + is_hole + sized:
        yield "has not one payload" if not sized else "has not its payload and a length"
    elif is_input and payload[0] >= len(graph.names):
        yield "has no name"
    elif op.result in ARRAYS and payload[-1] < 1:
        yield "has no elements"


def _result_type(op: Op, index: int) -> str:
    """The type of a result of a loop or a choice; empty if there is no such result."""
    if isinstance(op, Loop):
        types = op.body.types(op.body.yields[: op.carries])
    else:
        types = op.body.types(op.sides()[0]) if isinstance(op, Choice) else ""
    if index == TURNS:
        return "u" if isinstance(op, Loop) else ""
    return types[index] if 0 <= index < len(types) else ""


def _op_faults(op: Op) -> Iterator[str]:
    """The faults of a loop or choice, and of the graph of its region."""
    if isinstance(op, Loop):
        yield from _loop_faults(op)
    if isinstance(op, Choice):
        yield from _choice_faults(op)
    if isinstance(op, (Loop, Choice)):
        yield from _region_faults(op.body)
        yield from faults(op.body.graph, op.body.yields)


def _loop_faults(op: Loop) -> Iterator[str]:
    """The faults of a loop's types."""
    kinds, yields = op.body.types(op.body.params), op.body.types(op.body.yields)
    if f"uu{kinds[1:]}->t" != op.signature or kinds[0] != "u":
        yield f"the parameters are {kinds}, of {op.signature}"
    if kinds[1 : 1 + op.carries] + "b" * op.test != yields:
        yield f"{kinds[1 : 1 + op.carries]} is carried, but {yields} is yielded"
    if op.most is not None and op.most < 0:
        yield f"there are at most {op.most} iterations"


def _choice_faults(op: Choice) -> Iterator[str]:
    kinds, (then, otherwise) = op.body.types(op.body.params), op.sides()
    if f"b{kinds}->t" != op.signature:
        yield f"the parameters are {kinds}, of {op.signature}"
    if op.body.types(then) != op.body.types(otherwise):
        yield f"the sides give {op.body.types(then)} and {op.body.types(otherwise)}"


def _region_faults(body: Region) -> Iterator[str]:
    """The faults of a region's parameters and leaves."""
    for k, i in enumerate(body.params):
        if body.graph.nodes[i][0] not in INPUTS.values() or body.graph.nodes[i][1] != k:
            yield f"parameter {k} is not input {k}"
    for i, (op, *_) in enumerate(body.graph.nodes):
        if not op.arity and not op.constant and i not in body.params:
            yield f"leaf {i}, {op.name}, is no parameter"
