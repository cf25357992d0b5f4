"""Programs tried out before they have any inputs: races and indices that are wrong for all of them.

All invocations go together, and compute what depends on no array. A statement is refused only for
what it certainly does; what is found of accesses holds for all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from symgrad.errors import ProgramError
from symgrad.expr.graph.node import ANY_INPUT, reachable
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.kernel.statements import (
    BOUND,
    Barrier,
    Buffer,
    For,
    If,
    Load,
    Reduce,
    Scope,
    Statement,
    Store,
    within,
)
from symgrad.kernel.uniform import Uniformity
from symgrad.programs.affine import Forms, is_owned, is_stored_once, is_whole
from symgrad.programs.code import Code, Dispatch, is_collective
from symgrad.programs.text import shown

MOST_INVOCATIONS: Final = 2**16
"""Invocations that are tried, at most."""

MOST_STEPS: Final = 2**22
"""Statements that are tried, turn by turn and invocation by invocation, at most."""

MOST_PLACES: Final = 2**24
"""Elements of an array, all copies of it together, of which it is noted who has been there."""

NOBODY: Final = -1
SEVERAL: Final = -2

Numbers = np.ndarray | None
"""What a value is in each invocation; None if that depends on the inputs."""


@dataclass
class Access:
    """What is known of how a statement reads or writes."""

    known: bool = True
    """Whether all its indices are known."""
    distinct: bool = True
    """Whether no two invocations of a workgroup are at one place at the same time."""
    alone: bool = True
    """Whether no other invocation of the workgroup is at its places between the same barriers."""


@dataclass
class Facts:
    """What a trial of a dispatch tells of all its runs."""

    complete: bool = True
    """Whether all that is known without inputs was tried."""
    accesses: dict[Statement, Access] = field(default_factory=dict)
    owned: dict[Buffer, bool] = field(default_factory=dict)
    """Of global arrays, whether no two invocations are ever at one place of them."""
    once: dict[Buffer, bool] = field(default_factory=dict)
    """Of global arrays, whether no place is stored to twice."""
    whole: dict[Buffer, bool] = field(default_factory=dict)
    """Of global arrays, whether all their places are stored to, whatever the inputs are."""
    iterations: dict[For, int | None] = field(default_factory=dict)
    """How often loops turn, at most, if that is known."""


@dataclass(frozen=True)
class _Reached:
    """What a statement reaches: places ``at`` of an array, each by one of the ``cells``.

    It is ``sure`` if it is done at all.
    """

    statement: Load | Store
    shared: _Shared
    at: np.ndarray
    cells: np.ndarray
    sure: bool


class _Shared:
    """An array, and who has been where in it."""

    def __init__(self, array: Buffer, size: int) -> None:
        self.array = array
        self.written = np.zeros(size, bool)
        """The places that may have been stored to."""
        self.surely = np.zeros(size, bool)
        """Those that have been."""
        many = size if array.space != "own" else 0
        self._last = np.empty(many, np.int32)
        self.stored, self.touched = (np.full(many, NOBODY, np.int32) for _ in range(2))
        self.owned, self.once = True, True
        self.visits: list[tuple[Access, np.ndarray, np.ndarray]] = []
        """The accesses of a workgroup's array since the last barrier, their places, and whose."""
        self.blurred = False
        """Whether it is unknown who else was where since that barrier."""

    def wait(self, sure: bool) -> None:
        """A barrier, if it is ``sure`` that there is one."""
        self.blurred = self.blurred or not sure
        for access, at, cells in self.visits:
            access.alone &= not self.blurred and bool((self.touched[at] == cells).all())
        self.visits, self.blurred = [], not sure
        self.stored.fill(NOBODY)
        self.touched.fill(NOBODY)

    def several(self, at: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Those of some invocations, each at a place, that are where another one of them is."""
        self._last[at] = cells
        return self._last[at] != cells


def tried(code: Code, dispatch: Dispatch) -> Facts:
    """What is found by trying a dispatch.

    Raises:
        ProgramError: for a race, an index out of bounds, or a place that is read before anything
            is stored there; it names the statement.
    """
    trial = _Trial(code, dispatch, MOST_INVOCATIONS)
    if trial.cut_short and trial.groups > 2:  # a few groups to their end tell of all that are alike
        trial = _Trial(code, dispatch, 2 * dispatch.width)
    return trial.facts


_facts: WeakKeyDictionary[Dispatch, Facts] = WeakKeyDictionary()


def facts_of(dispatch: Dispatch, code: Code) -> Facts:
    """What is found by trying a dispatch, which is done once."""
    facts = _facts.get(dispatch)
    if facts is None:
        facts = _facts[dispatch] = tried(code, dispatch)
    return facts


class _Trial:
    def __init__(self, code: Code, dispatch: Dispatch, invocations: int) -> None:
        self.code, self.dispatch, self.nodes = code, dispatch, code.graph.nodes
        groups = -(-dispatch.invocations // dispatch.width)
        self.groups = min(groups, max(2, invocations // dispatch.width))
        self.n = self.groups * dispatch.width
        self.facts, self.steps = Facts(self.groups == groups), 0
        self.most = max(1, MOST_STEPS // self.n)
        self.cells = np.arange(self.n)
        self.lanes = self.cells.copy()
        """The numbers of invocations among those that are tried: the first and the last ones."""
        self.cells[self.n // 2 // dispatch.width * dispatch.width :] += (
            groups - self.groups
        ) * dispatch.width
        u = self.cells.astype(np.uint32)
        width = np.uint32(dispatch.width)
        self.values: dict[int, Numbers] = {
            dispatch.cell: u,
            dispatch.local: u % width,
            dispatch.group: u // width,
        }
        self._leaves: dict[int, list[int]] = {}
        self.variables: dict[Buffer, Numbers] = {}
        self._declarations = dispatch.declarations
        everyone = is_collective(dispatch)
        mask = np.ones(self.n, bool) if everyone else self.cells < dispatch.invocations
        arrays = dispatch.buffers
        copies = {"group": self.groups, "own": self.n}
        many = {a: a.size * copies.get(a.space, 1) for a in arrays}
        self.shared = {a: _Shared(a, n) for a, n in many.items() if 0 < n <= MOST_PLACES}
        self.block(dispatch.main, mask, True)
        self._wait(True)
        forms, facts = Forms(dispatch), self.facts
        for a in [a for a in arrays if a.space in BOUND]:
            tried = self.shared.get(a) if facts.complete else None
            mine = is_owned(forms, dispatch, a)
            facts.owned[a] = mine or (tried is not None and tried.owned)
            once = mine and is_stored_once(dispatch, a)
            facts.once[a] = once or (tried is not None and tried.once)
            full = tried is not None and bool(tried.surely.all())
            facts.whole[a] = full or is_whole(dispatch, a)
        if not facts.complete:
            self._generalize()

    @property
    def cut_short(self) -> bool:
        """Whether it ended before the dispatch did."""
        return self.steps > self.most

    def _generalize(self) -> None:
        """Keep of accesses what holds for the groups and the iterations that were not tried.

        What depends on no number of a group is alike in all of them.
        """
        groups = Uniformity(self.dispatch, memory=True, among="groups")
        for s, access in self.facts.accesses.items():
            assert isinstance(s, Load | Store), "nothing else is an access"
            if self.cut_short or s in groups.parted or groups.varies(s.index):
                access.known = access.distinct = access.alone = False

    def value(self, i: int) -> Numbers:
        """A value in each invocation."""
        if i not in self._leaves:
            order = reachable(self.code.graph, [i])
            self._leaves[i] = [n for n in order if self.nodes[n][0] in ANY_INPUT]
        inputs = {leaf: self.values.get(leaf) for leaf in self._leaves[i]}
        if any(v is None for v in inputs.values()):
            return None
        with np.errstate(all="ignore"):
            (values,) = evaluate_graph(self.code.graph, [i], inputs, np.float64)
        return np.broadcast_to(values, (self.n,))

    def block(self, scope: Scope, mask: np.ndarray, sure: bool) -> None:
        """Do statements where the mask holds, if it is ``sure`` that they are done."""
        for s in scope.statements:
            self.steps += 1
            if self.cut_short:
                self.facts.complete = False
                return
            self.statement(s, mask, sure)

    def statement(self, s: Statement, mask: np.ndarray, sure: bool) -> None:
        """Do one."""
        match s:
            case Store(buffer=v, value=value) if v.space == "variable":
                if s in self._declarations:
                    self.variables[v] = self.value(value)
                else:
                    self._assign(v, self.value(value), mask, sure)
            case Load(result=result, buffer=v) if v.space == "variable":
                self.values[result] = self.variables[v]
            case Load() | Store():
                self._access(s, mask, sure)
            case Reduce(result=result, among=among):
                self.values[result] = None
                if among > 1:
                    self._wait(sure)
            case Barrier():
                self._wait(sure)
            case If():
                self._choose(s, mask, sure)
            case For():
                self._loop(s, mask, sure)
            case _:
                pass

    def _assign(self, v: Buffer, value: Numbers, mask: np.ndarray, sure: bool) -> None:
        before = self.variables[v]
        if sure and mask.all():
            self.variables[v] = value
        elif not sure or value is None or before is None:
            self.variables[v] = None
        else:
            self.variables[v] = np.where(mask, value, before)

    def _wait(self, sure: bool) -> None:
        for a, shared in self.shared.items():
            if a.space == "group":
                shared.wait(sure)

    # memory --------------------------------------------------------------------------------------

    def _access(self, s: Load | Store, mask: np.ndarray, sure: bool) -> None:
        if isinstance(s, Load):
            self.values[s.result] = None
        access = self.facts.accesses.setdefault(s, Access())
        index, shared = self.value(s.index), self.shared.get(s.buffer)
        if sure and len(s.axes) > 1:
            self._require_axes(s, mask)
        if shared is None:
            access.known = access.distinct = access.alone = False
        elif index is None:
            access.known = access.distinct = access.alone = shared.owned = shared.once = False
            shared.blurred = True
            if isinstance(s, Store):
                shared.written[:] = True
        else:
            at = index.astype(np.int64)[mask]
            self._note(self._inside(_Reached(s, shared, at, self.lanes[mask], sure)), access)

    def _require_axes(self, s: Load | Store, mask: np.ndarray) -> None:
        """Refuse an index that is surely beyond its axis."""
        for number, (i, size) in enumerate(zip(s.axes, s.buffer.shape, strict=True)):
            index = self.value(i)
            if index is not None and (beyond := index[mask] >= size).any():
                first, name = int(index[mask][beyond][0]), s.buffer.name
                what = f"index {first} of axis {number} of {name} is out of bounds, it has {size}"
                self._refuse(s, what)

    def _inside(self, r: _Reached) -> _Reached:
        """What is within the array, where that stands; what is surely beyond it is refused."""
        array = r.statement.buffer
        inside = r.at < array.size
        if r.sure and not inside.all():
            first, size = int(r.at[~inside][0]), array.size
            what = f"index {first} of {array.name} is out of bounds, it has {size}"
            self._refuse(r.statement, what)
        cells = r.cells[inside]
        return replace(r, at=self._placed(array, r.at[inside], cells), cells=cells)

    def _placed(self, a: Buffer, at: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Where elements stand, of an array that there may be several of."""
        if a.space in BOUND:
            return at
        return at + a.size * (cells // self.dispatch.width if a.space == "group" else cells)

    def _note(self, r: _Reached, access: Access) -> None:
        s, shared, at, sure = r.statement, r.shared, r.at, r.sure
        a = s.buffer
        if a.space != "own":
            several = shared.several(at, r.cells)
            if several.any():
                access.distinct = shared.owned = False
            self._meet(r, several)
        if a.space == "group":
            shared.visits.append((access, at, r.cells))
        if isinstance(s, Store):
            if (shared.surely | shared.written)[at].any():
                shared.once = False
            shared.written[at] = True
            if sure:
                shared.surely[at] = True
        elif a.space not in BOUND and sure and not shared.written[at].all():
            self._refuse(s, f"nothing is stored in {a.name} there before it is read")

    def _meet(self, r: _Reached, several: np.ndarray) -> None:
        """Note who is where; refuse what is written by one and touched by another."""
        s, at, cells, sure = r.statement, r.at, r.cells, r.sure
        touched, stored = r.shared.touched, r.shared.stored
        mine = s.buffer.space != "read"
        before = stored[at] if isinstance(s, Load) else touched[at]
        others = (before != NOBODY) & (before != cells)
        if isinstance(s, Store):
            others = others | several
        if mine and sure and others.any():
            who = int(self.cells[cells[others][0]])
            self._refuse(
                s,
                f"a race: invocation {who} meets another one in {s.buffer.name}, which one of "
                "them writes, with no barrier of a workgroup between them",
            )
        touching = touched[at]
        apart = (touching != NOBODY) & (touching != cells)
        if apart.any():
            r.shared.owned = False
        touched[at] = cells
        touched[at[apart | several]] = SEVERAL
        if isinstance(s, Store) and sure:
            stored[at] = cells

    def _refuse(self, s: Statement, what: str) -> NoReturn:
        raise ProgramError(f"{shown(self.code, s)}: {what}")

    # blocks --------------------------------------------------------------------------------------

    def _choose(self, s: If, mask: np.ndarray, sure: bool) -> None:
        condition = self.value(s.condition)
        if condition is None:
            before = dict(self.variables)
            for scope in s.sides:
                self.variables = dict(before)
                self.block(scope, mask, False)
            self.variables = before | self._unknown(*s.sides)
            return
        for scope, side in zip(s.sides, (mask & condition, mask & ~condition), strict=True):
            if side.any():
                self.block(scope, side, sure)

    def _unknown(self, *scopes: Scope) -> dict[Buffer, Numbers]:
        """The variables that scopes change, as unknown."""
        stores = (s.buffer for s in within(*scopes) if isinstance(s, Store))
        return {v: None for v in stores if v.space == "variable"}

    def _loop(self, s: For, mask: np.ndarray, sure: bool) -> None:
        lo, hi = self.value(s.lo), self.value(s.hi)
        if lo is None or hi is None:
            self.facts.iterations[s] = s.most
            self.variables |= self._unknown(s.scope)
            self.values[s.k] = None
            self.block(s.scope, mask, False)
            self.variables |= self._unknown(s.scope)
            return
        trips = np.maximum(hi.astype(np.int64) - lo.astype(np.int64), 0)
        trips = np.where(mask, trips if s.most is None else np.minimum(trips, s.most), 0)
        many = int(trips.max(initial=0))
        self.facts.iterations[s] = max(self.facts.iterations.get(s) or 0, many)
        for t in range(many):
            k = trips - 1 - t if s.down else np.full(self.n, t)
            self.values[s.k] = (lo.astype(np.int64) + k).astype(np.uint32)
            self.block(s.scope, mask & (t < trips), sure)
            if self.cut_short:
                self.variables |= self._unknown(s.scope)
                return
