"""Long calls say how far they have got: rarely enough, to the end, and as they are told to stop."""

from __future__ import annotations

import io
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import Any

import numpy as np
import pytest
from catalog import rosenbrock
from paces import pace

import symgrad as sg
from symgrad.kernel.host.watch import stage
from symgrad.report import progress
from symgrad.report.progress import (
    PlainMeter,
    Progress,
    Reporter,
    RichMeter,
    open_meter,
    reporting,
    staged,
)

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]
STARTS = np.random.default_rng(3).normal(size=(5, 3))
ROWS = np.random.default_rng(4).normal(size=(40, 2))
X = np.linspace(0.0, 2.0, 30)


class Time:
    """A clock that goes when it is told to."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def at_once() -> Iterator[None]:
    """Reports begin at once, and all are told."""
    with pace():
        yield


def line(p: Any, r: Any) -> Any:
    return p[0] + p[1] * r[0] - r[1]


def decay(x: Any, a: Any, b: Any) -> Any:
    return a * np.exp(-b * x)


def kernel_of_rows() -> Any:
    return sg.fused_least_squares(2, line, row=2, device="cpu")


def point_kernel() -> Any:
    return sg.fused_forward_backward(3, rosenbrock, device="cpu")


Call = Callable[[Any], Any]

MINIMISING: dict[str, tuple[str, Call]] = {
    "minimize_from": ("steps", lambda p: sg.minimize_from(
        rosenbrock, 3, STARTS, sg.LBFGS(), 40, device="cpu", progress=p)),
    "blind": ("steps", lambda p: sg.minimize_from(
        rosenbrock, 3, STARTS, sg.Adam(0.01), 40, device="cpu", progress=p)),
    "kernel.minimize": ("steps", lambda p: point_kernel().minimize(
        STARTS, sg.LBFGS(), 40, progress=p)),
    "over data": ("steps", lambda p: kernel_of_rows().minimize(
        STARTS[:, :2], sg.Adam(0.01), 40, rows=ROWS, progress=p)),
    "fit_many": ("steps", lambda p: sg.fit_many(
        decay, X, decay(X[None], 2.0, STARTS[:, :1]), [1.0, 0.5], device="cpu", progress=p)),
    "minimize": ("evaluations", lambda p: sg.minimize(rosenbrock, STARTS[0], progress=p)),
    "Nelder and Mead's": ("evaluations", lambda p: sg.minimize(
        rosenbrock, STARTS[0], method="Nelder-Mead", progress=p)),
    "sparse fit": ("steps", lambda p: kernel_of_rows().fit([5.0, 5.0], ROWS, progress=p)),
}  # fmt: skip

OTHERS: dict[str, tuple[str, Call]] = {
    "curve_fit": ("evaluations", lambda p: sg.curve_fit(
        decay, X, decay(X, 2.0, 0.3) + 0.1 * np.sin(9.0 * X), progress=p)[0]),
    "streamed": ("rows", lambda p: kernel_of_rows().run(
        [1.0, 2.0], iter([ROWS, ROWS]), progress=p)[1]),
    "table": ("rows", lambda p: kernel_of_rows().run([1.0, 2.0], ROWS, progress=p)[1]),
    "audit": ("points", lambda p: point_kernel().audit(STARTS, progress=p).outcomes),
    "check": ("points", lambda p: sg.check(point_kernel(), STARTS, progress=p).worst.relative),
}  # fmt: skip

CALLS = MINIMISING | OTHERS


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", CALLS)
def test_calls_report_and_give_what_they_always_do(name: str) -> None:
    what, call = CALLS[name]
    told: list[Progress] = []
    found, plain = call(told.append), call(False)
    assert told and {p.what for p in told} == {what}
    done = [p.done for p in told]
    assert done == sorted(done) and done[0] > 0
    assert all(p.total is None or p.done <= p.total for p in told)
    seconds = [p.seconds for p in told]
    assert seconds == sorted(seconds)
    same = (found, plain) if name in OTHERS else (found.x, plain.x)
    np.testing.assert_equal(*same)


@pytest.mark.parametrize("name", CALLS)
def test_short_calls_say_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Progress] = []
    with pace(silent=60.0):
        CALLS[name][1](told.append)
        CALLS[name][1](True)
    shown = capsys.readouterr()
    assert not told and not shown.out and not shown.err


def stop(_: Progress) -> None:
    raise StopIteration


def interrupt(_: Progress) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", MINIMISING)
def test_stop_iteration_ends_minimisations_with_what_there_is(name: str) -> None:
    found = MINIMISING[name][1](stop)
    assert np.any(np.asarray(found.status) == 99)
    assert not np.any(np.asarray(found.success)[np.asarray(found.status) == 99])
    assert np.isfinite(found.x).all() and np.isfinite(found.get("fun", found.get("cost"))).all()


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("asked", [{"progress": stop}, {"callback": stop, "history": 8}], ids=list)
@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton(), sg.Adam(0.01)], ids=repr)
def test_losses_of_a_run_that_was_ended_are_those_of_its_ends(
    method: Any, asked: Any, device: Any
) -> None:
    found = sg.minimize_from(rosenbrock, 3, STARTS, method, 900, device=device, **asked)
    ended = found.status == 99
    assert ended.any()
    want = point_kernel().run(found.x)[0]
    np.testing.assert_allclose(found.fun[ended], want[ended], rtol=1e-4)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["streamed", "table", "audit", "check"])
def test_stop_iteration_goes_through_what_has_no_result_so_far(name: str) -> None:
    with pytest.raises(StopIteration):
        OTHERS[name][1](stop)


@pytest.mark.usefixtures("at_once")
def test_a_curve_fit_that_was_ended_names_the_best() -> None:
    with pytest.raises(sg.FitError, match=r"ended by progress= after 1 evaluations.*\[1.0, 1.0\]"):
        OTHERS["curve_fit"][1](stop)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", CALLS)
def test_interrupts_go_through(name: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        CALLS[name][1](interrupt)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("device", DEVICES)
def test_the_best_so_far_is_the_lowest_loss(device: Any) -> None:
    told: list[Progress] = []
    found = sg.minimize_from(
        rosenbrock, 3, STARTS, sg.LBFGS(), 60, device=device, progress=told.append
    )
    best = [p.best for p in told]
    assert best == sorted(best, key=lambda b: -float("inf" if b is None else b))
    assert best[-1] == found.fun.min()


NUMBERS = itertools.count(2)


def scaled(v: Any, *row: Any) -> Any:
    """A loss, or a residual, that is another whenever it is traced: nothing of it is known."""
    return next(NUMBERS) * v[0] * v[1]


VERBS: dict[str, Call] = {
    "fused_forward": lambda p: sg.fused_forward(3, scaled, device="cpu", progress=p),
    "fused_forward_backward": lambda p: sg.fused_forward_backward(
        3, scaled, device="cpu", progress=p),
    "fused_jacobian": lambda p: sg.fused_jacobian(
        3, lambda v: [scaled(v)], device="cpu", progress=p),
    "fused_least_squares": lambda p: sg.fused_least_squares(
        2, scaled, row=2, device="cpu", progress=p),
    "fused_hessian": lambda p: sg.fused_hessian(3, scaled, device="cpu", progress=p),
    "fused_hvp": lambda p: sg.fused_hvp(3, scaled, device="cpu", progress=p),
    "value_and_grad": lambda p: sg.value_and_grad(
        scaled, device="cpu", progress=p)(STARTS[0]),
}  # fmt: skip


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", VERBS)
def test_making_a_kernel_tells_its_stages(name: str) -> None:
    told: list[Progress] = []
    VERBS[name](told.append)
    stages = [p.stage for p in told]
    assert stages.index("trace") < stages.index("simplify") and stages[-1] == ""
    assert {(p.done, p.total) for p in told[:-2]} == {(0, 1)} and told[-1].done == 1


@pytest.mark.usefixtures("at_once")
def test_the_first_run_of_a_kernel_tells_that_it_is_compiled() -> None:
    kernel, told = sg.fused_forward(3, scaled, device="cpu"), list[Progress]()
    found = kernel.run(STARTS, progress=told.append)
    assert {"emit", "compile"} <= {p.stage for p in told} and told[-1].done == 1
    np.testing.assert_array_equal(found, kernel.run(STARTS))
    out = np.empty(len(STARTS), "float32")
    assert kernel.run(STARTS, out=out, progress=told.append) is out


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", VERBS)
def test_making_a_kernel_is_ended_by_what_a_report_raises(name: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        VERBS[name](interrupt)


def test_nobody_hears_of_stages_any_more_when_a_call_has_ended(at_once: None) -> None:
    told: list[Progress] = []
    with pytest.raises(KeyboardInterrupt):
        VERBS["fused_forward"](interrupt)
    with staged(told.append, "kernels"), stage("compile"), staged(told.append, "runs"):
        pass
    count = len(told)
    with stage("compile"):
        assert [p.what for p in told[:1]] == ["kernels"] and len(told) == count


def test_reports_are_rare() -> None:
    clock = Time()
    told: list[Progress] = []

    def costly(now: Progress) -> None:
        told.append(now)
        clock.now += 0.001 if len(told) < 10 else 0.1

    report = Reporter(costly, "steps", 1000, clock.perf_counter)
    for k in range(1000):
        clock.now += 0.01
        report(k + 1, lambda: 2.5)
    report.finish()
    seconds = [p.seconds for p in told[:-1]]
    assert seconds[0] >= 1.0
    assert np.diff(seconds).min() >= 0.1
    assert np.diff(seconds[9:]).min() >= 2.0, "a report that takes long comes more seldom"
    assert told[-1].done == 1000 and told[-1].left == 0.0 and told[-1].best == 2.5
    half = next(p for p in told if p.done >= 500)
    assert half.left == pytest.approx(half.seconds * (1000 - half.done) / half.done)


def test_nothing_is_left_of_what_ended_early(at_once: None) -> None:
    told: list[Progress] = []
    with reporting(told.append, "steps", 100) as report:
        report(25)
    assert told[0].left is not None and told[0].left > 0.0
    assert told[-1].done == 25 and told[-1].left == 0.0


def test_progress_reads_well() -> None:
    assert str(Progress("rows", 7, None, 2.25)) == "7 rows, 2.2 s"
    told = Progress("steps", 1500, 6000, 65.0, 195.0, 0.125)
    assert str(told) == "1,500 of 6,000 steps, 1:05, about 3:15 left; best 0.125"
    assert "1:00:07" in str(Progress("steps", 1, None, 3607.0))


@pytest.mark.parametrize("wrong", ["yes", 2, None])
def test_what_is_no_progress_is_refused(wrong: Any) -> None:
    with pytest.raises(sg.InputTypeError, match="progress="), reporting(wrong, "steps"):
        pass


def test_the_screen_shows_that_time_goes_by() -> None:
    shown, waiting = io.StringIO(), threading.Event()

    def twice(line: str) -> bool:
        return any(shown.getvalue().count(line) > 1 or waiting.wait(0.01) for _ in range(2_000))

    with redirect_stderr(shown), pace(0.001, 0.001, 0.001), reporting(True, "steps", 10):
        assert twice("\r0 of 10 steps")
        with stage("compile"):
            assert twice("\rcompile: 0 of 10 steps")
    assert shown.getvalue().endswith("\n")


def test_short_calls_share_a_thread_that_ends_when_there_are_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("LEAST_SECONDS_APART", 0.001), ("MOST_IDLE_LOOKS", 20)):
        monkeypatch.setattr(progress, name, value)
    ticker, calls = progress.Ticker(), [set[Any](), set[Any](), set[Any](), set[Any]()]

    def note(k: int) -> None:
        calls[k].add(threading.current_thread())

    waiting = threading.Event()
    with ticker.calling(lambda: note(0)), ticker.calling(lambda: note(1)):
        waiting.wait(0.1)
    with ticker.calling(lambda: note(2)):
        waiting.wait(0.1)
    (thread,) = calls[0]
    assert calls[0] == calls[1] == calls[2]
    thread.join(10.0)
    assert not thread.is_alive()
    with ticker.calling(lambda: note(3)):
        waiting.wait(0.1)
    assert calls[3] and thread not in calls[3]


def test_a_plain_line_covers_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    meter = PlainMeter()
    meter.show("100 rows", 100, None)
    meter.show("7 rows", 7, None)
    meter.close()
    assert capsys.readouterr().err == "\r100 rows\r7 rows  \n"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    output = io.StringIO()
    with redirect_stderr(output):
        assert isinstance(open_meter(), PlainMeter)
        monkeypatch.setenv("FORCE_COLOR", "1")
        meter = open_meter()
        assert isinstance(meter, RichMeter)
        meter.show("3 of 6 steps", 3, 6)
        meter.close()
    assert "3 of 6 steps" in output.getvalue()
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert isinstance(open_meter(), PlainMeter)
