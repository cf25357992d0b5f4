"""`Kernel.audit`: which operations lose precision in float32, and at which of the user's lines.

A kernel keeps its results as `Expressions`, as they are before lowering, to be audited or read.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.place import Place
from symgrad.expr.graph.region import require_straight
from symgrad.expr.laws.simplify import Level, simplify
from symgrad.expr.semantics.evaluate import (
    DIGITS,
    KINDS,
    Comparison,
    compare,
    effect,
    incoming,
    kinds,
)
from symgrad.expr.semantics.show import summary
from symgrad.expr.tracers.expression import Expr
from symgrad.report.progress import Asked, reporting
from symgrad.values.nested import Array, Result, Sparse

VALUES_AT_A_TIME: Final = 1_000_000
"""Values of nodes at points that are looked at together."""

MOST_OPERATIONS_TRIED: Final = 8
"""Operations of one line, and points for each, whose effects are computed."""

LEAST_SHARE: Final = 0.1
"""The share of a result's error from which an operation is said to explain it."""

EVERYTHING: Final = 2.0**DIGITS
"""An error in ULP at which no digit is right."""


@dataclass(frozen=True)
class Outcome:
    """How wrong one result is in float32, at the point (by its index) where it is worst."""

    result: str
    ulp: float
    point: int
    float32: float
    float64: float


@dataclass(frozen=True)
class Suspect:
    """An operation that loses precision which a result needs, at the point that shows it best.

    ``kind`` is "cancellation" (a sum much smaller than its terms), "amplification" (any other
    operation that makes errors grow), "overflow" (infinite in float32 only), "underflow",
    "infinity" (in float64 too), "NaN" (none of the arguments is one), or "decision" (a comparison
    that comes out differently). ``place`` is the user's line; derivatives have the line of what
    they are derivatives of. ``point`` is the index and ``x`` the input; ``float32`` and
    ``float64`` are the operation's values there. ``ulp_in`` is the largest error of its arguments
    and ``ulp`` its own, in units in the last place of a float32. ``results`` has the share of the
    error of each result that the operation explains; ``count`` is how many operations of the same
    line and kind there are like it.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(1, lambda v: (1 + v[0]) - 1, device="cpu")
        >>> suspect = kernel.audit([[2.0**-30]]).suspects[0]
        >>> suspect.kind, suspect.x, suspect.float32, suspect.float64 == 2.0**-30
        ('cancellation', (9.313225746154785e-10,), 0.0, True)
    """

    kind: str
    operation: str
    place: Place | None
    point: int
    x: tuple[float, ...]
    float32: float
    float64: float
    ulp_in: float
    ulp: float
    results: dict[str, float]
    count: int

    @property
    def in_float64_too(self) -> bool:
        """Whether float64 has no finite value here either: the mathematics, not the precision."""
        return not math.isfinite(self.float64)


@dataclass(frozen=True)
class Audit:
    """The result of an audit of a kernel: the suspects, worst first, and how wrong each result is.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(1, lambda v: (1 + v[0]) - 1, device="cpu")
        >>> audit = kernel.audit([[1e-9]])
        >>> audit.clean, [suspect.kind for suspect in audit.suspects]
        (False, ['cancellation'])
    """

    kernel: str
    points: int
    inputs: tuple[str, ...]
    least: float
    outcomes: tuple[Outcome, ...]
    suspects: tuple[Suspect, ...]

    @property
    def clean(self) -> bool:
        """Whether every result is within ``least`` ULP at every point."""
        return all(o.ulp < self.least for o in self.outcomes)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *_table(self)])

    __repr__ = __str__

    def _headline(self) -> str:
        """The line above the table."""
        plural = "s" * (self.points != 1)
        head = f"{self.kernel}: {self.points} point{plural} in float32 and float64"
        if self.clean:
            return f"{head}: every result is within {self.least:g} ULP"
        worst = max(self.outcomes, key=lambda o: o.ulp)
        headline = f"{head}; {worst.result} is {worst.float32:.6g}, "
        headline += f"in float64 {worst.float64:.6g}"
        if not self.suspects:
            headline += "\nno single operation is to blame: small errors add up"
        return headline

    def _repr_html_(self) -> str:
        if not self.suspects:
            return f"<p>{html.escape(self._headline())}</p>"
        rows = [_html_row([html.escape(c) for c in HEADS], "th")]
        for s in self.suspects:
            rows.append(_html_row([html.escape(c) for c in _cells(s)], "td"))
            line = html.escape(f"{_where(s)}, {_at(self, s)}")
            rows.append(f'<tr><td colspan="{len(HEADS)}"><code>{line}</code></td></tr>')
        return f"<p>{html.escape(self._headline())}</p><table>{''.join(rows)}</table>"


# --- finding --------------------------------------------------------------------------------------


@dataclass
class _Finding:
    """The operations of one line that go wrong in one way; ``suspect`` is the worst."""

    suspect: Suspect
    severity: float
    first: int
    nodes: set[int] = field(default_factory=set)
    shares: dict[int, float] = field(default_factory=dict)


_Key = tuple[Any, ...]


def audit(
    name: str,
    graph: Graph,
    results: Sequence[tuple[str, int]],
    points: Any,
    level: Level,
    least: float,
    progress: Asked = False,
) -> Audit:
    """The audit of a graph at points (B, n) of float32; results are nodes with their names.

    Of the points no more than their number and slices of them are asked for.
    """
    clean, roots = simplify(graph, [i for _, i in results], level)
    names = [label for label, _ in results]
    worst: list[Outcome] = []
    findings: dict[_Key, _Finding] = {}
    step = max(1, VALUES_AT_A_TIME // max(1, len(clean)))
    with reporting(progress, "points", len(points)) as report:
        for start in range(0, len(points), step):
            chunk = points[start : start + step]
            comparison = compare(clean, roots, chunk)
            outcome = comparison.outcome
            broken = ~np.isfinite(chunk).all(axis=1)
            outcome[:, broken] = 0.0  # what is given broken may come out so
            worst = _worse(worst, _outcomes(names, comparison, outcome, start))
            for key, finding in _findings(comparison, outcome, chunk, start, least):
                _merge(findings, key, finding)
            report(start + len(chunk))
    ranked = sorted(findings.values(), key=lambda f: (-f.severity, f.first))
    suspects = tuple(_named(f, names) for f in ranked)
    return Audit(name, len(points), tuple(clean.names), least, tuple(worst), suspects)


def labels(inputs: Sequence[str], name: str, ids: Sequence[int], result: Result) -> list[str]:
    """A name for each number of one array of results."""
    if name == "grad":
        return [f"d/d{inputs[k]}" for k in range(len(ids))]
    if isinstance(result, Sparse):
        rows = np.repeat(range(result.shape[0]), np.diff(result.indptr))
        return [f"{name}[{r}, {c}]" for r, c in zip(rows, result.indices, strict=True)]
    if isinstance(result, Array):
        return [f"{name}[{', '.join(map(str, at))}]" for at in np.ndindex(result.shape)]
    return [name] if len(ids) == 1 else [f"{name}[{k}]" for k in range(len(ids))]


def _outcomes(
    labels: Sequence[str], comparison: Comparison, outcome: Any, start: int
) -> list[Outcome]:
    """The point of the largest error of each result."""
    at = np.argmax(outcome, axis=1)
    return [
        Outcome(
            label,
            float(outcome[k, b]),
            start + int(b),
            float(comparison.single[row, b]),
            float(comparison.double[row, b]),
        )
        for k, (label, row, b) in enumerate(zip(labels, comparison.roots, at, strict=True))
    ]


def _worse(old: list[Outcome], new: list[Outcome]) -> list[Outcome]:
    return [max(pair, key=lambda o: o.ulp) for pair in zip(old, new, strict=True)] if old else new


def _findings(
    comparison: Comparison, outcome: Any, points: Any, start: int, least: float
) -> Iterator[tuple[_Key, _Finding]]:
    """The suspects that explain errors of at least ``least`` ULP in the results."""
    bad = np.flatnonzero((outcome >= least).any(axis=0))
    if not bad.size:
        return
    wrong = kinds(comparison, least / 4)[:, bad]
    entering = incoming(comparison)
    for key, rows in _lines(comparison, wrong).items():
        for row in rows[:MOST_OPERATIONS_TRIED]:
            columns = bad[wrong[row] == key[0]]
            order = np.argsort(-_total(outcome[:, columns]), kind="stable")[:MOST_OPERATIONS_TRIED]
            finding = _explained(comparison, outcome, row, columns[order], least)
            if finding is not None:
                shares, severity, b = finding
                suspect = _suspect(comparison, KINDS[key[0]], row, b, entering, points, start)
                i = comparison.order[row]
                yield (
                    key,
                    _Finding(suspect, severity, i, {comparison.order[r] for r in rows}, shares),
                )


def _lines(comparison: Comparison, wrong: Any) -> dict[_Key, list[int]]:
    """The rows in which something goes wrong by kind, operation and line, worst first."""
    groups: dict[_Key, list[int]] = {}
    for row in np.flatnonzero((wrong >= 0).any(axis=1)):
        i = comparison.order[row]
        for kind in np.unique(wrong[row][wrong[row] >= 0]):
            key = int(kind), comparison.graph.nodes[i][0].name, _place(comparison.graph, i) or i
            groups.setdefault(key, []).append(int(row))
    for rows in groups.values():
        rows.sort(key=lambda r: (-_finite_max(comparison.error[r]), r))
    return groups


def _finite_max(error: Any) -> float:
    return float(np.max(np.minimum(error, EVERYTHING)))


def _total(outcome: Any) -> Any:
    """How wrong the results are at each point, all taken together."""
    return np.sum(np.minimum(outcome, 1e30), axis=0)


def _explained(
    comparison: Comparison, outcome: Any, row: int, columns: Any, least: float
) -> tuple[dict[int, float], float, int] | None:
    """The shares of the results' errors that are due to one row, how much that is, and where."""
    actual = outcome[:, columns]
    caused = effect(comparison, row, columns)
    with np.errstate(all="ignore"):
        share = np.where(caused >= actual, 1.0, caused / actual)
    share = np.where((actual >= least) & (share >= LEAST_SHARE), share, 0.0)
    if not share.any():
        return None
    severity = np.max(np.where(share > 0.0, np.minimum(actual, 1e30) * share, 0.0), axis=0)
    most = share.max(axis=1)
    shares = {int(r): float(most[r]) for r in np.flatnonzero(most)}
    return shares, float(severity.max()), int(columns[np.argmax(severity)])


def _suspect(
    comparison: Comparison, kind: str, row: int, b: int, entering: Any, points: Any, start: int
) -> Suspect:
    """The suspect of this kind at a node and point."""
    i = comparison.order[row]
    return Suspect(
        kind,
        summary(Expr(comparison.graph, i), 40),
        _place(comparison.graph, i),
        start + b,
        tuple(float(v) for v in points[b]),
        float(comparison.single[row, b]),
        float(comparison.double[row, b]),
        float(entering[row, b]),
        float(comparison.error[row, b]),
        {},
        0,
    )


def _place(graph: Graph, i: int) -> Place | None:
    """The line of a node, or, for a sum of derivatives, of the nearest node that has one."""
    queue = [i]
    for j in queue:
        place = graph.place_of(j)
        if place is not None:
            return place
        queue.extend(a for a in dict.fromkeys(graph.args(j)) if a not in queue)
    return None


def _merge(findings: dict[_Key, _Finding], key: _Key, new: _Finding) -> None:
    """Join a finding with others of its line and kind."""
    old = findings.setdefault(key, new)
    old.nodes |= new.nodes
    for r, share in new.shares.items():
        old.shares[r] = max(share, old.shares.get(r, 0.0))
    if new.severity > old.severity:
        old.suspect, old.severity = new.suspect, new.severity
    old.first = min(old.first, new.first)


def _named(finding: _Finding, labels: Sequence[str]) -> Suspect:
    """The suspect with the names of the results that it explains."""
    shares = {labels[r]: s for r, s in sorted(finding.shares.items())}
    state = {**vars(finding.suspect), "results": shares, "count": len(finding.nodes)}
    return Suspect(**state)


# --- printing -------------------------------------------------------------------------------------

HEADS: Final = ("kind", "operation", "float32", "float64", "ULP in", "ULP out", "explains")


def _cells(s: Suspect) -> list[str]:
    """The cells of a suspect's row."""
    operation = s.operation + (f" (and {s.count - 1} more)" if s.count > 1 else "")
    leaving = "" if s.in_float64_too else _shown_ulp(s.ulp)
    return [
        s.kind,
        operation,
        f"{s.float32:.6g}",
        f"{s.float64:.6g}",
        _shown_ulp(s.ulp_in),
        leaving,
        _explains(s.results),
    ]


def _shown_ulp(ulp: float) -> str:
    return "all" if ulp >= EVERYTHING / 2 else f"{ulp:.1f}" if ulp < 100 else f"{ulp:.0f}"


def _explains(results: dict[str, float]) -> str:
    """Results with their shares, those that share one together: "loss, d/dx0 100%"."""
    texts = {name: f"{share:.0%}" for name, share in results.items()}
    parts: list[str] = []
    for percent in dict.fromkeys(texts.values()):
        names = [name for name, text in texts.items() if text == percent]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts.append(f"{', '.join(names[:3])}{more} {percent}")
    return "; ".join(parts[:3])


def _where(s: Suspect) -> str:
    """The user's line; a file without a name, as of a notebook's cell, is left out."""
    if s.place is None:
        return "made by no line of yours"
    name = os.path.basename(s.place.file)
    line = f"line {s.place.line}" if name.startswith("<") else f"{name}:{s.place.line}"
    return f'{line}: "{s.place.text}"' if s.place.text else line


def _at(audit: Audit, s: Suspect) -> str:
    """The point, as far as it fits."""
    numbers = [f"{name} = {v:.7g}" for name, v in zip(audit.inputs, s.x, strict=True)]
    return f"at {', '.join(numbers[:4])}{', ...' if len(numbers) > 4 else ''}"


def _table(audit: Audit) -> list[str]:
    """The lines of the table of suspects."""
    if not audit.suspects:
        return []
    rows = [list(HEADS), *[_cells(s) for s in audit.suspects]]
    widths = [max(len(row[k]) for row in rows) for k in range(len(HEADS))]
    lines = [_aligned(row, widths) for row in rows]
    for k, s in enumerate(audit.suspects):
        lines.insert(2 + 2 * k, f"    {_where(s)}, {_at(audit, s)}")
    return lines


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """Texts to the left, numbers to the right."""
    cells = [
        cell.rjust(width) if 2 <= k < len(HEADS) - 1 else cell.ljust(width)
        for k, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _html_row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


@dataclass(frozen=True)
class Expressions:
    """Groups of nodes: for each of a kernel's results those of its numbers."""

    graph: Graph
    groups: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> list[int]:
        """The nodes of all groups."""
        return [i for ids in self.groups for i in ids]

    def in_groups(self) -> tuple[tuple[Expr, ...], ...]:
        """The expressions themselves."""
        return tuple(tuple(Expr(self.graph, i) for i in ids) for ids in self.groups)

    def without_code(self) -> Expressions:
        """These without what only differentiation needs, such as a user's own functions."""
        clean, roots = simplify(self.graph, self.nodes, level=False)
        ends = iter(roots)
        return Expressions(clean, tuple(tuple(next(ends) for _ in ids) for ids in self.groups))

    def audit(
        self,
        name: str,
        labels: Sequence[str],
        points: Any,
        level: Level,
        least: float,
        progress: Asked = False,
    ) -> Audit:
        """The audit at points (B, n) of float32, as a kernel simplified to this level runs them."""
        require_straight(self.graph, self.nodes, f"the audit of {name}")
        named = list(zip(labels, self.nodes, strict=True))
        return audit(name, self.graph, named, points, level, least, progress)
