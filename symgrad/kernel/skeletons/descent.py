"""A descent of least squares: what a fit does between two evaluations of its model, as a program.

Levenberg and Marquardt's method with Nielsen's damping, then Gauss-Newton steps while they shrink
the relative offset, as the loss itself has too few digits left. Sizes are words at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.index import Index, Number, Numbers, Truth, loop, where
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.skeletons.solve import constants, dot, each, largest, sizes, total

FIRST, DESCENDING, POLISHING = 0.0, 1.0, 2.0
"""Phases: nothing is known yet; the loss falls; the offset does."""

PHASE, DAMPING, GROWTH, PROMISED, LEFT, COUNT, SINCE = range(7)
"""Places in ``state``.

``LEFT`` is how many evaluations the phase may still take, ``COUNT`` how many there were, and
``SINCE`` how many since the last pause.
"""

START: Final = (FIRST, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0)
"""The state before the first point, which is no evaluation of the descent's."""

AGAIN, DONE, GOING = 0.0, 1.0, 2.0

CONVERGED_PART: Final = 1e-7
"""The part of the residuals' length that a step could still remove, at a minimum."""

LEAST_RELATIVE_STEP: Final = 1e-15
"""A change of parameters, relative to them, that is none."""

LEAST_SINGULAR_VALUE: Final = 1e-14
"""Singular values below this part of the largest are rounding errors."""

CLEAR: Final = 1e6
"""The condition up to which a bound on it, which is at most n times too large, is enough."""

PAUSE: Final = 64
"""Evaluations after which there is a pause, in which a fit can be interrupted."""

MOST_POLISHING: Final = 30

MOST_SWEEPS: Final = 40


def descent_program(target: Target) -> KernelIR:
    """Take what is known at a trial, and say where to evaluate the model next, if anywhere.

    ``sizes`` is (n, m, width); ``trial`` is what `triangle_program` writes, at n parameters ``p``.
    ``best`` (n (n + 3) + 3) has the same of the best point so far, its parameters, and its relative
    offset: the length of the residuals' part that the free parameters span, relative to them (Bates
    and Watts, 1981, "A relative offset orthogonality convergence criterion for nonlinear least
    squares"). ``state`` is `START` at first; ``scales`` (n,) go with the damping. ``rule`` is the
    damping at first, 1 where scales are those of the present point alone, and the most evaluations.
    Parameters stay from ``low`` to ``high``.

    If it is to go on, ``going`` is 1, or 2 for a pause, and the next parameters are in ``p`` and in
    the first n of each line of ``points`` (m, width). ``rotated`` (n + 2, n + 1), ``turned``
    (n, n), ``held`` and ``edge`` (n,) are memory to work in.
    """
    k = KernelIR(target, "descent")
    descent = _Descent(k)
    going = descent.next_parameters(*descent.judged()).equals(GOING)
    k.when(going.id, descent.spread)
    word = k.add(ops.word_where, descent.counted().id, k.word(2), k.word(1))
    k.store(descent.going, k.word(0), k.add(ops.word_where, going.id, word, k.word(0)))
    return k


class _Descent:
    """The arrays of a descent, and what is done with them."""

    def __init__(self, k: KernelIR) -> None:
        def numbers(*names: str) -> list[Numbers]:
            return [Numbers.of(k, name, "write") for name in names]

        self.k = k
        self.zero, self.one = constants(k)
        self.n, self.m, self.width = sizes(k, 3)
        self.trial, self.rule, self.low, self.high = (
            Numbers.of(k, name, "read") for name in ("trial", "rule", "low", "high")
        )
        self.p, self.points, self.best, self.state = numbers("p", "points", "best", "state")
        self.scales, self.rotated, self.turned = numbers("scales", "rotated", "turned")
        self.held, self.edge = numbers("held", "edge")
        self.going = k.buffer("going", "write", "u")
        self.z, self.lengths = self.n * self.n, self.n * (self.n + 1)
        self.cost = self.n * (self.n + 2)
        self.inverse, self.parameters = self.cost + 1, self.cost + 2
        self.offset = self.parameters + self.n
        self.h = (self.n + 1) * (self.n + 1)

    def _constant(self, x: float) -> Number:
        return Number(self.k, self.k.constant(x))

    def _chosen(self, condition: Truth, value: Callable[[], Number], other: float) -> Number:
        """A number that takes a branch where the condition holds, or a constant."""
        sides = (lambda: [value().id]), (lambda: [self.k.constant(other)])
        return Number(self.k, self.k.choose(condition.id, *sides)[0])

    # the trial -----------------------------------------------------------------------------------

    def judged(self) -> tuple[Number, Number, Number]:
        """Take the trial if it is better; the phase, its evaluations, and whether that is all."""
        state, best = self.state, self.best
        phase, promised = state[PHASE], state[PROMISED]
        first, polishing = phase.equals(FIRST), phase.equals(POLISHING)
        cost, old = self.trial[self.cost], best[self.cost]
        near = cost.within(old * (1.0 + 1e-9))
        candidate = (
            first & cost.is_finite() | polishing & near | ~(first | polishing) & old.above(cost)
        )
        after = self._chosen(candidate, self._relative_offset, float("inf"))
        taken = candidate & (~polishing | best[self.offset].above(after))
        change = old - cost
        gain, wave = change / old, where(promised.above(0.0), change / promised, -1.0)
        self.k.when(taken.id, partial(self._take, after, first))
        damping = self._damped(first, taken, wave.at_most(1.0) * 2.0 - self.one)
        left = where(first, self.rule[2], state[LEFT] - self.one)
        level = gain.within(1e-14) | gain.within(1e-8) & self._constant(CONVERGED_PART).above(after)
        worn = ~first & (taken & level | ~taken & damping.above(1e30))
        ends = ~polishing & (worn | left.within(0.0))
        over = ~taken & (first | polishing)
        phase = where(polishing | ends, self._constant(POLISHING), DESCENDING)
        left = where(ends, self._most_polishing(), left)
        return phase, left, where(over, self._constant(DONE), AGAIN)

    def _damped(self, first: Truth, taken: Truth, wave: Number) -> Number:
        """The damping by Nielsen's rule: less after a good step, more and more after bad ones."""
        state = self.state
        damping, growth = state[DAMPING], state[GROWTH]
        less = (damping * (self.one - wave * wave * wave).at_least(1 / 3)).at_least(1e-20)
        new = where(first, self.rule[0], where(taken, less, damping * growth))
        state.store(DAMPING, new)
        state.store(GROWTH, where(first | taken, self._constant(2.0), growth * 2.0))
        return new

    def _most_polishing(self) -> Number:
        return self.rule[2].at_most(float(MOST_POLISHING))

    def _take(self, offset: Number, first: Truth) -> None:
        """The trial becomes the best point."""
        best, trial = self.best, self.trial
        each(self.parameters, lambda i: best.store(i, trial[i]))
        best.store(self.offset, offset)
        anew = first | self.rule[1].equals(1.0)

        def put(j: Index) -> None:
            length = trial[self.lengths + j]
            best.store(self.parameters + j, self.p[j])
            self.scales.store(j, where(anew, length, length.at_least(self.scales[j])))

        each(self.n, put)

    # the offset ----------------------------------------------------------------------------------

    def _relative_offset(self) -> Number:
        """The offset at the trial, without singular values where they are not needed."""
        trial, n, cost = self.trial, self.n, self.trial[self.cost]

        def apart(j: Index) -> Number:
            inside = self.p[j].above(self.low[j]) & self.high[j].above(self.p[j])
            return where(inside, self.zero, 1.0)

        inverse = trial[self.inverse]
        squares = inverse * inverse * Number(self.k, self.k.add(ops.word_float, n.id))
        plain = self._constant(CLEAR * CLEAR).above(squares) & largest(0, n, apart).equals(0.0)
        spanned = self._chosen(plain, lambda: dot(0, n, trial, self.z, trial, self.z), -1.0)
        spanned = self._chosen(spanned.equals(-1.0), self._spanned, 0.0) + spanned.at_least(0.0)
        return where(cost.equals(0.0), self.zero, (spanned / cost).sqrt())

    def _spanned(self) -> Number:
        """The square of the part of z that the free columns of T span, by Jacobi's rotations.

        One-sided ones make the columns orthogonal (Hestenes, 1958, "Inversion of matrices by
        biorthogonalization"): their lengths are the singular values then.
        """
        turned, trial, n = self.turned, self.trial, self.n
        self._hold(trial, self.p, 0)

        def copy(j: Index) -> None:
            length, held = trial[self.lengths + j], self.held[j].equals(1.0)
            each(
                n,
                lambda i: turned.store(
                    j * n + i, where(held, self.zero, trial[i * n + j] / length)
                ),
            )

        def sweep(_: Index, __: Sequence[Number]) -> list[Number]:
            return [largest(0, n, lambda i: largest(i + 1, n, partial(self._turn, i)))]

        each(n, copy)
        loop(self.k, 0, MOST_SWEEPS, [1.0], sweep, test=lambda c: c[0].equals(1.0))
        squares = largest(0, n, lambda j: dot(0, n, turned, j * n, turned, j * n))
        least = squares * LEAST_SINGULAR_VALUE**2

        def part(j: Index) -> Number:
            square = dot(0, n, turned, j * n, turned, j * n)
            along = dot(0, n, turned, j * n, trial, self.z)
            known = square.above(least)
            return where(known, along * along / where(known, square, 1.0), 0.0)

        return total(0, n, part)

    def _turn(self, i: Index, j: Index) -> Number:
        """Make two columns orthogonal; 1 if they were not."""
        turned, n = self.turned, self.n
        a, b = i * n, j * n
        first, second = dot(0, n, turned, a, turned, a), dot(0, n, turned, b, turned, b)
        inner = dot(0, n, turned, a, turned, b)
        oblique = abs(inner).above((first * second).sqrt() * 1e-15)
        cotangent = (second - first) / where(oblique, inner * 2.0, 1.0)
        tangent = (self.one / (abs(cotangent) + (cotangent * cotangent + 1.0).sqrt())).with_sign(
            cotangent
        )
        cosine = self.one / (tangent * tangent + 1.0).sqrt()
        sine = cosine * tangent

        def turn(c: Index) -> None:
            x, y = turned[a + c], turned[b + c]
            turned.store(a + c, cosine * x - sine * y)
            turned.store(b + c, sine * x + cosine * y)

        self.k.when(oblique.id, lambda: each(n, turn))
        return where(oblique, self.one, 0.0)

    def _hold(self, point: Numbers, p: Numbers, first: Index | int) -> None:
        """Hold the parameters, which begin at an index of ``p``, whose bounds are active."""
        n = self.n

        def hold(j: Index) -> None:
            gradient = total(0, j + 1, lambda i: point[i * n + j] * point[self.z + i])
            at = p[j + first]
            down = at.within(self.low[j]) & gradient.above(0.0)
            up = self.high[j].within(at) & self.zero.above(gradient)
            self.held.store(j, where(down | up, self.one, 0.0))
            self.edge.store(j, 0.0)

        each(n, hold)

    # the step ------------------------------------------------------------------------------------

    def next_parameters(self, phase: Number, left: Number, going: Number) -> Number:
        """Whether there are parameters to go on with, which are in ``p``: `GOING` or `DONE`.

        Where a damped step is none, there are still those that polish.
        """
        best = self.best

        def attempt(_: Index, carries: Sequence[Number]) -> list[Number]:
            phase, left, _going = carries
            polishing = phase.equals(POLISHING)
            exact = best[self.offset].equals(0.0) | ~best[self.inverse].within(1e15)
            idle = polishing & (exact | left.within(0.0))
            size = self._chosen(~idle, partial(self._step, polishing), 0.0)
            small = size.within(LEAST_RELATIVE_STEP)
            end = where(polishing, self._constant(DONE), AGAIN)
            polishes = small & ~polishing
            return [
                where(polishes, self._constant(POLISHING), phase),
                where(polishes, self._most_polishing(), left),
                where(small, end, GOING),
            ]

        phase, left, going = loop(
            self.k, 0, 2, [phase, left, going], attempt, test=lambda c: c[2].equals(AGAIN)
        )
        self.state.store(PHASE, phase)
        self.state.store(LEFT, left)
        return going

    def _step(self, polishing: Truth) -> Number:
        """The step h for which |T h + z|² + damping |scales h|² is least; its size, relative to p.

        Parameters that it would take out of the box go to the bound, and the others are solved for
        again.
        """
        self._hold(self.best, self.best, self.parameters)
        root = where(polishing, self.zero, self.state[DAMPING]).sqrt()

        def scale(j: Index) -> Number:
            return where(polishing, self.best[self.lengths + j], self.scales[j])

        def again(_: Index, __: Sequence[Number]) -> list[Number]:
            self._solve(root, scale)
            return [largest(0, self.n, self._crosses)]

        loop(self.k, 0, self.n + 1, [1.0], again, test=lambda c: c[0].equals(1.0))
        return self._moved()

    def _solve(self, root: Number, scale: Callable[[Index], Number]) -> None:
        """The step by rotations; directions that neither T nor the damping knows are left alone."""
        best, rotated, n, held = self.best, self.rotated, self.n, self.held
        width, h = n + 1, self.h

        def copy(i: Index) -> None:
            def put(j: Index) -> None:
                free = held[j].equals(0.0)
                rotated.store(i * width + j, where(free, best[i * n + j] / scale(j), 0.0))

            each(n, put)
            known = total(i, n, lambda j: best[i * n + j] * self.edge[j])
            rotated.store(i * width + n, best[self.z + i] + known)

        def back(i: Index, _: Sequence[Number]) -> list[Number]:
            solved = total(i + 1, n, lambda j: rotated[i * width + j] * rotated[h + j])
            pivot = rotated[i * width + i]
            none = pivot.equals(0.0)
            quotient = (rotated[i * width + n] + solved) / where(none, self.one, pivot)
            rotated.store(h + i, where(none, self.zero, -quotient))
            return []

        each(n, copy)
        each(n, partial(self._rotate, root))
        loop(self.k, 0, n, [], back, down=True)
        each(n, lambda j: rotated.store(h + j, rotated[h + j] / scale(j)))

    def _rotate(self, root: Number, j: Index) -> None:
        """Rotate the damping of a variable into the triangle, or, if it is held, its line."""
        rotated, n, width = self.rotated, self.n, self.n + 1
        extra, own, held = width * n, j * width, self.held[j].equals(1.0)

        def begin(c: Index) -> None:
            value = rotated[own + c]
            rotated.store(extra + c, where(held, value, 0.0))
            rotated.store(own + c, where(held, self.zero, value))

        each(width, begin, j)
        rotated.store(extra + j, where(held, self.zero, root))

        def eliminate(i: Index) -> None:
            pivot, below = rotated[i * width + i], rotated[extra + i]
            length = (pivot * pivot + below * below).sqrt()
            none = below.equals(0.0)
            safe = where(none, self.one, length)
            cosine, sine = where(none, self.one, pivot / safe), where(none, self.zero, below / safe)

            def rotate(c: Index) -> None:
                a, b = rotated[i * width + c], rotated[extra + c]
                rotated.store(i * width + c, cosine * a + sine * b)
                rotated.store(extra + c, cosine * b - sine * a)

            each(width, rotate, i)

        each(n, eliminate, j)

    def _clipped(self, j: Index, x: Number) -> Number:
        return x.at_most(self.high[j]).at_least(self.low[j])

    def _crosses(self, j: Index) -> Number:
        """Hold a free parameter that the step takes across a bound: 1, or 0 if it does not."""
        old = self.best[self.parameters + j]
        new = (old + self.rotated[self.h + j]).opaque()
        inside = self._clipped(j, new)
        over = self.held[j].equals(0.0) & ~inside.equals(new)
        self.held.store(j, where(over, self.one, self.held[j]))
        self.edge.store(j, where(over, inside - old, self.edge[j]))
        return where(over, self.one, 0.0)

    def _moved(self) -> Number:
        """Put the next parameters into ``p``, and what they promise: how large the step is."""
        best, n, h = self.best, self.n, self.h

        def move(j: Index) -> Number:
            old, edge = best[self.parameters + j], self.edge[j]
            step = where(self.held[j].equals(1.0), edge, self.rotated[h + j])
            at_bound = where(edge.above(0.0), self.high[j], self.low[j])
            new = where(edge.equals(0.0), self._clipped(j, old + step), at_bound).opaque()
            moved = new - old
            self.p.store(j, new)
            self.rotated.store(h + j, moved)
            return where(moved.equals(0.0), self.zero, abs(moved) / abs(old))

        def decrease(i: Index) -> Number:
            change = total(i, n, lambda j: best[i * n + j] * self.rotated[h + j])
            was = best[self.z + i]
            left = was + change
            return was * was - left * left

        size = largest(0, n, move)
        self.state.store(PROMISED, total(0, n, decrease))
        return size

    def counted(self) -> Truth:
        """Count an evaluation; whether there is a pause after it."""
        state = self.state
        since = state[SINCE] + 1.0
        pause = ~self._constant(PAUSE).above(since)
        state.store(COUNT, state[COUNT] + 1.0)
        state.store(SINCE, where(pause, self.zero, since))
        return pause

    def spread(self) -> None:
        """Put the parameters into all points."""
        points, width = self.points, self.width
        each(self.m, lambda i: each(self.n, lambda j: points.store(i * width + j, self.p[j])))
