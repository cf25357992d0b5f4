"""Launches: several programs over arrays, the same on every back end."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from iterations import countdown, fit
from matrices import Waves

import symgrad as sg
from symgrad import targets
from symgrad.backend import Backend, backend_of
from symgrad.cache import Once
from symgrad.errors import DeviceError
from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.launch import Array, Dispatch, Launch, Part
from symgrad.kernel.shapes import NO_DATA, Computation
from symgrad.kernel.skeletons.map import map_program
from symgrad.pipeline import Options

DEVICES = ["cpu", "gpu"]
OPTIONS = Options("total")


@dataclass(frozen=True)
class PartialSums:
    """Each group adds up its share of ``stride`` numbers apart, and of a factor's."""

    factor: float = 1.0

    def __call__(self, target: Target) -> KernelIR:
        k = KernelIR(target, "partial_sums")
        x, sums = k.buffer("x", "read"), k.buffer("sums", "write")
        stride = k.argument("stride")
        end = k.add(ops.word_add, k.count, k.add(ops.word_sub, stride, k.word(1)))
        iterations = k.add(ops.word_div, k.add(ops.word_sub, end, k.cell), stride)

        def add(t: int, carries: list[int]) -> list[int]:
            at = k.add(ops.word_add, k.cell, k.add(ops.word_mul, t, stride))
            return [k.add(ops.add, carries[0], k.load(x, at))]

        (total,), _ = k.loop(k.word(0), iterations, [k.constant(0.0)], add)
        (found,) = target.sum_group(k, [k.add(ops.mul, total, k.constant(self.factor))])
        first = k.add(ops.word_lt, k.local, k.word(1))
        k.when(first, lambda: k.store(sums, k.group, found))
        return k


def spread(target: Target) -> KernelIR:
    """Of each number the share that it is of the sum of some others, by an array of its own."""
    k = KernelIR(target, "spread")
    x, sums, out = k.buffer("x", "read"), k.buffer("sums", "read"), k.buffer("out", "write")
    own = k.buffer("kept", "own", size=100)
    many = k.argument("many")
    value = k.load(x, target.point(k))

    def keep(j: int, _: list[int]) -> list[int]:
        k.store(own, j, k.load(sums, j))
        return []

    def add(j: int, carries: list[int]) -> list[int]:
        return [k.add(ops.add, carries[0], k.load(own, j))]

    k.loop(k.word(0), many, [], keep)
    (total,), _ = k.loop(k.word(0), many, [k.constant(0.0)], add)
    inside = k.add(ops.word_lt, k.cell, k.count)
    k.when(inside, lambda: k.store(out, k.cell, k.add(ops.div, value, total)))
    return k


def shares(target: Target, n: int, groups: int = 3, factor: float = 1.0) -> Launch:
    """The share of each of n numbers in their sum."""
    stride = groups * target.width
    sums = Dispatch(PartialSums(factor), target, (("x", "x"), ("sums", "partial")), n, groups,
                    (("stride", stride),))  # fmt: skip
    arrays = ("x", "x"), ("sums", "partial"), ("out", "shares")
    whole = Dispatch(spread, target, arrays, n, arguments=(("many", groups),))
    kept = (Array("partial", (groups,)),)
    return Launch("shares", (Array("x", (n,)),), (Array("shares", (n,)),), kept, (sums, whole))


def backend(name: str) -> Backend:
    return backend_of(targets.choose(name))  # pyright: ignore[reportArgumentType]


def numbers(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.5, 2.0, n).astype(np.float32)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("n", [1, 7, 64, 1001])
def test_dispatches_run_one_after_the_other(name: str, n: int) -> None:
    device, x = backend(name), numbers(n)
    launch = shares(device.device_target("float32"), n)
    (found,) = device.launch(launch, OPTIONS).run(x)
    (expected,) = launch.execute([x])
    np.testing.assert_allclose(expected, x / x.sum(dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_cpu_computes_in_float64_too() -> None:
    device, x = backend("cpu"), numbers(100).astype(np.float64)
    launch = shares(device.device_target("float64"), 100)
    (found,) = device.launch(launch, replace(OPTIONS, dtype="float64")).run(x)
    np.testing.assert_allclose(found, x / x.sum(), rtol=1e-14)


def test_arrays_stay_on_the_device() -> None:
    device, x = backend("gpu"), numbers(300)
    launched = device.launch(shares(device.device_target("float32"), 300), OPTIONS)
    there = sg.device_array(x, device="gpu")
    (found,) = launched.run(there)
    assert isinstance(found, sg.DeviceArray)
    np.testing.assert_array_equal(found.numpy(), launched.run(x)[0])


@pytest.mark.parametrize("name", DEVICES)
def test_other_shapes_compile_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = backend(name)
    target = device.device_target("float32")
    device.launch(shares(target, 50, factor=2.0), OPTIONS)
    room = "llvm" if name == "cpu" else "wgsl"
    monkeypatch.setattr(f"symgrad.{room}.dispatch.compiled.print_kernel", None)
    (found,) = device.launch(shares(target, 80, factor=2.0), OPTIONS).run(numbers(80))
    np.testing.assert_allclose(found.sum(), 0.5, rtol=1e-6)


@pytest.mark.parametrize("name", DEVICES)
def test_launches_pickle(name: str) -> None:
    device = backend(name)
    launch = shares(device.device_target("float32"), 9)
    launch.verify()
    again = pickle.loads(pickle.dumps(launch))
    assert again == launch and hash(again) == hash(launch)
    assert device.launch(again, OPTIONS) is device.launch(launch, OPTIONS)
    assert len(pickle.dumps(launch)) < 2_000, "kernels do not go along"


@pytest.mark.parametrize("name", DEVICES)
def test_there_may_be_nothing_to_do(name: str) -> None:
    device = backend(name)
    target = device.device_target("float32")
    launch = Launch("nothing", (Array("x", (0,)),), (Array("y", (0,)),), (), (
        Dispatch(doubled, target, (("x", "x"), ("y", "y")), 0),))  # fmt: skip
    (found,) = device.launch(launch, OPTIONS).run(np.empty(0, np.float32))
    assert found.shape == (0,)


def doubled(target: Target) -> KernelIR:
    """Twice each number, by a table of the kernel's own."""
    k = KernelIR(target, "doubled")
    x, y = k.buffer("x", "read"), k.buffer("y", "write")
    two = k.buffer("two", "read", size=2, data=(2.0, 0.0))
    at = target.point(k)
    value = k.add(ops.mul, k.load(two, k.word(0)), k.load(x, at))
    inside = k.add(ops.word_lt, k.cell, k.count)
    k.when(inside, lambda: k.store(y, k.cell, value))
    return k


@pytest.mark.parametrize("name", DEVICES)
def test_kernels_bring_tables_of_their_own(name: str) -> None:
    device, x = backend(name), numbers(21)
    steps = tuple(
        Dispatch(doubled, device.device_target("float32"), (("x", a), ("y", b)), 21)
        for a, b in (("x", "between"), ("between", "y"))
    )
    between = (Array("between", (21,)),)
    launch = Launch("four times", (Array("x", (21,)),), (Array("y", (21,)),), between, steps)
    np.testing.assert_array_equal(device.launch(launch, OPTIONS).run(x)[0], 4 * x)
    np.testing.assert_array_equal(launch.execute([x], np.float32)[0], 4 * x)


HALF = 128
"""Numbers of a part, which begins where a GPU may bind it."""


def halves(target: Target) -> Launch:
    """Twice the last half of an array, in the first half of another, and four times the first."""
    kept = Part("kept", 0, HALF), Part("kept", HALF, HALF)
    bound = (
        (Part("x", HALF, HALF), kept[0]),
        (Part("x", 0, HALF), "between"),
        ("between", kept[1]),
        ("kept", "y"),
    )
    counts = HALF, HALF, HALF, 2 * HALF
    steps = tuple(
        Dispatch(doubled, target, (("x", a), ("y", b)), n)
        for (a, b), n in zip(bound, counts, strict=True)
    )
    scratch = Array("kept", (2, HALF)), Array("between", (HALF,))
    return Launch("halves", (Array("x", (2 * HALF,)),), (Array("y", (2 * HALF,)),), scratch, steps)


@pytest.mark.parametrize("name", DEVICES)
def test_parts_of_arrays_are_bound(name: str) -> None:
    device, x = backend(name), numbers(2 * HALF)
    launch = halves(device.device_target("float32"))
    (found,) = device.launch(launch, OPTIONS).run(x)
    np.testing.assert_array_equal(found, np.append(4 * x[HALF:], 8 * x[:HALF]))
    np.testing.assert_array_equal(launch.execute([x], np.float32)[0], found)


@pytest.mark.parametrize("part", [Part("x", 1, 9), Part("x", -1, 3), Part("x", 3, -1)])
def test_parts_beyond_an_array_are_faults(part: Part) -> None:
    launch = shares(backend("cpu").device_target("float32"), 9)
    first = replace(launch.dispatches[0], arrays=(("x", part), ("sums", "partial")))
    with pytest.raises(AssertionError, match=r"x of partial_sums is Part.*, and x has 9 numbers"):
        replace(launch, dispatches=(first, launch.dispatches[1])).verify()


def test_some_inputs_stay_on_the_device() -> None:
    """And what a call gives may be made of outputs, and of what is between them."""
    device, gpu = backend("gpu"), backend("gpu").owner
    assert gpu
    n, target = 100, device.device_target("float32")
    inputs = Array("index", (n,), "u"), Array("table", (5,)), Array("scale", (4,))
    bound = ("index", "index"), ("table", "table"), ("scale", "scale"), ("y", "between")
    steps = (
        Dispatch(gathered, target, bound, n),
        Dispatch(doubled, target, (("x", "between"), ("y", "y")), n),
    )
    arrays = inputs, (Array("y", (n,)),), (Array("between", (n,)),)
    launch = Launch("gathered", *arrays, steps, total=with_array("between"))
    index = np.random.default_rng(0).integers(0, 5, n).astype(np.uint32)
    held = device.launch(launch, OPTIONS).hold({"index": index})
    for factor in (1.0, 2.0, 3.0):
        table, scale = factor + numbers(5), np.full(4, factor, np.float32)
        found, between = held.begin(table, scale)()
        np.testing.assert_array_equal(found, 2 * factor * table[index])
        np.testing.assert_array_equal(between, factor * table[index])
        wanted = launch.execute([index, table, scale], np.float32)
        np.testing.assert_array_equal([found, between], wanted)
    apart = device.launch(replace(launch, total=None), OPTIONS).hold({"index": index})
    (found,) = apart.run(table, scale)
    np.testing.assert_array_equal(found, wanted[0])
    with pytest.raises(AssertionError, match="scale has 16 bytes, and not 20"):
        held.run(numbers(5), numbers(5))


def test_some_inputs_stay_where_they_are_on_the_cpu() -> None:
    """Few numbers and many, by several threads; of others that come in their place as well."""
    device = backend("cpu")
    for n in (16, 100_000):
        inputs = Array("x", (n,)), Array("factor", (n,))
        step = Dispatch(scaled, device.device_target("float32"), BOUND_TO_SCALED, n)
        held = device.launch(Launch("scaled", inputs, (Array("y", (n,)),), (), (step,)), OPTIONS)
        x, factors = numbers(n), [numbers(n) + k for k in range(20)]
        bound = held.hold({"x": x})
        with ThreadPoolExecutor(4) as pool:
            results = [*pool.map(bound.run, factors)]
        for factor, (found,) in zip(factors, results, strict=True):
            np.testing.assert_array_equal(found, x * factor)
        bound.replace({"x": 2 * x})
        for _ in range(2):
            np.testing.assert_array_equal(bound.begin(factors[0])()[0], 2 * x * factors[0])


BOUND_TO_SCALED = ("x", "x"), ("factor", "factor"), ("y", "y")


def scaled(target: Target) -> KernelIR:
    """Numbers times others."""
    k = KernelIR(target, "scaled")
    x, factor, y = k.buffer("x", "read"), k.buffer("factor", "read"), k.buffer("y", "write")
    point = target.point(k)
    value = k.add(ops.mul, k.load(x, point), k.load(factor, point))
    k.when(k.add(ops.word_lt, k.cell, k.count), lambda: k.store(y, k.cell, value))
    return k


def with_array(name: str) -> Any:
    """From the only output of a call, and what reads arrays: the output, and another array."""
    return lambda outputs, read: (outputs[0], read(name))


def gathered(target: Target) -> KernelIR:
    """The entries of a table that words name, times a factor."""
    k = KernelIR(target, "gathered")
    index, table = k.buffer("index", "read", "u"), k.buffer("table", "read")
    scale, y = k.buffer("scale", "read"), k.buffer("y", "write")
    entry = k.load(table, k.load(index, target.point(k)))
    value = k.add(ops.mul, entry, k.load(scale, k.word(0)))
    k.when(k.add(ops.word_lt, k.cell, k.count), lambda: k.store(y, k.cell, value))
    return k


def test_many_groups_stand_in_a_grid() -> None:
    device, n = backend("gpu"), 65_535 * 64 + 3
    target = replace(device.device_target("float32"), grid=True)  # pyright: ignore[reportArgumentType]
    step = Dispatch(doubled, target, (("x", "x"), ("y", "y")), n)
    launch = Launch("doubled", (Array("x", (n,)),), (Array("y", (n,)),), (), (step,))
    x = np.arange(n, dtype=np.float32) % 1000
    np.testing.assert_array_equal(device.launch(launch, OPTIONS).run(x)[0], 2 * x)


def test_loops_that_the_device_would_end_are_refused() -> None:
    device = backend("gpu")
    if device.owner is None or device.owner.info.iterations is None:
        pytest.skip("this GPU ends no loops")
    launch = shares(device.device_target("float32"), 70_000 * 64, groups=1)
    with pytest.raises(DeviceError, match="iterations"):
        device.launch(launch, OPTIONS)


Change = Callable[[Launch], Launch]


def _with(changed: Callable[[Dispatch], Dispatch]) -> Change:
    return lambda launch: replace(
        launch, dispatches=(changed(launch.dispatches[0]), *launch.dispatches[1:])
    )


FAULTS: dict[str, Change] = {
    "two arrays have one name": lambda launch: replace(launch, scratch=(Array("x", (3,)),)),
    "spread reads partial, which nobody": lambda launch: replace(
        launch, dispatches=launch.dispatches[::-1]
    ),
    "nothing writes shares": lambda launch: replace(launch, dispatches=launch.dispatches[:1]),
    "partial_sums writes x, an input": _with(
        lambda d: replace(d, arrays=(("x", "x"), ("sums", "x")))
    ),
    "writes partial, which it has as another": _with(
        lambda d: replace(d, arrays=(("x", "partial"), ("sums", "partial")))
    ),
    "is given no sums": _with(lambda d: replace(d, arrays=(("x", "x"),))),
    "has no buffer z": _with(lambda d: replace(d, arrays=(*d.arrays, ("z", "x")))),
    "given w, an array that is not there": _with(
        lambda d: replace(d, arrays=(("x", "w"), ("sums", "partial")))
    ),
    "takes the arguments": _with(lambda d: replace(d, arguments=())),
    "which is no word": _with(lambda d: replace(d, count=2**32)),
    "numbers of kind f, partial of u": lambda launch: replace(
        launch, scratch=(Array("partial", (3,), "u"),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_told(fault: str) -> None:
    launch = FAULTS[fault](shares(backend("cpu").device_target("float32"), 9))
    assert any(fault in found for found in launch.faults()), list(launch.faults())
    with pytest.raises(AssertionError, match="shares: "):
        launch.verify()


@pytest.mark.parametrize("name", DEVICES)
def test_turns_and_costs_are_those_of_the_sizes(name: str) -> None:
    target = backend(name).device_target("float32")
    few, many = (shares(target, n).dispatches[0] for n in (64 * 3, 64 * 3 * 100))
    assert (
        few.iterations < 20
        and 100 * 64 // target.width <= many.iterations < 150 * 64 // target.width
    )
    assert many.operations > 5 * few.operations


@pytest.mark.parametrize("name", DEVICES)
def test_what_is_compiled_outlasts_what_was_written(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is written again has other buffers, of the same names."""
    device = backend(name)
    target = device.device_target("float32")
    device.launch(shares(target, 50, factor=4.0), OPTIONS)
    monkeypatch.setattr("symgrad.kernel.launch._kernels", Once(1))
    (found,) = device.launch(shares(target, 70, factor=4.0), OPTIONS).run(numbers(70))
    np.testing.assert_allclose(found.sum(), 0.25, rtol=1e-6)


FORMS = [("cpu", False), ("gpu", False), ("gpu", True)]


def repeated(launch: Launch, inputs: list[np.ndarray], steps: int, dtype: Any) -> np.ndarray:
    """The states after these steps by the interpreter, a point after the other."""
    ordered = [
        np.moveaxis(x, 0, -1) if a.by_columns else x
        for a, x in zip(launch.inputs, inputs, strict=True)
    ]
    (states,) = launch.execute(ordered, dtype, steps)
    return np.moveaxis(states, -1, 0) if launch.outputs[0].by_columns else states


@pytest.mark.parametrize(("name", "together"), FORMS)
def test_a_launch_is_repeated_until_no_point_goes_on(name: str, together: bool) -> None:
    left = np.random.default_rng(0).integers(0, 12, 37)
    start = np.stack([np.zeros(37), left], axis=1)
    launched = backend(name).iteration(countdown(), OPTIONS, together)
    inputs = [start, *NO_DATA.arrays(37)]
    for steps in (0, 5, 100):
        done = np.minimum(left, steps)
        want = np.stack([done, left - done], axis=1)
        np.testing.assert_array_equal(launched.run(*inputs, steps=steps)[0], want)
        np.testing.assert_array_equal(repeated(launched.launch, inputs, steps, np.float32), want)


@pytest.mark.parametrize(("name", "together"), FORMS)
@pytest.mark.parametrize("data", ["shared", "own", "both"])
def test_steps_over_rows_are_those_of_the_interpreter(name: str, together: bool, data: str) -> None:
    made = fit(35, 100, data)
    launched = backend(name).iteration(made.iteration, OPTIONS, together)
    inputs = [made.state, *made.data.arrays(35)]
    (states,) = launched.run(*inputs, steps=3)
    want = repeated(launched.launch, inputs, 3, np.float64)
    np.testing.assert_allclose(want, made.expected(3), rtol=0, atol=1e-12)
    np.testing.assert_allclose(states, want, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", DEVICES)
def test_steps_with_a_matrix_are_those_of_the_interpreter(name: str) -> None:
    case = Waves(3, 5, 70, (0.3, 0.8))
    launched = backend(name).iteration(case.made(), OPTIONS, together=True)
    inputs = [case.states(), *case.data.arrays(5)]
    want = repeated(launched.launch, inputs, 1, np.float64)
    np.testing.assert_allclose(want, case.expected(1), rtol=0, atol=1e-9)
    np.testing.assert_allclose(launched.run(*inputs, steps=1)[0], want, rtol=1e-4, atol=1e-4)


@dataclass(frozen=True)
class Points:
    """What a traced function is at each point: the program of all maps."""

    computation: Computation

    def __call__(self, target: Target) -> KernelIR:
        return map_program(self.computation, target)


@pytest.mark.parametrize(("name", "n"), [("cpu", 64), ("gpu", 1), ("gpu", 100)])
def test_a_map_is_a_launch(name: Any, n: int) -> None:
    device = backend(name)
    target: Any = device.device_target("float32")
    if name == "cpu":  # where whole vectors read the rows of their points at once
        target = replace(target, whole=True)
    kernel = sg.fused_forward_backward(2, lambda v: sg.sin(v[0]) * v[1], device=name)
    bound = ("x", "points"), ("loss", "losses"), ("grad", "slopes")
    step = Dispatch(Points(kernel._computation), target, bound, n)
    results = Array("losses", (n, 1)), Array("slopes", (n, 2))
    launch = Launch("map", (Array("points", (n, 2)),), results, (), (step,))
    points = numbers(2 * n).reshape(n, 2)
    losses, slopes = device.launch(launch, OPTIONS).run(points)
    want, gradient = kernel.run(points)
    np.testing.assert_array_equal(losses[:, 0], want)
    np.testing.assert_array_equal(slopes, gradient)


def polynomials(target: Target) -> KernelIR:
    """Of each number x, and of half of it, 1 + x + x², by a routine with memory of its own."""
    k = KernelIR(target, "polynomials")
    x, out = k.buffer("x", "read"), k.buffer("out", "write")
    sums, scaled = k.buffer("sums", "own", size=2), k.load(x, k.word(0))
    k.names[scaled] = "first"

    def add(value: int, power: int) -> None:
        """Add x^power to one of the sums, and the first number's share of nothing to the other."""

        def times(_: int, carries: list[int]) -> list[int]:
            return [k.add(ops.mul, carries[0], value)]

        (found,), _ = k.loop(k.word(0), power, [k.constant(1.0)], times, most=2)
        k.store(sums, k.word(0), found, add=True)
        k.store(sums, k.word(1), k.add(ops.mul, scaled, found), add=True)

    add_power = k.routine("add_power", "fu", add)
    k.fill(sums)
    value = k.load(x, target.point(k))
    for power in range(3):
        add_power(value, k.word(power))
    half = k.add(ops.mul, value, k.constant(0.5))
    large = k.add(ops.lt, k.constant(1.0), value)
    k.when(large, lambda: add_power(half, k.word(2)))
    total = k.add(ops.add, k.load(sums, k.word(0)), k.load(sums, k.word(1)))
    k.when(k.add(ops.word_lt, k.cell, k.count), lambda: k.store(out, k.cell, total))
    return k


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("n", [1, 77])
def test_routines_do_the_same_wherever_they_are_called(name: str, n: int) -> None:
    device, x = backend(name), numbers(n)
    arrays = ("x", "x"), ("out", "y")
    dispatch = Dispatch(polynomials, device.device_target("float32"), arrays, n)
    launch = Launch("polynomials", (Array("x", (n,)),), (Array("y", (n,)),), (), (dispatch,))
    launched = device.launch(launch, OPTIONS)
    (found,), (expected,) = launched.run(x), launch.execute([x])
    wide = x.astype(np.float64)
    sums = 1 + wide + wide**2 + np.where(wide > 1, wide**2 / 4, 0)
    np.testing.assert_allclose(expected, (1 + wide[0]) * sums, rtol=1e-14)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert name == "cpu" or launched.sources[0].count("add_power(") == 5
