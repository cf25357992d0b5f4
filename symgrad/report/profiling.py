"""`profile`: where the time of a call goes, beside what its device can do at most."""

from __future__ import annotations

import contextlib
import contextvars
import html
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from symgrad.backend import backend_of
from symgrad.errors import InputError, InputTypeError
from symgrad.kernel.host.watch import Watch, current, watching
from symgrad.pipeline import DTypeName
from symgrad.report.device import WARM_UP_SECONDS, Limits, limits_of
from symgrad.targets import Device, Devices
from symgrad.wgsl.device.gpus import Gpu, opened_gpus
from symgrad.wgsl.device.timing import GpuWatch

REPEAT_SECONDS: Final = 0.1
"""Seconds for which calls are repeated to find the quickest, watched and not."""

MOST_CALLS: Final = 20
"""Calls that are made for that, at most."""

LEAST_FRACTION_OF_LIMIT: Final = 0.1
"""The fraction of a limit of the device below which it does not bound a kernel."""

MEANING: Final = {
    "host": "Python, and arrays that are converted",
    "trace": "calls of your function, and of the step of a method",
    "roll": "loops that the function has written out",
    "differentiate": "derivatives as expressions",
    "simplify": "laws, and functions as operations",
    "schedule": "the order of operations",
    "emit": "the source",
    "compile": "by the driver, or LLVM",
    "upload": "to the device",
    "queue": "encoding, submitting, and waiting beyond the kernel",
    "kernel": "computing",
    "download": "to the host",
}
"""The stages, in the order in which they are shown."""


class Size(Protocol):
    """The size of a kernel, as far as a profile asks for it."""

    @property
    def seconds(self) -> dict[str, float]:
        """How long each stage of making it took."""
        ...

    @property
    def bytes_per_point(self) -> int:
        """The bytes that come and go for a point."""
        ...

    @property
    def flops(self) -> int:
        """The operations for a point, in additions."""
        ...


class Profiled(Protocol):
    """A kernel, as far as a profile asks it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def stats(self) -> Size:
        """Its size."""
        ...

    @property
    def precision(self) -> DTypeName:
        """The name of the dtype that it computes in."""
        ...

    @property
    def device(self) -> Device:
        """Where it runs."""
        ...


@dataclass(frozen=True)
class Profile:
    """Where the time of a call went, in seconds.

    ``seconds`` has the stages of a call that was watched, the quickest of a few, whose sum is its
    ``total``: "host" is Python and the conversion of arrays, "upload" and "download" are the ways
    to the device and back, "queue" is encoding, submitting and waiting, and "kernel" what the
    device, or compiled code on the CPU, computed. While it is watched a call does one thing after
    the other, and waits for the device; ``usual`` is the quickest of a few that were not watched,
    where transfers and kernels may overlap, and ``first`` that of the first one, which may have had
    to compile. Before all but the first a GPU is kept busy, for idle ones have slow clocks.
    ``made`` has the seconds of each stage that making the kernel took, its ``preparation``.

    ``points`` is the size of the batch, or the number of rows; ``bytes`` and ``operations`` are
    those of the kernel's ``stats`` for all of them; None for a call that is no kernel's. ``limits``
    are those of the device, measured once in a process. ``by_timestamps`` says whether kernels were
    timed by the device's clock; else it is by how much longer one waits for them than for nothing.
    ``result`` is what the call returned.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: v[0]**2 + v[1]**2, device="cpu")
        >>> profile = kernel.profile([[1.0, 2.0], [3.0, 4.0]])
        >>> list(profile.seconds), profile.total > 0
        (['host', 'kernel'], True)
    """

    name: str
    device: str
    seconds: dict[str, float]
    usual: float
    first: float
    preparation: dict[str, float] = field(default_factory=dict)
    points: int | None = None
    bytes: int | None = None
    operations: int | None = None
    limits: Limits | None = None
    by_timestamps: bool = False
    result: Any = field(default=None, repr=False, compare=False)

    @property
    def made(self) -> dict[str, float]:
        """The seconds of each stage that making the kernel took."""
        return self.preparation

    @property
    def total(self) -> float:
        """The seconds of the call that was watched."""
        return sum(self.seconds.values())

    @property
    def bandwidth_fraction(self) -> float | None:
        """How much of the device's bandwidth the kernel used, counting what it has to move.

        It may be above 1 where numbers stay in a cache. None where it is not known.
        """
        return self._fraction(self.bytes, self.limits and self.limits.bandwidth)

    @property
    def rate_fraction(self) -> float | None:
        """How many of the operations that the device can do the kernel did; None if not known."""
        return self._fraction(self.operations, self.limits and self.limits.rate)

    def _fraction(self, amount: int | None, limit: float | None) -> float | None:
        seconds = self.seconds.get("kernel", 0.0)
        return amount / seconds / limit if amount is not None and limit and seconds else None

    @property
    def bound(self) -> str:
        """The bottleneck of the call: a stage, or the limit that its kernel is near.

        "bandwidth" or "rate" for a kernel that uses a tenth or more of it; else "kernel".
        """
        longest = max(self.seconds, key=self.seconds.__getitem__)
        fractions = {"bandwidth": self.bandwidth_fraction or 0.0, "rate": self.rate_fraction or 0.0}
        nearest = max(fractions, key=fractions.__getitem__)
        return (
            nearest
            if longest == "kernel" and fractions[nearest] >= LEAST_FRACTION_OF_LIMIT
            else longest
        )

    def __str__(self) -> str:
        widths = [max(len(row[k]) for row in self._rows()) for k in range(3)]
        lines = [
            f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}  {d}".rstrip()
            for a, b, c, d in self._rows()
        ]
        return "\n".join([self._headline(), *lines, *self._notes()])

    def _repr_html_(self) -> str:
        head, *rows = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for row, tag in zip(self._rows(), ["th"] + ["td"] * len(self._rows()), strict=False)
        ]
        table = "".join(f"<tr>{row}</tr>" for row in (head, *rows))
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return f"<p>{html.escape(self._headline())}</p><table>{table}</table>{notes}"

    def _headline(self) -> str:
        size = "" if self.points is None else f", {self.points:,} point{'s' * (self.points != 1)}"
        return f"{self.name} on {self.device}{size}: bound by {self.bound}"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        """The lines of the table, under their heads."""
        total = self.total
        rows = [("stage", "ms", "share", "")]
        for name in (n for n in MEANING if n in self.seconds):
            spent = self.seconds[name]
            rows.append((name, _ms(spent), f"{spent / total:.0%}", MEANING[name]))
        rows.append(("total", _ms(total), "", "of the call that was watched"))
        rows.append(("usual", _ms(self.usual), "", "the quickest that was not"))
        rows.append(("first", _ms(self.first), "", "the first one"))
        return rows

    def _notes(self) -> Iterator[str]:
        """The lines below the table."""
        for amount, unit, limit, fraction in (
            (self.bytes, "bytes", self.limits and self.limits.bandwidth, self.bandwidth_fraction),
            (self.operations, "operations", self.limits and self.limits.rate, self.rate_fraction),
        ):
            if amount is not None and limit and fraction is not None:
                yield f"{amount:,} {unit}: {fraction:.1%} of the device's {limit:.3g} a second"
        if self.preparation:
            stages = ", ".join(f"{k} {_ms(v)} ms" for k, v in self.preparation.items())
            yield f"made once: {stages}"
        if "queue" in self.seconds:
            yield "kernels timed by " + (
                "the device's clock" if self.by_timestamps else "the difference of waits"
            )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


# making one ---------------------------------------------------------------------------------------


def profile(call: Callable[..., Any], *arguments: Any, **options: Any) -> Profile:
    """Where the time of ``call(*arguments, **options)`` goes, whatever it is: see `Profile`.

    It is for fits and minimisations, which are no kernels; kernels have a method ``profile``, which
    also knows how much they compute. The call is made several times: the first time as it is, once
    watched, and a few times more.

    Raises:
        InputTypeError: if call is not a function. InputError: within a call that is profiled.

    Example:
        >>> import symgrad as sg
        >>> bowl = lambda v: (v[0] - 1)**2 + v[1]**2
        >>> profile = sg.profile(sg.minimize_from, bowl, 2, [3.0, 1.0], sg.LBFGS(), device="cpu")
        >>> list(profile.seconds), profile.result.success
        (['host', 'trace', 'kernel'], True)
    """
    if not callable(call):
        raise InputTypeError(f"profile takes a function and its arguments, not {call!r}")
    name = getattr(call, "__name__", repr(call))
    return _profiled(lambda: call(*arguments, **options), name, None)


def profile_kernel(call: Callable[[], Any], kernel: Profiled, points: int) -> Profile:
    """The profile of a call of a kernel for ``count`` points, or rows."""
    if isinstance(kernel.device, Devices):
        raise InputError(f"{kernel.name} runs on {kernel.device}: profile it on one of them")
    return _profiled(call, kernel.name, (kernel, points))


def _profiled(call: Callable[[], Any], name: str, of: tuple[Profiled, int] | None) -> Profile:
    """The profile of a call, after one that warms everything up."""
    if current() is not None:
        raise InputError("a profiled call cannot call sg.profile itself: profile one of the two")
    start = time.perf_counter()
    call()
    gpus = _gpus(of and of[0].device)
    _wait(gpus)
    first = time.perf_counter() - start
    _warm(call, gpus)
    result, seconds, used = _in_thread(lambda: _watched(call, gpus))
    usual = min(first, _quickest(call, gpus))
    exact = bool(used) and all(one.by_timestamps for one in used)
    names = [of[0].device.name] if of else [one.name for one in used] or ["the CPU"]
    device, sizes = ", ".join(names), {} if of is None else _size(*of)
    return Profile(name, device, seconds, usual, first, by_timestamps=exact, result=result, **sizes)


def _size(kernel: Profiled, points: int) -> dict[str, Any]:
    """The facts of a call of a kernel."""
    stats = kernel.stats
    return {
        "preparation": stats.seconds,
        "points": points,
        "bytes": stats.bytes_per_point * points,
        "operations": stats.flops * points,
        "limits": limits_of(kernel.device, kernel.precision),
    }


def _gpus(device: Device | None) -> Sequence[Gpu]:
    """The GPUs that a call may use: its device, or all that are open."""
    if device is None:
        return opened_gpus()
    owner = backend_of(device).owner
    return [] if owner is None else [owner]


def _warm(call: Callable[[], Any], gpus: Sequence[Gpu]) -> None:
    """Repeat a call until the clocks of real GPUs are those of devices that are busy."""
    end = time.perf_counter() + WARM_UP_SECONDS * any(gpu.info.kind != "software" for gpu in gpus)
    while time.perf_counter() < end:
        call()
        _wait(gpus)


def _wait(gpus: Sequence[Gpu]) -> None:
    for gpu in gpus:
        gpu.wait()


def _watched(
    call: Callable[[], Any], gpus: Sequence[Gpu]
) -> tuple[Any, dict[str, float], list[GpuWatch]]:
    """The result of a call, the seconds of its stages, and the GPUs that it used.

    The seconds are those of the quickest of a few calls, the result is the last one's.
    """
    with watching() as watch:
        call()  # this thread makes what it keeps, of code that notes when it runs
        watched = [GpuWatch(gpu, watch) for gpu in gpus]
        result, quickest = None, dict[str, float]()
        for _ in _while_short():
            del result  # whose memory the next call uses again, as calls in a loop do
            result, seconds = _stages(call, gpus, watched, watch)
            quickest = min(quickest or seconds, seconds, key=lambda one: sum(one.values()))
        return result, quickest, [one for one in watched if one.used]


def _stages(
    call: Callable[[], Any], gpus: Sequence[Gpu], watched: Sequence[GpuWatch], watch: Watch
) -> tuple[Any, dict[str, float]]:
    """The result of a call, and the seconds of its stages."""
    _wait(gpus)
    watch.restart()
    with contextlib.ExitStack() as stack:
        for one in watched:
            stack.enter_context(one.on())
        start = time.perf_counter()
        result = call()
        total = time.perf_counter() - start
    watch.add("kernel", watch.running())
    watch.add("host", max(0.0, total - sum(watch.seconds.values())))
    return result, {name: watch.seconds[name] for name in MEANING if name in watch.seconds}


def _while_short() -> Iterator[None]:
    """Iterations of a loop, a few or as many as take long enough."""
    begun = time.perf_counter()
    for _ in range(MOST_CALLS):
        yield
        if time.perf_counter() - begun > REPEAT_SECONDS:
            return


def _in_thread(run: Callable[[], Any]) -> Any:
    """The result of a function in a thread of its own, which has kept nothing of other calls."""
    outcomes: list[Any] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcomes.append((context.run(run), None))
        except BaseException as error:
            outcomes.append((None, error))

    thread = threading.Thread(target=work, name="profile", daemon=True)
    thread.start()
    thread.join()
    result, error = outcomes[0]
    if error is not None:
        raise error
    return result


def _quickest(call: Callable[[], Any], gpus: Sequence[Gpu]) -> float:
    """The seconds of the quickest of some calls."""
    quickest = float("inf")
    for _ in _while_short():
        start = time.perf_counter()
        call()
        _wait(gpus)
        quickest = min(quickest, time.perf_counter() - start)
    return quickest
