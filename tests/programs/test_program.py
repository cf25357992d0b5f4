"""Programs: what their statements do, what is refused, and what their gradients are."""

from __future__ import annotations

import linecache
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest

import symgrad as sg
from symgrad.targets import DeviceChoice

DEVICES: list[DeviceChoice] = ["cpu", "gpu"]
Body = Callable[[sg.Builder], None]


def shifted(p: sg.Builder) -> None:
    """Reads behind its own element: the first lanes of a vector have no such element."""
    x, y, z = p.input("x", 40), p.output("y", 40), p.output("z", 40)
    with p.dispatch(40) as i, p.if_(i >= 5):
        p.store(y, i, p.load(x, i - 5))
        p.store(z, i - 5, p.load(x, i))


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_may_be_below_0_in_lanes_that_do_not_go(device: DeviceChoice) -> None:
    x = np.arange(40.0)
    y, z = sg.program(shifted, device=device).run(x)
    assert y.tolist() == [0.0] * 5 + x[:35].tolist()
    assert z.tolist() == [*x[5:].tolist(), *[0.0] * 5]


def looked_up(p: sg.Builder) -> None:
    """Reads and adds at places that its input says."""
    at, x = p.input("at", 6), p.input("x", 3)
    y, z = p.output("y", 6), p.output("z", (6, 3))
    with p.dispatch(6) as i:
        place = sg.uint32(p.load(at, i))
        p.store(y, i, p.load(x, place))
        p.store(z, (i, place), 1.0)


@pytest.mark.parametrize("device", DEVICES)
def test_indices_of_inputs_stay_within_their_axes(device: DeviceChoice) -> None:
    """In memory behind an array stand other numbers, or none; behind a row stands the next one."""
    run = sg.program(looked_up, device=device)
    x = np.array([1.0, 2.0, 3.0])
    y, z = run.run(np.array([0.0, 1.0, 2.0, 7.0, 1e6, 4e9]), x)
    assert y.tolist() == [1.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    assert z.tolist() == np.eye(6, 3).tolist()
    with pytest.raises(sg.ProgramError, match="index 7 of x, which has 3 numbers"):
        run.interpret(np.array([0.0, 1.0, 2.0, 7.0, 0.0, 0.0]), x)


def read_across(p: sg.Builder) -> None:
    """Reads of rows: the row is known, the column is an input's."""
    at, x, y = p.input("at", 4, "u32"), p.input("x", (4, 3)), p.output("y", 4)
    with p.dispatch(4) as i:
        p.store(y, i, p.load(x, (i, p.load(at, i))))


@pytest.mark.parametrize("device", DEVICES)
def test_a_column_beyond_its_row_is_the_last_of_the_row(device: DeviceChoice) -> None:
    y = sg.program(read_across, device=device).run(
        np.array([0, 2, 3, 9], np.uint32), np.arange(12.0).reshape(4, 3)
    )
    assert y.tolist() == [0.0, 5.0, 8.0, 11.0]


def squared_across(p: sg.Builder) -> None:
    """Reads and writes of columns that an input says, beyond their rows among them."""
    at, x = p.input("at", 4, "u32"), p.input("x", (4, 3))
    y, z = p.output("y", 4), p.output("z", (4, 3))
    with p.dispatch(4) as i:
        column = p.load(at, i)
        value = p.load(x, (i, column)) ** 2
        p.store(y, i, value)
        p.store(z, (i, column), 3.0 * value)


def added_in_a_workgroup(p: sg.Builder) -> None:
    """The same by an array of the workgroup."""
    at, x, y = p.input("at", 4, "u32"), p.input("x", 4), p.output("y", 4)
    with p.dispatch(4, 4) as i:
        tile = p.workgroup("tile", 4)
        p.store(tile, i, p.load(x, i) ** 2)
        p.barrier()
        p.store(y, i, p.load(tile, p.load(at, i)))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_at_indices_beyond_their_axes_are_those_of_the_values(
    device: DeviceChoice,
) -> None:
    """The last element was read, and has the cotangent; what was not written has none."""
    at, x = np.array([0, 2, 3, 9], np.uint32), np.arange(1.0, 13.0).reshape(4, 3)
    g, h = np.array([1.0, 2.0, 3.0, 4.0]), np.arange(12.0).reshape(4, 3)
    _, (_, slope) = sg.program(squared_across, device=device).vjp(at, x, g, h)
    want, rows, read = np.zeros((4, 3)), np.arange(4), np.minimum(at, 2)
    written = np.where(at < 3, h[rows, read], 0.0)
    want[rows, read] = 2 * x[rows, read] * (g + 3.0 * written)
    assert slope.tolist() == want.tolist()
    _, (_, slope) = sg.program(added_in_a_workgroup, device=device).vjp(at, x[0, [0, 1, 2, 2]], g)
    assert slope.tolist() == [2.0, 0.0, 12.0, 42.0]


def read_if_positive(p: sg.Builder) -> None:
    """Reads at indices that are known, most of them beyond: whether it reads, an input says."""
    x, z, y = p.input("x", 512), p.input("z", 4), p.output("y", 512)
    with p.dispatch(512) as i, p.if_(p.load(x, i) > 0):
        p.store(y, i, p.load(z, i * 100))


@pytest.mark.parametrize("device", DEVICES)
def test_known_indices_behind_an_unknown_condition_stay_within(device: DeviceChoice) -> None:
    run = sg.program(read_if_positive, device=device)
    y = run.run(np.ones(512), np.arange(4.0))
    assert y.tolist() == [0.0, *[3.0] * 511]
    with pytest.raises(sg.ProgramError, match="index 51100 of z, which has 4 numbers"):
        run.interpret(np.ones(512), np.arange(4.0))


@pytest.mark.parametrize("name", ["read", "write", "read_write", "storage", "workgroup", "private"])
def test_arrays_may_be_called_as_words_of_wgsl(name: str) -> None:
    def body(p: sg.Builder) -> None:
        taken = {"workgroup": "uniform", "private": "function"}.get(name, name)
        x, y = p.input(taken, 8), p.output("y", 8)
        with p.dispatch(8, group=8) as i:
            tile = p.workgroup("atomicLoad", 8)
            p.store(tile, p.local, p.load(x, i))
            p.barrier()
            p.store(y, i, p.load(tile, 7 - p.local))

    x = np.arange(8.0)
    assert sg.program(body, device="gpu").run(x).tolist() == x[::-1].tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_integers_have_their_signs_and_bits(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        n, u = p.input("n", 8, "i32"), p.input("u", 8, "u32")
        a, b = p.output("a", 8, "i32"), p.output("b", 8, "u32")
        with p.dispatch(8) as i:
            v, w = p.load(n, i), p.load(u, i)
            with p.if_(v < 0):
                p.store(a, i, v // 3)
            with p.else_():
                p.store(a, i, -v)
            p.store(b, i, (w << 3) ^ sg.uint32(v))

    n, u = np.arange(-4, 4), np.arange(8) * 99
    program = sg.program(body, device=device)
    for found in (program.run(n, u), program.interpret(n, u)):
        assert found[0].dtype == np.int32
        assert found[0].tolist() == [v // 3 if v < 0 else -v for v in n.tolist()]
        assert found[1].tolist() == ((u << 3) ^ n % 2**32).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_a_load_is_one_load_of_the_text_and_a_remainder_one_operation(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        n, y = p.input("n", 8, "u32"), p.output("y", 8, "u32")
        with p.dispatch(8) as i:
            v = p.load(n, i)
            p.store(y, i, v % 5 + (v + 1) % 3 * 2)

    program = sg.program(body, device=device)
    assert str(program).count("n[cell]") == 1
    assert "y[cell] = t1 % 5 + t2 % 3 * 2\n" in str(program)
    n = np.arange(8) * 7
    assert program.run(n).tolist() == (n % 5 + (n + 1) % 3 * 2).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_stores_to_one_array_keep_their_order(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 32), p.output("y", 32)
        with p.dispatch(32) as i:
            p.store(y, i, p.load(x, i))
            with p.if_(i < 9):
                p.store(y, sg.uint32(1.0 * i), -1.0)

    found = sg.program(body, device=device).run(np.arange(32.0))
    assert found.tolist() == [-1.0] * 9 + list(range(9, 32))


@pytest.mark.parametrize("width", [2, 16, 256])
def test_groups_may_be_narrower_and_wider_than_a_vector(width: int) -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 2 * width), p.output("y", 2 * width)
        with p.dispatch(2 * width, group=width) as i:
            tile = p.workgroup("tile", width)
            p.store(tile, p.local, p.load(x, i))
            p.barrier()
            last = p.load(tile, width - 1 - p.local)
            with p.if_(p.local % 2 == 0):
                p.store(y, i, last)
            with p.else_():
                p.store(y, i, p.group * 1.0 + last)

    x = np.arange(2.0 * width)
    flipped = x.reshape(2, width)[:, ::-1] + np.arange(2)[:, None] * (np.arange(width) % 2)
    assert sg.program(body, device="cpu").run(x).tolist() == flipped.reshape(-1).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_dispatches_follow_one_another(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        x, y, t = p.input("x", 8), p.output("y", 4), p.temporary("t", 8)
        with p.dispatch(8) as i:
            p.store(t, i, p.load(x, i) ** 2)
        with p.dispatch(4) as i:
            p.store(y, i, p.load(t, 2 * i) * p.load(t, 2 * i + 1))

    x = np.arange(8.0)
    y, (dx,) = sg.program(body, device=device).vjp(x, np.ones(4))
    assert y.tolist() == ((x[::2] * x[1::2]) ** 2).tolist()
    assert dx[::2].tolist() == (2 * x[::2] * x[1::2] ** 2).tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_an_earlier_dispatch_may_have_arrays_of_its_own(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        x, y, t = p.input("x", 16), p.output("y", 16), p.temporary("t", 16)
        with p.dispatch(16, group=16) as i:
            tile, mine = p.workgroup("tile", 16), p.private("mine", 2)
            p.store(tile, p.local, p.load(x, i) ** 2)
            p.barrier()
            p.store(mine, 0, p.load(tile, 15 - p.local))
            p.store(mine, 1, p.load(mine, 0) * p.load(x, i))
            p.store(t, i, p.load(mine, 1))
        with p.dispatch(16) as i:
            p.store(y, i, sg.tanh(p.load(t, i)))

    x, g = np.random.default_rng(0).normal(size=(2, 16))
    product = x * x[::-1] ** 2
    inner = g * (1 - np.tanh(product) ** 2)
    y, (dx,) = sg.program(body, device=device).vjp(x, g)
    assert np.allclose(y, np.tanh(product), rtol=1e-5)
    wanted = inner * x[::-1] ** 2 + (inner * x)[::-1] * 2 * x
    assert np.allclose(dx, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_what_all_invocations_read_has_one_gradient(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        w, x, y = p.input("w", 3), p.input("x", (128, 3)), p.output("y", 128)
        with p.dispatch(128) as i:
            total = p.var("total", 0.0)
            with p.for_(0, 3) as k:
                p.assign(total, total.value + p.load(w, k) * p.load(x, (i, k)))
            p.store(y, i, sg.tanh(total.value))

    rng = np.random.default_rng(0)
    w, x, g = rng.normal(size=3), rng.normal(size=(128, 3)), rng.normal(size=128)
    y, (dw, dx) = sg.program(body, device=device).vjp(w, x, g)
    slope = g * (1 - np.tanh(x @ w) ** 2)
    assert np.allclose(y, np.tanh(x @ w), atol=1e-5)
    assert np.allclose(dw, slope @ x, atol=1e-4)
    assert np.allclose(dx, slope[:, None] * w, atol=1e-5)


def test_a_gradient_has_a_gradient() -> None:
    cube = sg.program(one_to_one(lambda x: x**3), device="cpu", dtype="float64")
    second = sg.grad_program(sg.grad_program(cube))
    x, ones, zeros = np.arange(4.0), np.ones(4), np.zeros(4)
    found = second.run(x, ones, zeros, ones)
    assert found[2].tolist() == (6 * x).tolist()


def one_to_one(f: Callable[..., object]) -> Body:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 4), p.output("y", 4)
        with p.dispatch(4) as i:
            p.store(y, i, f(p.load(x, i)))

    return body


def test_a_program_is_a_kernel_like_others() -> None:
    p = sg.program(one_to_one(sg.exp), name="growth", device="cpu")
    x = np.arange(4.0)
    assert p.vjp(x, np.ones(4))[1][0].tolist() == p.run(x).tolist()
    again = pickle.loads(pickle.dumps(p))
    assert again.run(x).tolist() == p.run(x).tolist()
    assert str(again) == str(p)
    assert "sg_exp" in p.wgsl
    assert p.stats.kernels == 1
    assert p.profile(x).bytes == 32
    on_gpu = p.to("gpu").run(sg.device_array(x, device="gpu"))
    assert isinstance(on_gpu, sg.DeviceArray)
    assert np.allclose(on_gpu.numpy(), np.exp(x), rtol=1e-6)
    with pytest.raises(sg.InputError, match=r"x has shape \(3,\), growth takes \(4,\)"):
        p.run(x[:3])


def test_a_node_of_a_branch_may_be_made_again_around_it() -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 8), p.output("y", 8)
        with p.dispatch(8) as i:
            v, total = p.load(x, i), p.var("total", 0.0)
            with p.for_(0, 2):
                with p.if_(total.value < 3.0):
                    p.assign(total, total.value + v * v)
                p.assign(total, total.value * (v * v))
            p.store(y, i, total.value)

    x = np.linspace(0.5, 2.0, 8)
    once = x**4
    wanted = np.where(once < 3, once + x**2, once) * x**2
    assert np.allclose(sg.program(body, device="cpu").run(x), wanted, rtol=1e-6)


# --- what is refused ------------------------------------------------------------------------------

HEAD = """
program wrong
  input x: f32[64]
  input n: u32[64]
  input m: f32[8, 8]
  output y: f32[64]
  dispatch 64 in groups of 64:
    private a: f32[4]
    workgroup tile: f32[64]
"""

REFUSED = {
    "if cell < 3:\n  barrier": "a barrier that not all invocations",
    "for k in 0 .. n[cell]:\n  barrier": "a barrier that not all invocations",
    "if x[cell] < 3.0:\n  let s = group_sum(x[cell])": "group_sum that not all invocations",
    "y[0] = 1.0": "a race",
    "y[cell // 2] = 1.0": "a race",
    "y[cell] = 1.0\ny[63 - cell] = 2.0": "a race",
    "tile[local] = 1.0\ny[cell] = tile[local ^ 1]": "a race",
    "y[64] = 1.0": "out of bounds",
    "y[cell + 1] = 1.0": "out of bounds",
    "y[cell] = a[4]": "out of bounds",
    "y[cell] = m[0, cell >> 1]": "index 8 of axis 1 of m is out of bounds, it has 8",
    "y[cell] = m[cell >> 2, 0]": "index 8 of axis 0 of m is out of bounds, it has 8",
    "if cell < 9:\n  y[cell] = m[0, cell]": "index 8 of axis 1 of m is out of bounds, it has 8",
    "y[cell] = a[1]": "nothing is stored in a there",
    "y[cell] = b": "b is not known here",
    "if cell < 3:\n  let b = x[cell]\ny[cell] = b": "b is not known here",
    "b = 1.0": "b is not known here",
}


@pytest.mark.parametrize("body", REFUSED, ids=list(REFUSED))
def test_faults_name_the_statement(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    with pytest.raises(sg.ProgramError, match=REFUSED[body]) as caught:
        sg.program(HEAD + lines, device="cpu")
    assert "line" in str(caught.value)
    assert any(line.strip().rstrip(":") in str(caught.value) for line in body.split("\n"))


def fails(body: Body, what: str) -> str:
    """Which of this file's lines the message of a program's fault names."""
    with pytest.raises(sg.SymgradError, match=what) as caught:
        sg.grad_program(sg.program(body, device="cpu"))
    (number,) = re.findall(rf"{re.escape(__file__)}:(\d+)|line (\d+) of {re.escape(__file__)}",
                           str(caught.value))  # fmt: skip
    return linecache.getline(__file__, int("".join(number))).strip()


def test_messages_name_the_line_of_the_user() -> None:
    def races(p: sg.Builder) -> None:
        y = p.output("y", 8)
        with p.dispatch(8) as i:
            p.store(y, i // 2, 1.0)

    def parts(p: sg.Builder) -> None:
        y = p.output("y", 8)
        with p.dispatch(8, group=8) as i:
            with p.if_(i < 3):
                p.barrier()
            p.store(y, i, 1.0)

    def writes(p: sg.Builder) -> None:
        x = p.input("x", 8)
        with p.dispatch(8) as i:
            p.store(x, i, 1.0)

    def opens(p: sg.Builder) -> None:
        x = p.input("x", 8)
        with p.dispatch(8), p.if_(x):
            pass

    def repeats(p: sg.Builder) -> None:
        n, y = p.input("n", 8, "u32"), p.output("y", 8)
        with p.dispatch(8) as i:
            v = p.var("v", 0.5)
            with p.for_(0, p.load(n, i)):
                p.assign(v, v.value * v.value)
            p.store(y, i, v.value)

    assert fails(races, "a race") == "p.store(y, i // 2, 1.0)"
    assert fails(writes, "can only be read") == "p.store(x, i, 1.0)"
    assert fails(opens, "is an array|not") == "with p.dispatch(8), p.if_(x):"
    assert fails(repeats, "give most=") == "with p.for_(0, p.load(n, i)):"
    with pytest.raises(sg.ProgramError, match=r"line \d+ of .*they part at .*line \d+ of"):
        sg.program(parts, device="cpu")


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("z[cell] = 1.0", sg.BufferUnknownError, "no array z"),
        ("x[cell] = 1.0", sg.BufferUnknownError, "only be read"),
        ("y[cell] = frobnicate(x[cell])", sg.UnsupportedError, "no operation"),
        ("while cell < 3:", sg.UnsupportedError, "not a statement"),
        ("var v: f64 = 1.0", sg.UnsupportedError, "v of 'f64': it may be of f32, i32, u32, bool"),
        (
            "y[cell] = x[cell] if cell < 3 else 0.0",
            sg.UnsupportedError,
            "this operation",
        ),
        ("let s = group_sum(cell)", sg.UnsupportedError, "real numbers"),
        ("y[cell] = x[x[cell]]", sg.TraceError, "an index is an integer"),
    ],
)
def test_errors_are_typed(line: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        sg.program(f"{HEAD}    {line}\n", device="cpu")


def test_a_workgroup_has_16_kilobytes_with_those_of_reductions() -> None:
    lines = "    workgroup large: f32[{}]\n    let s = group_sum(x[cell])\n    y[cell] = s\n"
    sg.program(HEAD + lines.format(4096 - 64 - 64), device="cpu")
    with pytest.raises(sg.ProgramError, match="16,388 bytes"):
        sg.program(HEAD + lines.format(4096 - 64 - 64 + 1), device="cpu")


def test_the_interpreter_finds_races_that_depend_on_inputs() -> None:
    p = sg.program(f"{HEAD}    y[n[cell]] = x[cell]\n", device="cpu")
    x, n, m = np.arange(64.0), np.arange(64), np.zeros((8, 8))
    assert p.interpret(x, n[::-1], m).tolist() == x[::-1].tolist()
    with pytest.raises(sg.ProgramError, match=r"line 10 of wrong, for these inputs: .* meet in y"):
        p.interpret(x, n // 2, m)
    with pytest.raises(sg.ProgramError, match="index 64 of y"):
        p.interpret(x, n + 1, m)


def test_the_interpreter_finds_indices_beyond_an_axis() -> None:
    p = sg.program(f"{HEAD}    y[cell] = m[cell // 8, n[cell]]\n", device="cpu")
    x, n, m = np.arange(64.0), np.arange(64) % 8, np.arange(64.0).reshape(8, 8)
    assert p.interpret(x, n, m).tolist() == x.tolist()
    with pytest.raises(sg.ProgramError, match="index 8 of axis 1 of m is out of bounds, it has 8"):
        p.interpret(x, n + (n == 7) * (x < 8), m)  # the 8th column of row 0 is in row 1


def test_its_kernels_are_known_before_it_runs() -> None:
    p = sg.program(one_to_one(sg.exp), device="cpu")
    assert "sg_exp" in p.wgsl and p.stats.kernels == 1


@pytest.mark.parametrize("device", DEVICES)
def test_conditions_may_be_kept(device: DeviceChoice) -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 32), p.output("y", 32)
        with p.dispatch(32, group=32) as i:
            mine, ours = p.private("mine", 2, "bool"), p.workgroup("ours", 32, "bool")
            known = p.var("known", p.load(x, i) > 0)
            p.store(mine, i % 2, known.value)
            p.store(ours, p.local, p.load(mine, i % 2))
            p.barrier()
            p.assign(known, p.load(ours, 31 - p.local) & ~known.value)
            p.store(y, i, sg.where(known.value, 1.0, -1.0))

    x = np.random.default_rng(0).normal(size=32)
    wanted = np.where((x[::-1] > 0) & ~(x > 0), 1.0, -1.0)
    assert sg.program(body, device=device).run(x).tolist() == wanted.tolist()


def test_a_value_does_not_outlive_its_block() -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 4), p.output("y", 4)
        with p.dispatch(4) as i:
            with p.if_(i < 2):
                v = p.load(x, i)
            p.store(y, i, v)

    with pytest.raises(sg.ProgramError, match="needs x, which is not known here"):
        sg.program(body, device="cpu")


def test_a_loop_of_traced_functions_is_no_value() -> None:
    body = one_to_one(lambda x: sg.fori_loop(0, 3, lambda k, y: y * x, x))
    with pytest.raises(sg.UnsupportedError, match="for_"):
        sg.program(body, device="cpu")


NOT_DIFFERENTIABLE = {
    "var s = x[cell]\nfor k in 0 .. n[cell]:\n  s = s * s\ny[cell] = s": "give most=",
    "var s = 0.0\ntile[local] = x[cell]\nbarrier\nif cell < 9:\n"
    "  for k in 0 .. 3:\n    s = s + tile[k]\ny[cell] = s": "would be a race",
}


@pytest.mark.parametrize("body", NOT_DIFFERENTIABLE, ids=list(NOT_DIFFERENTIABLE.values()))
def test_what_has_no_gradient_names_the_statement_and_the_remedy(body: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    p = sg.program(HEAD + lines, device="cpu")
    with pytest.raises(sg.DifferentiationError, match=NOT_DIFFERENTIABLE[body]) as caught:
        sg.grad_program(p)
    assert "line" in str(caught.value)


def test_many_invocations_that_own_their_rows_need_no_copies() -> None:
    n = 2**18

    def body(p: sg.Builder) -> None:
        x, y = p.input("x", (n, 3)), p.output("y", n)
        with p.dispatch(n, group=256) as i:
            total = p.var("total", 0.0)
            with p.for_(0, 3) as k:
                p.assign(total, total.value + p.load(x, (i, k)) ** 2)
            p.store(y, i, total.value)

    backward = sg.grad_program(sg.program(body, device="cpu"))
    assert backward.code.of("temporary") == [] and len(backward.code.dispatches) == 1
    x = np.random.default_rng(0).normal(size=(n, 3))
    assert np.allclose(backward.run(x, np.ones(n))[1], 2 * x, rtol=1e-6)


@pytest.mark.parametrize("body", ["pass", "s = s + x[k % 64]"])
def test_loops_that_take_long_are_not_tried_to_their_end(body: str) -> None:
    lines = f"var s = 0.0\nfor k in 0 .. 4000000000:\n  {body}\ny[cell] = s"
    lines = "".join(f"    {line}\n" for line in lines.split("\n"))
    program = sg.program(HEAD + lines, device="cpu")
    assert "for k in 0 .. 4000000000:" in str(program)


INDICES = {
    "cell": True, "63 - cell": True, "cell ^ 5": True, "cell // 2": False, "cell % 32": False,
    "minimum(cell, 62)": False, "(cell * 5) % 64": True, "(cell * 6) % 64": False,
}  # fmt: skip


@pytest.mark.parametrize("index", INDICES)
def test_who_owns_what_is_found_by_trying(index: str) -> None:
    p = sg.program(f"{HEAD}    y[cell] = x[{index}] ** 2\n", device="cpu")
    backward = sg.grad_program(p)
    assert (backward.code.of("temporary") == []) == INDICES[index]
    x, g = np.arange(64.0), np.linspace(-1, 1, 64)
    at = np.array([eval(index, {"minimum": min}, {"cell": i}) for i in range(64)])
    wanted = np.zeros(64)
    np.add.at(wanted, at, 2 * x[at] * g)
    found = backward.run(x, np.zeros(64), np.zeros((8, 8)), g)[1]
    assert np.allclose(found, wanted, rtol=1e-5)


def test_a_gradient_that_takes_too_much_memory_is_refused() -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", 2**13), p.output("y", 2**13)
        with p.dispatch(2**13) as i:
            p.store(y, i, p.load(x, i) + p.load(x, sg.minimum(i + 1, 2**13 - 1)))

    with pytest.raises(sg.DifferentiationError, match="a copy of its 8,192 elements"):
        sg.grad_program(sg.program(body, device="cpu"))
