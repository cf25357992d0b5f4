"""Stages: arrays of drawn programs on both devices, beside the meaning of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from drawn_arrays import Drawn
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad import targets
from symgrad.arrays.interpret import interpret
from symgrad.arrays.program import ArrayProgram, Input, Tabulate
from symgrad.arrays.scalars import Array, Scalars, is_negative
from symgrad.arrays.tape import Tape
from symgrad.arrays.trace import gradients, program_of, variables
from symgrad.expr import ops
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.stages import sizes
from symgrad.kernel.stages.one_pass import PassProgram
from symgrad.kernel.stages.plan import Plan, Segment
from symgrad.kernel.stages.programs import StageProgram
from symgrad.pipeline import DTypeName, Options
from symgrad.tensor.stages import compile_arrays, planned
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

THRESHOLDS: dict[str, Any] = {
    "CHUNK_COST": 20.0, "FEW_ELEMENTS": 16, "SHARED_TERMS": 4, "SPLIT_TERMS": 8,
    "SCAN_LENGTH": 3, "MOST_PARTS": 5, "ACROSS_READS": 8, "WARP": 2, "BUSY_ELEMENTS": 64,
    "SHARED_COST": 2, "ROW_GROUPS": 2, "FOURS": 8, "LONG": 20, "PASS_ELEMENTS": 2,
}  # fmt: skip
TOLERANCES: dict[DTypeName, float] = {"float64": 1e-10, "float32": 1e-4}


@pytest.fixture
def small() -> Iterator[None]:
    """Small arrays are computed as large ones are: in parts, by groups, sums with their errors."""
    with mock.patch.multiple(sizes, **THRESHOLDS):
        yield


def programs(seeds: range) -> Iterator[tuple[Drawn, list[np.ndarray], list[np.ndarray]]]:
    """Drawn programs with inputs, and what they mean."""
    for seed in seeds:
        drawn = Drawn(seed)
        inputs = drawn.values()
        yield drawn, inputs, interpret(drawn.program, inputs)


def assert_means(results: list[np.ndarray], meant: list[np.ndarray], tolerance: float) -> None:
    largest = max(float(np.abs(m[np.isfinite(m)]).max(initial=1.0)) for m in meant)
    for result, m in zip(results, meant, strict=True):
        wanted = m if m.dtype.kind == "f" else m.astype(np.int32)
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=10 * tolerance, atol=tolerance * largest)


def run(device: str, seeds: range, dtype: DTypeName) -> None:
    where = targets.choose(device)  # pyright: ignore[reportArgumentType]
    for drawn, inputs, meant in programs(seeds):
        compiled = compile_arrays(drawn.program, Options("drawn", dtype=dtype), where)
        kinds = {"f": np.dtype(dtype), "i": np.dtype(np.int32)}
        arrays = [x.astype(kinds["f" if x.dtype.kind == "f" else "i"]) for x in inputs]
        assert_means(compiled.run(arrays), meant, TOLERANCES[dtype])


def test_programs_on_the_cpu() -> None:
    run("cpu", range(40), "float64")


def test_programs_on_the_cpu_as_if_they_were_large(small: None) -> None:
    run("cpu", range(40, 70), "float64")
    run("cpu", range(70, 80), "float32")


def test_programs_on_a_gpu(small: None) -> None:
    run("gpu", range(10), "float32")


def executed(plan: Plan, program: ArrayProgram, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program, of whose kernels the meaning is executed."""
    arrays = dict[Array, np.ndarray](zip(program.inputs, inputs, strict=True))
    for part in plan.parts:
        assert isinstance(part, Segment)
        part.launch.verify()
        results = part.launch.execute([arrays[a] for a in part.inputs])
        arrays |= zip(part.outputs, results, strict=True)
    return [arrays[a] for a in plan.program.outputs]


@pytest.mark.parametrize(
    "target", [WorkgroupTarget(), SimdTarget(4, whole=False)], ids=["groups", "lanes"]
)
def test_launches_mean_what_programs_mean(target: Target, small: None) -> None:
    compared = 0
    for drawn, inputs, meant in programs(range(100, 112)):
        plan = planned(drawn.program, target, Options("drawn", dtype="float64"))
        if all(isinstance(part, Segment) for part in plan.parts):
            assert_means(executed(plan, drawn.program, inputs), meant, 1e-10)
            compared += 1
    assert compared >= 6


def kernels_of(program: ArrayProgram, target: Target) -> list[object]:
    plan: Plan = planned(program, target, Options("sized", dtype="float64"))
    return [d.program for p in plan.parts if isinstance(p, Segment) for d in p.launch.dispatches]


def layer(m: int, n: int) -> ArrayProgram:
    """``tanh(A @ x)`` and the sums of A's columns."""
    s = Scalars()
    a, x = Input(shape=(m, n), number=0), Input(shape=(n,), number=1)
    i, j = s.counter(m), s.counter(n)
    element = s.read(a, [i, j])
    product = s.reduction("add", [j], s.graph.add(ops.mul, element, s.read(x, [j])))
    first = Tabulate(shape=(m,), counters=(i,), body=s.graph.add(ops.tanh, product))
    sums = Tabulate(shape=(n,), counters=(j,), body=s.reduction("add", [i], element))
    return ArrayProgram(s, (a, x), (first, sums))


@pytest.mark.parametrize(
    "target", [WorkgroupTarget(), SimdTarget(4, whole=False)], ids=["groups", "lanes"]
)
def test_sizes_are_no_part_of_kernels(target: Target) -> None:
    first, second = (kernels_of(layer(n, n + 1), target) for n in (5_000, 10_000))
    assert len(first) >= 2 and first == second


def gradients_of(f: Any, arrays: Sequence[np.ndarray]) -> tuple[ArrayProgram, Sequence[np.ndarray]]:
    """The program of the value of a function and its gradients, and its inputs."""
    tape = Tape()
    xs = variables(tape, arrays)
    value = f(*xs)
    return program_of(tape, [value, *gradients(value, xs)]), tape.arrays


ONE_PASS = {
    "a loss beside its gradient": lambda x, y: np.sum(np.tanh(x) ** 2) + np.sum(x),
    "an axis that is kept": lambda x, y: np.sum(np.mean(np.tanh(x) ** 2, keepdims=True)),
    "a mean of products": lambda x, y: np.mean(np.exp(x) * x),
    "forces between points": lambda x, y: np.sum(np.exp(-((x[:, None] - y[None]) ** 2).sum(-1))),
}


@pytest.mark.parametrize("target", [SimdTarget(4, whole=False), WorkgroupTarget()])
@pytest.mark.parametrize("case", ONE_PASS)
def test_what_shares_reads_is_computed_together(target: Target, case: str, small: None) -> None:
    x, y = np.linspace(-1.0, 1.0, 24).reshape(8, 3), np.linspace(0.0, 2.0, 21).reshape(7, 3)
    program, inputs = gradients_of(ONE_PASS[case], [x, y])
    plan = planned(program, target, Options("arrays", dtype="float64"))
    assert_means(executed(plan, program, inputs), interpret(program, inputs), 1e-12)
    steps = [s for p in plan.parts if isinstance(p, Segment) for s in p.steps]
    if case == "forces between points":
        forces = [s for s in steps if any(a.shape[-1:] == (3,) for a in s.outputs)]
        assert len(forces) == 2
        for step in forces:
            assert isinstance(step.program, StageProgram)
            # a group of an even number of points has pairs of these, and what the loss needs too
            assert step.program.widths in ((3,), (2, 6))
    else:
        assert any(isinstance(s.program, PassProgram) and len(s.writes) > 1 for s in steps)


SHARED = {  # and the kernels with several sums that read x
    "columns that are standardised": (
        lambda x, y: np.sum(((x - x.mean(0)) ** 2 / (x.var(0) + 1e-5)) ** 1.5),
        2,
    ),
    "sums of all, of rows, and of columns": (
        lambda x, y: (
            np.sum(x * x) * np.sum(np.sum(np.exp(x) * y[:20], 1) ** 3)
            + np.sum(np.sum(np.exp(x), 1) * np.max(x, 0, keepdims=True).sum())
        ),
        1,
    ),
}


@pytest.mark.parametrize("case", SHARED)
def test_sums_of_the_same_terms_are_one_kernel(case: str, small: None) -> None:
    f, kernels = SHARED[case]
    x, y = np.sin(np.arange(480.0)).reshape(24, 20), np.linspace(0.5, 2.0, 21)
    program, inputs = gradients_of(f, [x, y])
    plan = planned(program, WorkgroupTarget(), Options("arrays", dtype="float64"))
    meant = interpret(program, inputs)
    assert_means(executed(plan, program, inputs), meant, 1e-12)
    steps = [s for p in plan.parts if isinstance(p, Segment) for s in p.steps]
    several = [s for s in steps if any(len(r.parts) > 1 for r in bodies_of(s))]
    assert len(several) >= kernels
    compiled = compile_arrays(program, Options("arrays"), targets.choose("gpu"))
    assert_means(compiled.run([a.astype(np.float32) for a in inputs]), meant, 1e-5)


def test_forces_among_points_of_one_array_are_computed_beside_their_energy() -> None:
    """The sum reads an array twice, and so do the forces: both reads have to be the same."""
    x = np.random.default_rng(5).normal(size=(300, 3)).astype(np.float32)
    energy = sg.value_and_grad(
        lambda x: np.sum(np.exp(-np.sum((x[:, None] - x[None]) ** 2, -1))), device="gpu"
    )
    value, forces = energy(x)
    apart = x[:, None].astype(float) - x[None]
    terms = np.exp(-np.sum(apart**2, -1))
    np.testing.assert_allclose(value, terms.sum(), rtol=1e-5)
    np.testing.assert_allclose(forces, -4 * np.einsum("ij,ijk->ik", terms, apart), atol=1e-4)
    stages = sg.jit(energy, device="gpu")
    stages(x)
    assert str(stages.stages).splitlines()[0].startswith("s0[300], s1[300, 3] = ")


def bodies_of(step: Any) -> Sequence[Any]:
    """The reductions of the kernel of a step."""
    return step.program.body.reductions if isinstance(step.program, StageProgram) else ()


def test_a_group_has_some_columns_side_by_side() -> None:
    """A sum of columns that is not large is one kernel, as is what finishes it."""
    x = np.random.default_rng(0).normal(size=(3, 700, 45)).astype(np.float32)
    run = sg.jit(lambda x: (np.log(np.exp(x).sum(axis=1)), np.max(x, axis=1)), device="gpu")
    expected = np.log(np.exp(x.astype(float)).sum(axis=1)), x.max(axis=1)
    for result, meant in zip(run(x), expected, strict=True):
        np.testing.assert_allclose(result, meant, rtol=2e-6)
    lines = str(run.stages).splitlines()
    assert len(lines) == 1 and "18 groups" in lines[0]


def test_counters_that_stand_side_by_side_are_one(small: None) -> None:
    """Means over images, and their points; sums over points that are read one by one are not."""
    x = np.sin(np.arange(4 * 3 * 6 * 10.0)).reshape(4, 3, 6, 10)
    functions = {
        2: lambda x, y: np.sum((x - x.mean((0, 2, 3), keepdims=True)) ** 3, (0, 2, 3)),
        3: lambda x, y: np.sum(x * y[:6, None] * y[:10], (0, 2, 3)),
    }
    for most, f in functions.items():
        tape = Tape()
        xs = variables(tape, [x, np.linspace(0.5, 2.0, 21)])
        program = program_of(tape, [f(*xs)])
        plan = planned(program, WorkgroupTarget(), Options("arrays", dtype="float64"))
        assert_means(executed(plan, program, tape.arrays), interpret(program, tape.arrays), 1e-12)
        steps = [s for p in plan.parts if isinstance(p, Segment) for s in p.steps]
        assert max(len(r.counters) for s in steps for r in bodies_of(s)) == most


def sinkhorn(x: Any, y: Any) -> Any:
    f = -np.log(np.exp(x).sum(axis=1))
    g = -np.log(np.exp(x + f[:, None]).sum(axis=0))
    return np.sum(np.exp(x + f[:, None] + g) * x) + np.sum(y * y)


def scaled(x: Any, y: Any) -> Any:
    """Rows by their lengths, of which the reversed ones are used too: these finish no sum."""
    norms = np.sqrt((x * x).sum(axis=1))
    return np.sum(x / norms[:, None] * np.tanh(norms[::-1, None])) * np.sum(y)


@pytest.mark.parametrize("f", [sinkhorn, scaled])
def test_what_finishes_a_sum_is_computed_with_it(f: Any, small: None) -> None:
    x, y = np.linspace(-1.0, 1.0, 4800).reshape(80, 60), np.linspace(0.0, 2.0, 21)
    program, inputs = gradients_of(f, [x, y])
    plan = planned(program, WorkgroupTarget(), Options("arrays", dtype="float64"))
    assert_means(executed(plan, program, inputs), interpret(program, inputs), 1e-12)
    steps = [s for p in plan.parts if isinstance(p, Segment) for s in p.steps]
    assert any(isinstance(s.program, StageProgram) and len(s.writes) > 1 for s in steps)
    compiled = compile_arrays(program, Options("arrays"), targets.choose("gpu"))
    results = compiled.run([a.astype(np.float32) for a in inputs])
    assert_means(results, interpret(program, inputs), 1e-5)


@pytest.mark.parametrize("terms", [2, 3, 8, 9, 31, 100, 520])
def test_terms_that_are_read_together_are_those_that_there_are(terms: int) -> None:
    draw = np.random.default_rng(terms)
    x, w = (draw.normal(size=s).astype(np.float32) for s in ((terms, 40), terms))
    sums = lambda x, w: [w @ x, x.max(0), np.argmin(x, 0), (x * w[:, None]).sum(), x.T @ w]  # noqa: E731
    results = sg.jit(sums, device="gpu")(x, w)
    wanted = sums(x.astype(np.float64), w.astype(np.float64))
    for result, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-4)


def test_sums_of_many_numbers_lose_nothing() -> None:
    """A large number, many that it would swallow one by one, and its negative."""
    s, n = Scalars(), 3 * 10**5
    x, i = Input(shape=(n,), number=0), s.counter(n)
    total = s.reduction("add", [i], s.read(x, [i]))
    program = ArrayProgram(s, (x,), (Tabulate(shape=(), counters=(), body=total),))
    values = np.full(n, 0.5, np.float32)
    values[0] = 2.0**22
    for device in ("cpu", "gpu"):
        where = targets.choose(device)  # pyright: ignore[reportArgumentType]
        compiled = compile_arrays(program, Options("sum", dtype="float32"), where)
        first, second = (compiled.run([values])[0] for _ in range(2))
        assert first == second
        assert abs(float(first) - float(values.sum(dtype=np.float64))) <= 0.5


def test_long_columns_are_added_up_where_drivers_end_loops() -> None:
    """A software driver's kernels do 65,535 iterations at most, and these are known to be fewer."""
    draw = np.random.default_rng(0)
    x, a = draw.normal(size=5_000), draw.normal(size=(5_000, 64))
    found = sg.jit(lambda x, a: x @ a, device="gpu")(x, a)
    np.testing.assert_allclose(found, x @ a, atol=1e-4)


@pytest.mark.parametrize(
    ("device", "dtype", "name"), [("cpu", "float64", "product"), ("gpu", "float32", "matmul")]
)
def test_products_of_matrices_in_batches_and_transposed(
    device: str, dtype: DTypeName, name: str
) -> None:
    """``tanh(sum_k a[z, k, i] (b c)[z, j, k])``, in any order of axes."""
    s, (z, m, n, depth) = Scalars(), (5, 37, 40, 41)
    a, b = Input(shape=(z, depth, m), number=0), Input(shape=(z, n, depth), number=1)
    c = Input(shape=(depth,), number=2)
    where = targets.choose(device)  # pyright: ignore[reportArgumentType]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        counters = tuple(map(s.counter, (z, m, n)))
        batch, i, j = counters
        k = s.counter(depth)
        factors = s.read(a, [batch, k, i]), s.read(b, [batch, j, k]), s.read(c, [k])
        product = s.graph.add(ops.mul, s.graph.add(ops.mul, *factors[:2]), factors[2])
        total = s.reduction("add", [k], product)
        shape = tuple((z, m, n)[p] for p in order)
        moved = tuple(counters[p] for p in order)
        tanh = Tabulate(shape=shape, counters=moved, body=s.graph.add(ops.tanh, total))
        program = ArrayProgram(s, (a, b, c), (tanh,))
        rng = np.random.default_rng(3)
        arrays = [rng.normal(size=x.shape) for x in program.inputs]
        compiled = compile_arrays(program, Options("product", dtype=dtype), where)
        assert name in str(compiled.plan)
        wanted = np.tanh(np.einsum("zki,zjk,k->zij", *arrays)).transpose(order)
        results = compiled.run([x.astype(dtype) for x in arrays])
        assert_means(results, [wanted], TOLERANCES[dtype])


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1003, 64, 33), (1, 30, 5000, 41), (1, 2100, 90, 70), (1, 64, 9001, 130),
        (1, 260, 270, 280), (1, 5, 100, 9001), (3, 150, 70, 190), (40, 17, 90, 33), (2, 1, 3000, 1),
    ],
)  # fmt: skip
def test_products_are_done_in_pieces(shape: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(0)
    many, rows, depth, columns = shape
    a, b = rng.normal(size=(many, rows, depth)), rng.normal(size=(many, depth, columns))
    wanted, turned = a @ b, lambda x: x.swapaxes(1, 2)
    run = sg.jit(
        lambda x, y: (x @ y, (turned(y) @ turned(x))[:, 1:, 2:]), device="cpu", dtype="float64"
    )
    for x, y in ((a, b), (turned(turned(a).copy()), turned(turned(b).copy()))):
        whole, part = run(x, y)
        np.testing.assert_allclose(whole, wanted, rtol=0, atol=1e-11 * depth)
        np.testing.assert_allclose(part, turned(wanted)[:, 1:, 2:], rtol=0, atol=1e-11 * depth)


@pytest.mark.parametrize("many", [1, 3, 70])
def test_products_of_matrices_whose_batches_stand_apart(many: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, many, 33, 2, 17))
    run = sg.jit(lambda x, y: np.einsum("bthe,bshe->bhts", x, y), device="cpu", dtype="float64")
    np.testing.assert_allclose(run(x, y), np.einsum("bthe,bshe->bhts", x, y), atol=1e-12)


def heads(x: Any, w: Any) -> Any:
    """Attention without a softmax: queries, keys and values are thirds of one array."""
    whole = (x @ w).reshape(4, 24, 3, 2, 20)
    q, k, v = (whole[:, :, n].transpose(0, 2, 1, 3) for n in range(3))
    return np.sum((np.tanh(q @ np.swapaxes(k, 2, 3)) @ v) ** 2)


def test_products_that_are_parts_of_a_cotangent_stay_products() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 24, 30)), rng.normal(size=(30, 120)) * 0.1
    run = sg.jit(sg.value_and_grad(heads, (0, 1)), device="cpu", dtype="float64")
    value, slopes = run(x, w)
    np.testing.assert_allclose(value, heads(x, w), rtol=1e-12)
    dx, dw = 1e-6 * rng.normal(size=x.shape), 1e-6 * rng.normal(size=w.shape)
    change = (heads(x + dx, w + dw) - heads(x - dx, w - dw)) / 2
    np.testing.assert_allclose(np.sum(slopes[0] * dx) + np.sum(slopes[1] * dw), change, rtol=1e-6)
    assert str(run.stages).count("product") == 9  # three, and two for each


def test_kernels_that_read_more_arrays_than_a_gpu_binds() -> None:
    """Here 20 arrays of different lengths are joined."""
    s = Scalars()
    inputs = tuple(Input(shape=(3 + n,), number=n) for n in range(20))
    i = s.counter(sum(x.size for x in inputs))
    joined, first = s.graph.constant(0.0), s.extent(i)
    for x in reversed(inputs):
        inside = s.graph.add(is_negative, s.plus(i, offset=-first))
        first -= x.size
        joined = s.graph.add(ops.where, inside, s.read(x, [s.plus(i, offset=-first)]), joined)
    program = ArrayProgram(s, inputs, (Tabulate(shape=(s.extent(i),), counters=(i,), body=joined),))
    arrays = [np.arange(x.size, dtype=np.float32) + x.number for x in inputs]
    compiled = compile_arrays(program, Options("joined"), targets.choose("gpu"))
    np.testing.assert_array_equal(compiled.run(arrays)[0], np.concatenate(arrays))


@needs_tint
def test_tint_takes_the_kernels(small: None) -> None:
    sources, x = list[str](), np.linspace(-1.0, 1.0, 480).reshape(24, 20)
    shared = (gradients_of(f, [x, x[0]])[0] for f, _ in SHARED.values())
    for program in (*(Drawn(seed).program for seed in range(24)), *shared):
        plan = planned(program, WorkgroupTarget(), Options("drawn"))
        parts = (p for p in plan.parts if isinstance(p, Segment))
        for d in (d for p in parts for d in p.launch.dispatches):
            style = Style("accurate", True, d.kernel.name)
            sources += print_kernel(d.kernel, style).modules
    different = list(dict.fromkeys(sources))
    assert len(different) > 20
    assert check_with_tint(different) == [None] * len(different)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_iterations_of_pythons_are_the_same_kernels_on_arrays_of_their_own(device: Any) -> None:
    def balanced(count: int) -> Any:
        def loss(c: Any, a: Any, b: Any) -> Any:
            kernel, u, v = np.exp(-c), a, b
            for _ in range(count):
                u, v = a / (kernel @ v), b / (kernel.T @ u)
            return np.sum(u[:, None] * kernel * v)

        return loss

    rng = np.random.default_rng(0)
    arrays = rng.uniform(0.5, 1.5, (60, 50)), rng.uniform(0.5, 1.5, 60), rng.uniform(0.5, 1.5, 50)
    texts = list[str]()
    for count in (4, 6):
        run = sg.jit(balanced(count), device=device)
        np.testing.assert_allclose(run(*arrays), balanced(count)(*arrays), rtol=2e-4)
        texts.append(run.wgsl)
    assert texts[0] == texts[1]


def test_few_elements_of_several_arrays_are_one_kernel() -> None:
    """Also those in other orders, of a short last axis, and whole numbers."""
    x, y = np.linspace(-1.0, 1.0, 35), np.linspace(0.0, 2.0, 35)
    cases: list[tuple[Any, list[np.ndarray], int]] = [
        (lambda x, y: (np.sin(x), np.round(y[::-1]).astype(int)), [x, y], 1),
        (lambda x, y: (np.sin(x), np.cos(y.T)), [x.reshape(5, 7), y.reshape(7, 5)], 1),
        (lambda x, y: (np.sin(x), np.cos(y)), [x.reshape(5, 7), y.reshape(7, 5)], 2),
        (lambda x, y: (np.exp(x), np.cos(y)), [x[:33].reshape(11, 3), y[:33].reshape(11, 3)], 1),
    ]
    for f, inputs, kernels in cases:
        run = sg.jit(f, device="gpu")
        for result, wanted in zip(run(*inputs), f(*inputs), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
        assert run.wgsl.count("@compute") == kernels


def test_factors_that_are_stored_alike_are_stored_once() -> None:
    """A product and its derivative read what one copy has, also along its other axis."""
    x, w = np.linspace(-1.0, 1.0, 8192).reshape(4, 2, 64, 16), np.linspace(0.0, 1.0, 4096)

    def f(x: Any, w: Any) -> Any:
        return np.sum(np.sin(np.swapaxes(x * x, 1, 2).reshape(4, 64, 32) @ w.reshape(32, 128)))

    program, inputs = gradients_of(f, [x, w])
    plan = planned(program, WorkgroupTarget(), Options("arrays", dtype="float64"))
    assert_means(executed(plan, program, inputs), interpret(program, inputs), 1e-11)
    steps = [s for p in plan.parts if isinstance(p, Segment) for s in p.steps]
    assert (32, 4, 64) not in [a.shape for s in steps for a in s.outputs]
    compiled = compile_arrays(program, Options("arrays"), targets.choose("gpu"))
    results = compiled.run([a.astype(np.float32) for a in inputs])
    assert_means(results, interpret(program, inputs), 1e-5)


@pytest.mark.parametrize("swapped", [False, True])
def test_few_elements_side_by_side_may_be_the_same_along_the_short_axis(swapped: bool) -> None:
    """Those of an array that does not move along it were written once for each row."""
    x, y = np.array([7.0, -9.0, 12.0]), np.array([6.0, 4.0])

    def f(x: Any, y: Any) -> Any:
        down, along = np.broadcast_arrays(x[:, None], y)
        return (along * 3.0, down * 2.0) if swapped else (down * 2.0, along * 3.0)

    for device in sg.devices():
        for computed, wanted in zip(sg.jit(f, device=device)(x, y), f(x, y), strict=True):
            assert computed.tolist() == wanted.tolist()
