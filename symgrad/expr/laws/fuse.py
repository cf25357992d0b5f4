"""Loops over the same iterations that carry some of the same values become one loop; so do choices.

So what a loop computes and what it keeps for its transpose, or its tangents, are computed together,
however many derivatives were taken, one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from symgrad.expr.graph.arrays import size_of
from symgrad.expr.graph.node import Graph, flags, inputs_of, reachable
from symgrad.expr.graph.rebuild import Copy, continued, rebuild
from symgrad.expr.graph.region import (
    TURNS,
    Choice,
    Loop,
    Pick,
    Region,
    Regional,
    choice_op,
    close,
    from_regions_on,
    loop_op,
    pick,
)


class LoopsInStrips(dict[int, int]):
    """A note of a graph: results of loops, and those of the loops in strips that stand for them."""


MOST_ROUNDS: Final = 8
"""How often classes of carries are split before nothing is made of them."""

Item = tuple[Loop | Choice, tuple[int, ...]]
"""A loop or choice, and its arguments."""

Slot = tuple[int, int]
"""Which of several items, and which of its results or carries."""


def fused(graph: Graph, roots: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph in which loops that share carries are one, as choices on one condition are.

    Loops that are transposed in strips run in strips.
    """
    order = from_regions_on(graph, roots)
    in_strips = graph.note(LoopsInStrips)
    if not in_strips.keys().isdisjoint(order):
        region, _ = close(graph, inputs_of(graph), roots, in_strips)
        graph, roots = region.graph, region.yields
        order = from_regions_on(graph, roots)
    levels = _levels(graph, order)
    groups = [group for items in levels for group in _alike(graph, items, graph.args)]
    start = min((group[0] for group in groups if len(group) > 1), default=None)
    if start is None:
        return graph, list(roots)
    fusing = _Fusing(graph, start)
    for items in levels:
        fusing.fuse(items)
    return fusing.target, fusing.finished(order, roots)


def _levels(graph: Graph, order: Sequence[int]) -> list[list[int]]:
    """Loops and choices by how many stand one behind another before them.

    Those of one level need nothing of one another; and where some of them become one, none comes to
    wait for itself.
    """
    nodes, level = graph.nodes, defaultdict[int, int](int)
    levels: list[list[int]] = []
    last = max((i for i in order if isinstance(nodes[i][0], Regional)), default=-1)
    for i in order[: bisect_right(order, last)]:
        level[i] = max([level[a] for a in graph.args(i)], default=0)
        if isinstance(nodes[i][0], Regional):
            levels += [[]] if level[i] == len(levels) else []
            levels[level[i]].append(i)
            level[i] += 1
    return levels


def _alike(
    graph: Graph, nodes: Sequence[int], args: Callable[[int], Sequence[int]]
) -> list[list[int]]:
    """Loops over the same iterations, and choices on one condition, by what their ``args`` are."""
    groups: dict[Hashable, list[int]] = {}
    for i in nodes:
        op, arguments = graph.nodes[i][0], args(i)
        ends = (
            (*arguments[:2], op.test, op.down, op.most) if isinstance(op, Loop) else arguments[:1]
        )
        groups.setdefault(tuple(ends), []).append(i)
    return list(groups.values())


class _Fusing:
    """A graph on its way to another, in which what can be one is; nodes before ``start`` stay."""

    def __init__(self, graph: Graph, start: int) -> None:
        copy = continued(graph, start)
        self._graph, self.target = graph, copy.graph
        self._derived = flags(graph, graph.derived)
        self._new: list[int] = list(copy.of(range(len(graph)))[1])
        """The node that stands for each node; -1 if there is none yet."""
        self._results: dict[Slot, int] = {}
        """The results of loops and choices that are one with others."""

    def build(self, roots: Sequence[int]) -> list[int]:
        """The nodes that stand for the roots in the graph that is made."""
        stack = list(roots)
        while stack:
            i = stack[-1]
            missing = [] if self._new[i] >= 0 else self._missing(i)
            stack += missing
            if not missing:
                stack.pop()
                if self._new[i] < 0:
                    self._new[i] = self._add(i)
        return [self._new[i] for i in roots]

    def finished(self, order: Iterable[int], roots: Sequence[int]) -> list[int]:
        """The roots in the new graph; ``order`` are the nodes that they need, ascending."""
        for i in order:
            if self._new[i] < 0:
                self._new[i] = self._add(i)
        return [self._new[i] for i in roots]

    def _missing(self, i: int) -> list[int]:
        return [a for a in self._graph.args(i) if self._new[a] < 0]

    def _add(self, i: int) -> int:
        """Add node i to the new graph, or take the result of a fused loop or choice."""
        node, target, before = self._graph.nodes[i], self.target, len(self.target)
        target.place = self._graph.places[i]
        if node[0].__class__ is Pick and (node[1], node[0].index) in self._results:
            return self._results[node[1], node[0].index]
        args = [self._new[a] for a in self._graph.args(i)]
        new = target.add(node[0], *args) if args else target.intern(node)
        if self._derived[i] and new == before:
            target.derived.append(range(new, new + 1))
        return new

    def fuse(self, nodes: Sequence[int]) -> None:
        """Make one of those of a level that can be one."""
        for group in _alike(self._graph, nodes, lambda i: self.build(self._graph.args(i))):
            if len(group) > 1:
                self._one(group)

    def _one(self, group: Sequence[int]) -> None:
        """Fuse a group of loops or choices: their results are those of the fused ones."""
        graph, target = self._graph, self.target
        target.place = graph.places[group[0]]
        items = [(graph.nodes[i][0], tuple(self.build(graph.args(i)))) for i in group]
        one = _one_choice if isinstance(items[0][0], Choice) else _few_loops
        for (n, j), result in one(target, items).items():
            self._results[group[n], j] = result
            if self._new[group[n]] < 0:
                self._new[group[n]] = target.nodes[result][1]


class _Joint:
    """The regions of several loops or choices in one graph.

    What they need, whether from outside or as parameters, are inputs by ``key``: the same for all.
    """

    def __init__(self, outer: Graph) -> None:
        self._outer, self.graph = outer, Graph()
        self.graph.tracing, self.graph.sources = False, outer.sources
        self._inputs: dict[Hashable, int] = {}

    def input(self, key: Hashable, like: int, name: str) -> int:
        """The input of this key, of the type of a node outside."""
        if key not in self._inputs:
            kind, length = self._outer.type(like), size_of(self._outer, like)
            self._inputs[key] = self.graph.input(name, kind, length)
        return self._inputs[key]

    def captures(self, body: Region, ids: Sequence[int], first: int) -> dict[int, int]:
        """Inputs for parameters that stand for these nodes outside, from number ``first`` on."""
        names = body.graph.names
        return {
            body.params[n]: self.input(("outside", a), a, names[n])
            for n, a in enumerate(ids, first)
        }

    def finished(self, yields: Iterable[Sequence[int]]) -> list[list[int]]:
        """The yields of all regions after the loops in them have been fused as well."""
        sizes = [len(y) for y in yields]
        self.graph, flat = fused(self.graph, [i for y in yields for i in y])
        self._inputs = dict(zip(self._inputs, inputs_of(self.graph), strict=True))
        ends = iter(flat)
        return [[next(ends) for _ in range(n)] for n in sizes]

    def region(self, keys: Iterable[Hashable], yields: Sequence[int]) -> Region:
        """The region of these parameters and yields."""
        return close(self.graph, [self._inputs[key] for key in keys], yields)[0]


# --- choices --------------------------------------------------------------------------------------


def _one_choice(graph: Graph, choices: Sequence[Item]) -> dict[Slot, int]:
    """One choice in place of several on one condition: what stands for their results."""
    joint, outside = _Joint(graph), dict[int, None]()
    yields: list[list[int]] = []
    for op, (_, *captures) in choices:
        outside |= dict.fromkeys(captures)
        yields.append(copied(joint.graph, op.body, joint.captures(op.body, captures, 0)))
    numbers: dict[tuple[int, int], int] = {}
    slots: dict[Slot, int] = {}
    for n, ends in enumerate(joint.finished(yields)):
        sides = zip(ends[: len(ends) // 2], ends[len(ends) // 2 :], strict=True)
        for j, both in enumerate(sides):
            slots[n, j] = numbers.setdefault(both, len(numbers))
    both = [*[a for a, _ in numbers], *[b for _, b in numbers]]
    op = choice_op(joint.region([("outside", a) for a in outside], both), len(numbers))
    choice = graph.add(op, choices[0][1][0], *outside)
    types = op.body.types(op.body.yields)
    return {at: pick(graph, choice, n, types[n]) for at, n in slots.items()}


# --- loops ----------------------------------------------------------------------------------------


def _few_loops(graph: Graph, loops: Sequence[Item]) -> dict[Slot, int]:
    """One loop in place of those that share carries: what stands for their results."""
    classes, results = _Classes(graph, loops), dict[Slot, int]()
    for together in classes.together() if classes.settled else ():
        if len(together) < len(loops):  # what is inside may be one with what is inside the others
            part = _few_loops(graph, [loops[n] for n in together])
            results |= {(together[n], j): result for (n, j), result in part.items()}
            continue
        loop, numbers = classes.merged()
        results |= {(n, TURNS): pick(graph, loop, TURNS, "u") for n in together}
        for at, number in numbers.items():
            kind = graph.type(graph.nodes[loop][3 + number])
            results[at] = pick(graph, loop, number, kind)
    return results


class _Classes:
    """Which carries of several loops have the same value in every iteration.

    First all with the same init are taken to be the same; whatever then has another next value is
    not, until all agree. ``settled`` says whether they do: loops with long chains of carries are
    left alone.
    """

    def __init__(self, outer: Graph, loops: Sequence[Item]) -> None:
        self._outer, self._loops = outer, loops
        self._ops: list[Loop] = [op for op, _ in loops if isinstance(op, Loop)]
        split = [op.split(args[2:]) for op, (_, args) in zip(self._ops, loops, strict=True)]
        self._inits, self._captures = [s[0] for s in split], [s[1] for s in split]
        self._class: dict[Slot, int] = {
            (n, j): a for n, inits in enumerate(self._inits) for j, a in enumerate(inits)
        }
        self._joint = _Joint(outer)
        self._yields: list[list[int]] = []
        self.settled = any(self._agree() for _ in range(MOST_ROUNDS))

    def _agree(self) -> bool:
        """Whether the carries of a class have the same next value; if not, it is split."""
        self._joint = _Joint(self._outer)
        self._yields = self._joint.finished([self._next(n) for n in range(len(self._loops))])
        split = {(n, j): (name, self._yields[n][j]) for (n, j), name in self._class.items()}
        numbers: dict[tuple[int, int], int] = {}
        new = {at: numbers.setdefault(name, len(numbers)) for at, name in split.items()}
        if len(numbers) == len(set(self._class.values())):
            return True
        self._class = new
        return False

    def _next(self, n: int) -> list[int]:
        """The yields of loop n in the joint graph."""
        op, joint, (lo, *_) = self._ops[n], self._joint, self._loops[n][1]
        names = op.body.graph.names
        new = {op.body.params[0]: joint.input("counter", lo, names[0])}
        for j, init in enumerate(self._inits[n]):
            key = "carry", self._class[n, j]
            new[op.body.params[1 + j]] = joint.input(key, init, names[1 + j])
        new |= joint.captures(op.body, self._captures[n], 1 + op.carries)
        return copied(joint.graph, op.body, new)

    def together(self) -> list[list[int]]:
        """The loops that share carries and end in the same iteration, in groups of several."""
        first: dict[Hashable, int] = {}
        group = {n: [n] for n in range(len(self._loops))}
        for (n, _), name in self._class.items():
            other = first.setdefault((name, *self._test(n)), n)
            if group[other] is not group[n]:
                group[other] += group[n]
                group.update(dict.fromkeys(group[n], group[other]))
        return [members for n, members in group.items() if members[0] == n and len(members) > 1]

    def _test(self, n: int) -> list[int]:
        """The test of loop n, if it has one."""
        return self._yields[n][self._ops[n].carries :]

    def merged(self) -> tuple[int, dict[Slot, int]]:
        """One loop for all, and which carry of it each of theirs is."""
        numbers: dict[int, int] = {}
        inits: list[int] = []
        yields: list[int] = []
        for n, j in self._class:
            if numbers.setdefault(self._class[n, j], len(numbers)) == len(inits):
                inits.append(self._inits[n][j])
                yields.append(self._yields[n][j])
        outside = dict.fromkeys(a for captures in self._captures for a in captures)
        keys = ["counter", *[("carry", c) for c in numbers], *[("outside", a) for a in outside]]
        region = self._joint.region(keys, [*yields, *self._test(0)])
        op, (lo, hi, *_) = self._ops[0], self._loops[0][1]
        joint = loop_op(region, len(numbers), op.test, op.down, op.most)
        loop = self._outer.add(joint, lo, hi, *inits, *outside)
        return loop, {at: numbers[name] for at, name in self._class.items()}


def copied(graph: Graph, region: Region, new: dict[int, int]) -> list[int]:
    """The yields of a region in another graph, where its parameters are the nodes ``new``."""
    order = [i for i in reachable(region.graph, region.yields) if i not in new]
    return rebuild(region.graph, order, Copy(graph, new)).of(region.yields)[1]
