"""Calls that differ in integers alone: NumPy's steps with these are recorded, and done again."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError
from symgrad.front import functional, jit

OPTIONS: Any = {"device": "cpu", "dtype": "float64"}
RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(30, 12))
SHIFTS = np.arange(12) % 5


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each trace of whole arrays."""
    noted = list[int]()

    class Noting(functional.WholeTrace):
        def __init__(self, *args: Any, **options: Any) -> None:
            noted.append(1)
            super().__init__(*args, **options)

    monkeypatch.setattr(functional, "WholeTrace", Noting)
    monkeypatch.setattr(jit, "WholeTrace", Noting)
    return noted


def entropy(w: Any, k: Any) -> Any:
    """The mean cross entropy of the words that follow, but for a padding word."""
    x, y = w[k[:, :-1]], k[:, 1:]
    scores = x @ w.T
    scores = scores - np.log(np.sum(np.exp(scores), -1, keepdims=True))
    right = np.take_along_axis(scores, y[..., None], -1)[..., 0]
    mask = y != 0
    return -np.sum(np.where(mask, right, 0.0)) / mask.sum()


def one_hot(w: Any, k: Any) -> Any:
    return np.sum((k[..., None] == np.arange(30)).astype(float) @ np.tanh(w))


def of_places(w: Any, k: Any) -> Any:
    flat = np.ravel(w)
    rows, columns = k.reshape(-1, 2).T
    return np.sum(flat[rows * 12 + columns % 12] ** 3)


def from_the_end(w: Any, k: Any) -> Any:
    return np.sum(np.sin(w)[-1 - k[0]] * w[k[1] - 30])


def added_up(w: Any, k: Any) -> Any:
    return np.sum((0.0 * w).at[k[0]].add(w[k[1]] ** 2) ** 2)


def in_a_loop(w: Any, k: Any) -> Any:
    return np.sum(sg.scan(lambda h, t: (np.tanh(h + w[t]), None), w[0], k[0])[0])


def mapped(w: Any, k: Any) -> Any:
    return np.sum(sg.vmap(lambda row: np.max(np.cos(w)[row], 0))(k))


def in_groups(w: Any, k: Any) -> Any:
    order = np.argsort(k, axis=None, kind="stable")
    both = np.stack([order % 30, k.ravel()])
    return np.sum(w[both[0]] * w[np.clip(both[1], 2, None)])


def weighted(w: Any, k: Any) -> Any:
    return np.sum(w[k] * (k / 30 + np.sqrt(k))[..., None]) + k.mean()


def of_shapes(w: Any, k: Any) -> Any:
    first, last = np.shape(k)
    return np.sum(w[k.T[: first * 2, ::-1]]) / len(k) / last / k.size / k.ndim


def rows_in_turn(w: Any, k: Any) -> Any:
    return sum(np.sum(w[row] ** (n + 2)) for n, row in enumerate(k))


def with_numbers_of_its_own(w: Any, k: Any) -> Any:
    shifts = SHIFTS.copy()
    moved = (k[:, :12] + shifts) % 30
    shifts[:] = 7
    return np.sum(np.exp(w[moved]))


RECORDED = (
    entropy, one_hot, of_places, from_the_end, added_up, in_a_loop, mapped, in_groups, weighted,
    of_shapes, rows_in_turn, with_numbers_of_its_own,
)  # fmt: skip


def by_an_if(w: Any, k: Any) -> Any:
    return np.sum(w[k] ** 2) if k.max() > 20 else np.sum(w[k])


def by_an_iteration(w: Any, k: Any) -> Any:
    return sum(np.sum(w[int(n)]) ** (m + 1) for m, n in enumerate(k[0]))


def by_numpys_own(w: Any, k: Any) -> Any:
    return np.sum(np.eye(30)[k] @ w**2)


def by_a_list(w: Any, k: Any) -> Any:
    return np.sum(w[k.tolist()] ** 3)


def by_a_write(w: Any, k: Any) -> Any:
    mask = k > 3
    mask[0] = False
    return np.sum(w[k] * mask[..., None])


def by_a_format(w: Any, k: Any) -> Any:
    return np.sum(w) * int(f"{k[0, 0]}") + np.sum(w[k])


def by_its_type(w: Any, k: Any) -> Any:
    assert isinstance(k, np.ndarray)
    assert not isinstance(k, list)
    return np.sum(w[np.asarray(k)] ** 2)


def by_a_slice(w: Any, k: Any) -> Any:
    return np.sum(w[: k.max()] ** 2)


def by_its_exact_type(w: Any, k: Any) -> Any:
    scale = {np.ndarray: 2.0}.get(type(k), 3.0) * (2.0 if type(k[0, 0]) is np.int64 else 5.0)
    return scale * np.sum(w[k])


def by_a_write_to_a_view(w: Any, k: Any) -> Any:
    shifted = (k + 1) % 30
    first = np.sum(w[shifted])
    np.asarray(shifted)[:] = 3
    return first + np.sum(w[shifted] ** 2)


def by_a_write_elsewhere(w: Any, k: Any) -> Any:
    shifted = k % 7
    shifted.view()[0] = 9
    np.add.at(shifted, 0, 1)
    shifted.flat[3] = 4
    return np.sum(w[shifted] * w[k % 7])


def by_an_error(w: Any, k: Any) -> Any:
    try:
        return np.sum(w[k + 2])
    except IndexError:
        return np.sum(w)


def by_a_result_that_is_given(w: Any, k: Any) -> Any:
    sums = np.zeros(k.shape)
    np.cumsum(k, 0, None, sums)
    return np.sum(w[:, 0]) * sums[-1, 0]


def by_division_that_raises(w: Any, k: Any) -> Any:
    with np.errstate(all="raise"):
        try:
            scale = np.float64(1.0) / ((k[0, 0] % 2) * 1.0)
        except FloatingPointError:
            scale = 9.0
    return np.sum(w[k]) * scale


def by_a_write_in_a_try(w: Any, k: Any) -> Any:
    shifted = k % 7
    try:
        shifted[0] = 5
    except:  # noqa: E722
        shifted = k * 100
    return np.sum(w[shifted % 30])


TRACED = (
    by_an_if, by_an_iteration, by_numpys_own, by_a_list, by_a_write, by_a_format, by_its_type,
    by_a_slice, by_its_exact_type, by_a_write_to_a_view, by_a_write_elsewhere, by_an_error,
    by_a_result_that_is_given, by_division_that_raises, by_a_write_in_a_try,
)  # fmt: skip


def words(seed: int, shape: tuple[int, ...] = (4, 16)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 30, shape)


def traced_anew(f: Any, k: Any) -> tuple[Any, Any]:
    """The value and the gradient by a function of its own, whose integers are constants."""
    return sg.value_and_grad(lambda w: f(w, k), **OPTIONS)(TABLE)


@pytest.mark.parametrize("f", RECORDED, ids=lambda f: f.__name__)
def test_other_integers_need_no_trace(f: Any, traces: list[int]) -> None:
    run = sg.value_and_grad(f, **OPTIONS)
    for seed in range(5):
        k = words(seed)
        before = len(traces)
        value, grad = run(TABLE, k)
        assert len(traces) - before == (seed < 2)
        expected, slopes = traced_anew(f, k)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(grad, slopes, rtol=1e-12, atol=1e-13)
    for same in (words(0), words(3)):
        np.testing.assert_allclose(run(TABLE, same)[0], traced_anew(f, same)[0], rtol=1e-13)


@pytest.mark.parametrize("f", TRACED, ids=lambda f: f.__name__)
def test_what_asks_for_values_is_traced(f: Any, traces: list[int]) -> None:
    run, seen = sg.value_and_grad(f, **OPTIONS), set[int]()
    for seed in (0, 1, 2, 3, 1, 2, 1):
        k = words(seed) if seed % 2 else words(seed) % 15
        before = len(traces)
        value, grad = run(TABLE, k)
        assert len(traces) > before or seed in seen
        seen.add(seed)
        expected, slopes = traced_anew(f, k)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(grad, slopes, rtol=1e-12, atol=1e-13)


# --- numbers of Python's ----------------------------------------------------------------------


def schedule(w: Any, k: Any) -> Any:
    """A rate that falls, and Adam's correction at the first step and on."""
    rate = 0.1 * 0.5 ** (k // 3) / (1.0 - 0.9 ** (k + 1))
    return np.sum(np.tanh(w) * rate) + k


def a_row(w: Any, k: Any) -> Any:
    return np.sum(w[k] ** 2 * w[-1 - k] + w[:, k % 12][3])


def a_threshold(w: Any, k: Any) -> Any:
    return np.sum(np.where(np.arange(30) < k, w[:, 0], w[:, 1] * k)) + np.exp(-k) * w[0, 0]


def a_warm_up(w: Any, k: Any) -> Any:
    return np.sum(np.sin(w)) * np.minimum(1.0, k / 4) + np.sum(np.maximum(w, -k))


@pytest.mark.parametrize("f", [schedule, a_row, a_threshold, a_warm_up], ids=lambda f: f.__name__)
def test_other_numbers_need_no_trace(f: Any, traces: list[int]) -> None:
    run, taken = sg.value_and_grad(f, **OPTIONS), list[int]()
    for k in (0, 1, 5, 2, 3, 1, np.int64(4), np.int64(6), np.int64(2)):
        before = len(traces)
        value, grad = run(TABLE, k)
        taken.append(len(traces) - before)
        expected, slopes = traced_anew(f, k)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(grad, slopes, rtol=1e-12, atol=1e-13)
    assert taken == [1, 1, 0, 0, 0, 0, 1, 1, 0]


def by_a_range(w: Any, k: Any) -> Any:
    return sum((np.sum(w[n]) for n in range(k)), start=np.sum(w))


def by_a_power(w: Any, k: Any) -> Any:
    return np.sum(w**k)


def by_a_shape(w: Any, k: Any) -> Any:
    return np.sum(w.reshape(k + 1, -1)[0] ** 3)


def by_repetition(w: Any, k: Any) -> Any:
    return np.sum(w) * sum([1.0, 2.0] * k) + ([3.0, 4.0] * k + [9.0])[2] * len((1,) * k)


def by_an_error_of_pythons(w: Any, k: Any) -> Any:
    try:
        scale = k // (k - 4)
    except ZeroDivisionError:
        scale = 100
    return np.sum(w**2) * scale


def by_an_error_of_an_index(w: Any, k: Any) -> Any:
    try:
        return np.sum(w[20 + k * 3])
    except IndexError:
        return np.sum(w)


def by_rounding(w: Any, k: Any) -> Any:
    return np.sum(w**3) * divmod(7, k)[0] + round(k / 3, 1)


def by_an_axis(w: Any, k: Any) -> Any:
    return np.sum(np.sum(w, axis=k % 2) ** 2)


NUMBERS_TRACED = (
    by_a_range, by_a_power, by_a_shape, by_repetition, by_an_error_of_pythons,
    by_an_error_of_an_index, by_rounding, by_an_axis,
)  # fmt: skip


@pytest.mark.parametrize("f", NUMBERS_TRACED, ids=lambda f: f.__name__)
def test_numbers_that_decide_are_constants(f: Any, traces: list[int]) -> None:
    run, taken = sg.value_and_grad(f, **OPTIONS), list[int]()
    for k in (1, 2, 4, 5, 2):
        before = len(traces)
        value, grad = run(TABLE, k)
        taken.append(len(traces) - before)
        expected, slopes = traced_anew(f, k)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(grad, slopes, rtol=1e-12, atol=1e-13)
    assert taken[:2] == [1, 1]
    assert taken[-1] == 0


def test_integers_of_small_problems_are_data_of_whole_arrays(traces: list[int]) -> None:
    def logistic(p: Any, x: Any, y: Any, k: Any) -> Any:
        z = x @ p[:2] + p[2]
        return np.sum(np.logaddexp(0.0, z) - np.where(y == 1, z, 0.0)) * 0.5**k

    run, rng = sg.value_and_grad(logistic, **OPTIONS), np.random.default_rng(3)
    for k in range(5):
        p, x, y = rng.normal(size=3), rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
        value, slopes = run(p, x, y, k)
        z = x @ p[:2] + p[2]
        pull = (1.0 / (1.0 + np.exp(-z)) - y) * 0.5**k
        assert value == pytest.approx(logistic(p, x, y, k), rel=1e-13)
        np.testing.assert_allclose(slopes, [*(pull @ x), np.sum(pull)], rtol=1e-12)
    assert len(traces) == 1


def test_small_problems_on_numbers_stay_with_elements(traces: list[int]) -> None:
    def chain(p: Any, k: Any) -> Any:
        for _ in range(30):
            p = [np.sin(p[0]) + 0.001 * k, p[0] * p[1]]
        return p[0] + p[1]

    run = sg.value_and_grad(chain, **OPTIONS)
    for k in (0, 1, 2, 1, 2):
        x = 0.5
        for _ in range(30):
            x = np.sin(x) + 0.001 * k
        value, _ = run([0.5, 0.25], k)
        assert value == pytest.approx(x, rel=1e-9)
    # whole arrays are tried once, and not kept
    assert len(traces) <= 2


def test_truth_values_of_pythons_numbers_are_its_own() -> None:
    def f(w: Any, k: Any) -> Any:
        return np.sum(w) * (2.0 if (k > 2) is True else 3.0)

    run = sg.value_and_grad(f, **OPTIONS)
    for k in (1, 2, 3, 4, 1, 3):
        assert run(TABLE, k)[0] == pytest.approx(f(TABLE, k), rel=1e-12)


class Holder:
    """An object that is no nest."""

    def __init__(self, k: Any) -> None:
        self.k = k


def test_lists_of_numbers_are_returned_as_they_are() -> None:
    run: Any = sg.jit(lambda w, k: (np.sum(w), [k, k + 1], {"l": [k * 2, 3]}), **OPTIONS)
    for k in range(4):
        _, pair, named = run(TABLE, k)
        assert (pair, named) == ([k, k + 1], {"l": [2 * k, 3]})
        assert {type(n) for n in (*pair, *named["l"])} == {int}


def test_nothing_that_is_recorded_leaves_the_call() -> None:
    run = sg.value_and_grad(lambda w, k: (np.sum(w[k]), Holder(k + 1)), has_aux=True, **OPTIONS)
    for seed in range(4):
        (_, holder), _ = run(TABLE, words(seed))
        assert type(holder.k) is np.ndarray
        holder.k[0] = 5  # it is the user's


@pytest.mark.parametrize("verb", ["jit", "value_and_grad"])
def test_kept_programs_keep_no_arguments(verb: str) -> None:
    def f(w: Any, k: Any) -> Any:
        return np.sum(np.cos(w)[k % 30]), {"next": k + 1, "rows": w[k]}

    run: Any = sg.jit(f, **OPTIONS)
    if verb == "value_and_grad":
        run = sg.value_and_grad(f, has_aux=True, **OPTIONS)
    alive = list[Any]()
    for seed in range(4):
        w, k = TABLE.copy(), words(seed)
        run(w, k)
        alive += weakref.ref(w), weakref.ref(k)
        del w, k
    gc.collect()
    assert [ref() is not None for ref in alive] == [False] * len(alive)


def test_only_the_integers_that_vary_are_recorded(traces: list[int]) -> None:
    def f(w: Any, k: Any, heads: Any, options: Any) -> Any:
        parts = w[k].reshape(-1, heads, 12 // heads)
        return sum(np.sum(parts[:, n] ** (n + 2)) for n in range(heads)) * options["scale"]

    def checked(k: Any, heads: int, scale: int) -> int:
        before = len(traces)
        value, _ = sg_run(TABLE, k, heads, {"scale": scale})
        after = len(traces)
        expected = f(TABLE, k, heads, {"scale": scale})
        assert value == pytest.approx(expected, rel=1e-12)
        return after - before

    sg_run = sg.value_and_grad(f, **OPTIONS)
    assert [checked(words(n), 3, 2) for n in range(4)] == [1, 1, 0, 0]
    assert checked(words(4), 4, 2) == 1
    assert [checked(words(n), 4, 2) for n in (5, 6)] == [0, 0]
    assert [checked(words(n), 3, 2) for n in (5, 6)] == [0, 0]
    assert [checked(words(7), 3, n) for n in (3, 4, 5)] == [1, 0, 0]


def test_a_state_that_counts_is_returned(traces: list[int]) -> None:
    def step(state: dict[str, Any], k: Any) -> Any:
        w = state["w"] - 0.1 / (1 + state["n"]) * 2.0 * state["w"]
        return {"w": w, "n": state["n"] + 1, "last": k, "sum": np.sum(w)}

    run, state, w = sg.jit(step, **OPTIONS), {"w": TABLE, "n": 0}, TABLE
    for n in range(6):
        k = words(n)
        out = run(state, k)
        w = w - 0.2 / (1 + n) * w
        np.testing.assert_allclose(out["w"], w, rtol=1e-13)
        assert (out["n"], type(out["n"])) == (n + 1, int)
        np.testing.assert_array_equal(out["last"], k)
        state = {"w": out["w"], "n": out["n"]}
    assert len(traces) == 2


def test_jit_large_integers_and_other_shapes(traces: list[int]) -> None:
    run = sg.jit(lambda w, batch: w[batch["k"]] @ w.T, **OPTIONS)
    for seed in range(4):
        k = words(seed, (50, 60))  # of more bytes than are compared
        np.testing.assert_allclose(run(TABLE, {"k": k}), TABLE[k] @ TABLE.T, rtol=1e-13)
    assert len(traces) == 2
    k = words(7, (3, 5))
    np.testing.assert_allclose(run(TABLE, {"k": k}), TABLE[k] @ TABLE.T, rtol=1e-13)
    assert len(traces) == 3
    np.testing.assert_allclose(run(TABLE, {"k": k.astype(np.uint8)}), TABLE[k] @ TABLE.T)
    assert len(traces) == 4


def test_places_that_a_mask_chooses_are_traced_where_they_are_more(traces: list[int]) -> None:
    run = sg.value_and_grad(lambda w, m: np.sum(w[m] ** 3), **OPTIONS)
    masks = [np.arange(30) < 9, np.arange(30) % 3 == 0, np.arange(30) % 3 == 2, np.arange(30) > 20]
    for mask in (*masks, np.arange(30) < 4, np.arange(30) > 25):
        np.testing.assert_allclose(run(TABLE, mask)[0], np.sum(TABLE[mask] ** 3), rtol=1e-13)
    assert len(traces) == 4  # of nine rows, recorded of nine, of ten at last, and of four twice


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_an_index_beyond_its_axis_is_an_error(calls: int) -> None:
    run = sg.value_and_grad(lambda w, k: np.sum(w[k] ** 2), **OPTIONS)
    for seed in range(calls):
        run(TABLE, words(seed))
    with pytest.raises(IndexError, match="index 30 is out of bounds for an axis of size 30"):
        run(TABLE, np.full((4, 16), 30))
    assert run(TABLE, words(9))[0] == pytest.approx(np.sum(TABLE[words(9)] ** 2), rel=1e-13)


def test_integers_beyond_32_bits_are_an_error() -> None:
    run = sg.value_and_grad(lambda w, k: np.sum(w[:, 0] * k), **OPTIONS)
    for seed in range(3):
        run(TABLE, words(seed, (30,)))
        with pytest.raises(InputError, match=r"an array of integers holds .* beyond 32 bits"):
            run(TABLE, words(seed, (30,)) + 2**40)


def test_integers_may_change_after_the_call(traces: list[int]) -> None:
    run, k = sg.jit(lambda w, k: np.sum(w[k]), **OPTIONS), words(1)
    for seed in range(4):
        k[:] = words(seed)
        assert float(run(TABLE, k)) == pytest.approx(np.sum(TABLE[k]), rel=1e-13)
    assert len(traces) == 2


def test_what_is_returned_beside_the_loss_are_numpys_arrays() -> None:
    run = sg.value_and_grad(lambda w, k: (np.sum(w[k]), {"k": k, "n": k + 1}), has_aux=True)
    for seed in range(3):
        k = words(seed)
        (_, aux), _ = run(TABLE, k)
        assert type(aux["k"]) is type(aux["n"]) is np.ndarray
        np.testing.assert_array_equal(aux["n"], k + 1)


def test_integers_on_a_gpu_are_read() -> None:
    run = sg.value_and_grad(lambda w, k: np.sum(w[k] ** 2))
    w = sg.device_array(TABLE, device="gpu")
    for seed in range(4):
        k = words(seed).astype(np.int32)
        value, grad = run(w, sg.device_array(k, "gpu", "int32"))
        np.testing.assert_allclose(float(value), np.sum(TABLE[k] ** 2), rtol=1e-5)
        expected = 2 * TABLE * np.bincount(k.ravel(), minlength=30)[:, None]
        np.testing.assert_allclose(np.asarray(grad), expected, rtol=1e-5, atol=1e-6)
