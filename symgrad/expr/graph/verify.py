"""The invariants of a graph, checked: by tests after every pass, by the pipeline at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from symgrad.expr.graph.node import ARRAYS, HOLES, INPUTS, Graph, Node, Op
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Region


def verify(graph: Graph, roots: Sequence[int] = ()) -> None:
    """Raise AssertionError with the neighbourhood of the first fault, if there is one."""
    for fault in faults(graph, roots):
        raise AssertionError(fault)


def faults(graph: Graph, roots: Sequence[int] = ()) -> Iterator[str]:
    """What is wrong with a graph, or with a region in it, in words."""
    if len(set(graph.nodes)) != len(graph.nodes):
        yield "two nodes are equal: hash-consing failed"
    if len(graph.places) != len(graph.nodes):
        yield f"{len(graph.places)} places for {len(graph.nodes)} nodes"
    yield from (f"root {i} is no node" for i in roots if not 0 <= i < len(graph.nodes))
    kinds = [str(node[0].result) for node in graph.nodes]
    for i in range(len(graph.nodes)):
        if not _is_sound(graph.nodes[i], i, kinds):
            yield from _node_faults(graph, i)
    for op in dict.fromkeys(node[0] for node in graph.nodes):
        yield from (f"in the region of {op.name}: {fault}" for fault in _op_faults(op))


def _is_sound(node: Node, i: int, kinds: Sequence[str]) -> bool:
    """Whether node i has no fault, found quickly; of leaves, loops and choices it is not told."""
    op: Op = node[0]
    args: list[int] = list(node[1:])
    if not op.arity or type(op) is not Op or max(args) >= i or min(args) < 0:
        return False
    found = "".join([kinds[a] for a in args])
    return op.signature.startswith(found + "->") and not (op.commutative and args[0] > args[1])


def _node_faults(graph: Graph, i: int) -> Iterator[str]:
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
    wanted = op.signature.split("->")[0]
    found = "".join(graph.type(a) for a in rest)
    if found != wanted:
        yield f"{shown} takes {wanted}, not {found}"
    if op.commutative and rest[0] > rest[1]:
        yield f"{shown} has its arguments out of order"
    if isinstance(op, Pick) and _result_type(graph.nodes[rest[0]][0], op.index) != op.result:
        yield f"{shown} is no result of node {rest[0]}"


def _leaf_faults(graph: Graph, node: Node) -> Iterator[str]:
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
    if isinstance(op, Loop):
        yield from _loop_faults(op)
    if isinstance(op, Choice):
        yield from _choice_faults(op)
    if isinstance(op, (Loop, Choice)):
        yield from _region_faults(op.body)
        yield from faults(op.body.graph, op.body.yields)


def _loop_faults(op: Loop) -> Iterator[str]:
    kinds, yields = op.body.types(op.body.params), op.body.types(op.body.yields)
    if f"uu{kinds[1:]}->t" != op.signature or kinds[0] != "u":
        yield f"the parameters are {kinds}, of {op.signature}"
    if kinds[1 : 1 + op.carries] + "b" * op.test != yields:
        yield f"{kinds[1 : 1 + op.carries]} is carried, but {yields} is yielded"
    if op.most is not None and op.most < 0:
        yield f"there are at most {op.most} turns"


def _choice_faults(op: Choice) -> Iterator[str]:
    kinds, (then, otherwise) = op.body.types(op.body.params), op.sides()
    if f"b{kinds}->t" != op.signature:
        yield f"the parameters are {kinds}, of {op.signature}"
    if op.body.types(then) != op.body.types(otherwise):
        yield f"the sides give {op.body.types(then)} and {op.body.types(otherwise)}"


def _region_faults(body: Region) -> Iterator[str]:
    for k, i in enumerate(body.params):
        if body.graph.nodes[i][0] not in INPUTS.values() or body.graph.nodes[i][1] != k:
            yield f"parameter {k} is not input {k}"
    for i, (op, *_) in enumerate(body.graph.nodes):
        if not op.arity and not op.constant and i not in body.params:
            yield f"leaf {i}, {op.name}, is no parameter"
