"""Programs tried out before they have any inputs: races and indices that are wrong for all of them.

All invocations go together, and compute what depends on no array. A statement is refused only for
what it certainly does; what is found of accesses holds for all inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from symgrad.errors import ProgramError
from symgrad.expr import ops
from symgrad.expr.graph.node import WORD
from symgrad.kernel.language.execute import Fault, Run, Visitors
from symgrad.kernel.language.index import remainder
from symgrad.kernel.language.statements import (
    BOUND,
    Buffer,
    For,
    GroupReduce,
    If,
    Load,
    Scope,
    Statement,
    Store,
    declarations,
    indices,
    within,
)
from symgrad.kernel.language.verify import Uniformity
from symgrad.programs.code import Code, Dispatch, shown

MOST_INVOCATIONS: Final = 2**16
"""Invocations that are tried, at most."""

MOST_STEPS: Final = 2**22
"""Statements that are tried, turn by turn and invocation by invocation, at most."""

MOST_PLACES: Final = 2**24
"""Elements of an array, all copies of it together, of which it is noted who has been there."""


@dataclass
class Access:
    """Facts of how a statement reads or writes."""

    known: bool = True
    """Whether all its indices are known."""
    distinct: bool = True
    """Whether no two invocations of a workgroup are at one place at the same time."""
    alone: bool = True
    """Whether no other invocation of the workgroup is at its places between the same barriers."""
    unsure: set[int] = field(default_factory=set)
    """The numbers of its `indices` that may be beyond their axes."""


@dataclass
class Facts:
    """Facts of all runs of a dispatch, from a trial of it."""

    complete: bool = True
    """Whether all that is known without inputs was tried."""
    accesses: dict[Load | Store, Access] = field(default_factory=dict)
    owned: dict[Buffer, bool] = field(default_factory=dict)
    """Of global arrays, whether no two invocations are ever at one place of them."""
    once: dict[Buffer, bool] = field(default_factory=dict)
    """Of global arrays, whether no place is stored to twice."""
    whole: dict[Buffer, bool] = field(default_factory=dict)
    """Of global arrays, whether all their places are stored to, whatever the inputs are."""
    iterations: dict[For, int | None] = field(default_factory=dict)
    """How often loops turn, at most, if that is known."""


class _CutShortError(Exception):
    """There is more to be tried than it is worth."""


class _Shared:
    """An array, and who has been where in it."""

    def __init__(self, array: Buffer, size: int) -> None:
        self.written = np.zeros(size, bool)
        """The places that may have been stored to."""
        self.surely = np.zeros(size, bool)
        """The places that have surely been stored to."""
        self.visitors = Visitors(0 if array.space == "own" else size)
        self.owned, self.once = True, True
        self.visits: list[tuple[Access, np.ndarray, np.ndarray]] = []
        """The accesses of a workgroup's array since the last barrier, their places, and whose."""
        self.blurred = False
        """Whether it is unknown who else was where since that barrier."""

    def wait(self, sure: bool) -> None:
        """A barrier, if it is ``sure`` that there is one."""
        self.blurred = self.blurred or not sure
        for access, at, cells in self.visits:
            access.alone &= not self.blurred and bool((self.visitors.all[at] == cells).all())
        self.visits, self.blurred = [], not sure
        self.visitors.forget()

    def lose(self, writes: bool) -> None:
        """Note that a place is read or written, and nobody knows which one."""
        self.owned = self.once = False
        self.blurred = True
        self.written |= writes


def tried(code: Code, dispatch: Dispatch) -> Facts:
    """The facts that a trial of a dispatch gives.

    Raises:
        ProgramError: for a race, an index out of bounds, or a place that is read before anything
            is stored there; it names the statement.
    """
    try:
        trial = _Trial(dispatch, MOST_INVOCATIONS)
        if trial.is_cut_short and trial.groups > 2:  # a few groups to their end tell of those alike
            trial = _Trial(dispatch, 2 * dispatch.width)
    except Fault as fault:
        raise ProgramError(f"{shown(code, fault.statement)}: {fault}") from None
    return trial.facts


_facts: WeakKeyDictionary[Dispatch, Facts] = WeakKeyDictionary()


def facts_of(dispatch: Dispatch, code: Code) -> Facts:
    """The facts of a dispatch, which is tried once."""
    facts = _facts.get(dispatch)
    if facts is None:
        facts = _facts[dispatch] = tried(code, dispatch)
    return facts


class _Trial(Run):
    """A run without inputs: a value that depends on them is None, for all invocations.

    The invocations are the first and the last ones, if there are many.
    """

    def __init__(self, dispatch: Dispatch, invocations: int) -> None:
        width, groups = dispatch.width, -(-dispatch.invocations // dispatch.width)
        self.groups = min(groups, max(2, invocations // width))
        super().__init__(dispatch, dispatch.invocations, self.groups, np.float64)
        self.facts, self.dispatch = Facts(self.groups == groups), dispatch
        self.steps, self.most = 0, max(1, MOST_STEPS // self.n)
        self.sure = True
        """Whether what is done here is done for all inputs."""
        self._lanes = self.cells.astype(np.int32)
        numbers = self.cells.copy()
        numbers[self.n // 2 // width * width :] += np.uint32((groups - self.groups) * width)
        self.values |= {dispatch.cell: numbers, dispatch.group: numbers // np.uint32(width)}
        self._declarations = declarations(dispatch.main)
        self._unknown: set[Buffer] = set()
        """The variables that depend on inputs."""
        for s in self._declarations:
            self.own[s.buffer] = self._memory(s.buffer, {})
        copies = {"group": self.groups, "own": self.n}
        sizes = {a: a.size * copies.get(a.space, 1) for a in dispatch.buffers}
        self.tried = {a: _Shared(a, n) for a, n in sizes.items() if 0 < n <= MOST_PLACES}
        with np.errstate(all="ignore"):
            self._try()

    @property
    def is_cut_short(self) -> bool:
        """Whether it ended before the dispatch did."""
        return self.steps > self.most

    def _try(self) -> None:
        facts, forms = self.facts, Forms(self.dispatch)
        try:
            self.main()
        except _CutShortError:
            facts.complete = False
        self._wait(self.everyone)
        for a in [a for a in self.dispatch.buffers if a.space in BOUND]:
            tried = self.tried.get(a) if facts.complete else None
            mine = is_owned(forms, self.dispatch, a)
            facts.owned[a] = mine or (tried is not None and tried.owned)
            once = mine and is_stored_once(self.dispatch, a)
            facts.once[a] = once or (tried is not None and tried.once)
            full = tried is not None and bool(tried.surely.all())
            facts.whole[a] = full or is_whole(self.dispatch, a)
        if not facts.complete:
            self._generalize()

    def _generalize(self) -> None:
        """Keep of accesses what holds for the groups and the iterations that were not tried.

        What depends on no number of a group is alike in all of them.
        """
        groups = Uniformity(self.dispatch, memory=True, among="groups")
        for s, access in self.facts.accesses.items():
            if self.is_cut_short or s in groups.parted or groups.varies(s.index):
                access.known = access.distinct = access.alone = False
            for axis, (i, _) in enumerate(indices(s)):
                if self.is_cut_short or s in groups.parted or groups.varies(i):
                    access.unsure.add(axis)

    # values --------------------------------------------------------------------------------------

    def _computed(self, i: int, mask: np.ndarray) -> Any:
        known = all(self.value(a) is not None for a in self.kernel.graph.args(i))
        return super()._computed(i, mask) if known else None

    def assign(self, i: int, value: Any, mask: np.ndarray) -> None:
        """Set what a node is, if that is known."""
        if value is None:
            self.values[i] = None
        else:
            super().assign(i, value, mask)

    def _is_known(self, *values: int) -> bool:
        return all(self.value(i) is not None for i in values)

    def item(self, item: int | Statement, mask: np.ndarray) -> None:
        """Do one, if it is worth it."""
        self.steps += 1
        if self.is_cut_short:
            raise _CutShortError
        super().item(item, mask)

    def _reduce(self, s: GroupReduce, mask: np.ndarray) -> None:
        self.know(s.result, None, mask)
        if s.among > 1:
            self._wait(mask)

    def _wait(self, mask: np.ndarray) -> None:
        for a, tried in self.tried.items():
            if a.space == "group":
                tried.wait(self.sure)

    # memory --------------------------------------------------------------------------------------

    def _load(self, s: Load, mask: np.ndarray) -> None:
        if s.buffer.space != "variable":
            self._access(s, mask)
        elif s.buffer not in self._unknown:
            super()._load(s, mask)
            return
        self.know(s.result, None, mask)

    def _store(self, s: Store, mask: np.ndarray) -> None:
        v, declares = s.buffer, s in self._declarations
        if v.space != "variable":
            self._access(s, mask)
            return
        remains = self.sure and (v not in self._unknown or bool(mask.all()))
        if self._is_known(s.value) and (declares or remains):
            self._unknown.discard(v)
            super()._store(s, mask)
        else:
            self._unknown.add(v)

    def _access(self, s: Load | Store, mask: np.ndarray) -> None:
        access = self.facts.accesses.setdefault(s, Access())
        array, tried = s.buffer, self.tried.get(s.buffer)
        for axis, (i, size) in enumerate(indices(s)):
            if not self._is_known(i) or (self.all(i)[mask] >= size).any():
                access.unsure.add(axis)
        if self.sure and self._is_known(*s.axes):
            self._require_axes(s, mask)
        if tried is None or not self._is_known(s.index):
            access.known = access.distinct = access.alone = False
            if tried is not None:
                tried.lose(isinstance(s, Store))
            return
        at, cells = self.all(s.index).astype(np.int64), self._lanes
        if mask is not self.everyone:
            at, cells = at[mask], cells[mask]
        if (beyond := at >= array.size).any():
            if self.sure:
                what = f"of {array.name} is out of bounds, it has {array.size}"
                raise Fault(s, f"index {at[beyond][0]} {what}")
            at, cells = at[~beyond], cells[~beyond]
        self._note(s, access, self.place(array, at, cells), cells)

    def _note(self, s: Load | Store, access: Access, at: np.ndarray, cells: np.ndarray) -> None:
        """Note who is where; refuse what is written by one and touched by another."""
        a, tried = s.buffer, self.tried[s.buffer]
        if a.space != "own":
            met = tried.visitors.visit(at, cells, isinstance(s, Store), self.sure)
            if self.sure and met.race.any():
                who = int(self.value(self.kernel.cell)[cells[met.race][0]])
                what = f"a race: invocation {who} meets another one in {a.name}, which one of them"
                raise Fault(s, f"{what} writes, with no barrier of a workgroup between them")
            access.distinct &= not met.together.any()
            tried.owned &= not (met.together | met.others).any()
        if a.space == "group":
            tried.visits.append((access, at, cells))
        if isinstance(s, Store):
            tried.once &= not (tried.surely | tried.written)[at].any()
            tried.written[at] = True
            tried.surely[at] |= self.sure
        elif a.space not in BOUND and self.sure and not tried.written[at].all():
            raise Fault(s, f"nothing is stored in {a.name} there before it is read")

    # blocks --------------------------------------------------------------------------------------

    def _choose(self, s: If, mask: np.ndarray) -> None:
        if self._is_known(s.condition):
            super()._choose(s, mask)
            return
        before = set(self._unknown)
        for scope in s.sides:
            self._unknown = set(before)
            self._maybe(scope, mask)
        self._unknown = before | _changed(s.sides)

    def _loop(self, s: For, mask: np.ndarray) -> None:
        iterations = self.facts.iterations
        if self._is_known(s.lo, s.hi):
            trips = self.all(s.hi).astype(np.int64) - self.all(s.lo)
            many = np.clip(trips[mask], 0, s.most).max(initial=0)
            iterations[s] = max(iterations.get(s) or 0, int(many))
            if s.scope.items:
                super()._loop(s, mask)
            return
        iterations[s] = s.most
        self._unknown |= _changed([s.scope])
        self.know(s.k, None, mask)
        self._maybe(s.scope, mask)
        self._unknown |= _changed([s.scope])

    def _maybe(self, scope: Scope, mask: np.ndarray) -> None:
        """Do what is done for some inputs only."""
        before, self.sure = self.sure, False
        self.scope(scope, mask)
        self.sure = before


def _changed(scopes: Iterable[Scope]) -> set[Buffer]:
    """The variables that scopes change."""
    stores = (s.buffer for s in within(*scopes) if isinstance(s, Store))
    return {v for v in stores if v.space == "variable"}


# --- indices that are each invocation's own -------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """The word ``scale * cell + rest``, with a rest from ``low`` to ``high``."""

    scale: int
    low: int
    high: int


class Forms:
    """The forms of the words of a dispatch, as far as they have one."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.graph, self.nodes = dispatch.graph, dispatch.graph.nodes
        self.known: dict[int, Form | None] = {dispatch.cell: Form(1, 0, 0)}
        self.known[dispatch.local] = Form(0, 0, dispatch.width - 1)
        for s in dispatch.statements:
            if isinstance(s, For):
                self.known[s.k] = self._counted(s)

    def _counted(self, s: For) -> Form | None:
        """The form of a loop's counter, whose bounds are numbers."""
        (first, *lo), (last, *hi) = self.nodes[s.lo], self.nodes[s.hi]
        if first is not WORD or last is not WORD or lo >= hi:
            return None
        return Form(0, lo[0], hi[0] - 1)

    def of(self, i: int) -> Form | None:
        """The form of a word."""
        if i not in self.known:
            self.known[i] = self._form_of(i)
        return self.known[i]

    def _form_of(self, i: int) -> Form | None:
        op, *args = self.nodes[i]
        if op is WORD:
            return Form(0, args[0], args[0])
        if rest := remainder(self.graph, i):
            return Form(0, 0, self.nodes[rest[1]][1] - 1)
        if op not in (ops.word_add, ops.word_mul):
            return None
        a, b = map(self.of, args)
        if a is None or b is None:
            return None
        if op is ops.word_add:
            return Form(a.scale + b.scale, a.low + b.low, a.high + b.high)
        if b.scale or b.low != b.high:
            a, b = b, a
        if b.scale or b.low != b.high:
            return None
        return Form(a.scale * b.low, a.low * b.low, a.high * b.low)


def accesses(dispatch: Dispatch, a: Buffer) -> list[Load | Store]:
    """The statements that read or write an array."""
    return [s for s in dispatch.statements if isinstance(s, Load | Store) and s.buffer is a]


def is_owned(forms: Forms, dispatch: Dispatch, a: Buffer) -> bool:
    """Whether each element is one invocation's: of a row that is as long as all its rests."""
    index_forms = [forms.of(s.index) for s in accesses(dispatch, a)]
    scale = max((f.scale for f in index_forms if f), default=0)
    fits = scale * dispatch.invocations <= 2**32
    return fits and all(f is not None and f.scale == scale and f.high < scale for f in index_forms)


def is_stored_once(dispatch: Dispatch, a: Buffer) -> bool:
    """Whether there is one store, which each invocation comes to once, to elements of its own."""
    stores = [s for s in accesses(dispatch, a) if isinstance(s, Store)]
    loops = [s for s in dispatch.statements if isinstance(s, For)]
    inside = any(s in stores for loop in loops for s in within(loop.scope))
    return len(stores) == 1 and not inside


def is_whole(dispatch: Dispatch, a: Buffer) -> bool:
    """Whether each invocation stores the element of its number, and there are no others."""
    stores = (s for s in dispatch.main.items if isinstance(s, Store) and s.buffer is a)
    return dispatch.invocations >= a.size and any(s.index == dispatch.cell for s in stores)
