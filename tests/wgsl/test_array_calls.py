"""Arrays on a GPU in calls of NumPy's and of Python's: what they take, and what they refuse."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError, InputTypeError
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import list_gpus, open_gpu

pytestmark = pytest.mark.skipif(not list_gpus(), reason="no GPU and no software driver here")

NUMBERS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def there(array: Any, dtype: Any = np.float32) -> DeviceArray:
    return DeviceArray.from_numpy(open_gpu(), np.asarray(array), np.dtype(dtype))


def grown(x: Any) -> Any:
    x += 1
    x *= 2
    x -= x
    x **= 2
    x /= 2
    return x


CALLS: dict[str, Callable[[Any], Any]] = {
    "in place": lambda x: grown(+x),
    "clip by keywords": lambda x: np.clip(x, a_min=-0.5, a_max=0.5),
    "clip at one end": lambda x: np.clip(x, None, 0.5),
    "clip at no end": lambda x: np.clip(x, None, None),
    "ravel in another order": lambda x: np.ravel(x, order="F"),
    "reshape in another order": lambda x: np.reshape(x, (2, 6), order="F"),
    "reshape by keyword": lambda x: np.reshape(x, shape=(2, 6)),
    "copy in another order": lambda x: np.copy(x, order="F"),
    "broadcast by keyword": lambda x: np.broadcast_to(array=x, shape=(2, 3, 4)),
    "concatenate as float64": lambda x: np.concatenate([x, x], dtype=np.float64),
    "concatenate to an array": lambda x: np.concatenate([x, x], out=np.empty((6, 4))),
    "concatenate an array": lambda x: np.concatenate(x),
    "concatenate a list": lambda x: np.concatenate([x, [[1, 2, 3, 4]]]),
    "concatenate nothing": lambda x: np.concatenate([x, []], axis=None),
    "stack an array": lambda x: np.stack(x, axis=1),
    "sum as float64": lambda x: np.sum(x, 0, np.float64),
    "sum by keyword": lambda x: np.sum(a=x, axis=0),
    "sum to an array": lambda x: np.sum(x, axis=0, out=np.empty(4, np.float32)),
    "sum of a list": lambda x: np.sum([x, x], axis=0),
    "variance of some": lambda x: np.var(x, 0, None, None, 1),
    "comparison with None": lambda x: x == None,  # noqa: E711
    "equality in a list": lambda x: [x[0, 0]] == [1.0],
    "membership": lambda x: (x[1, 1] in x, 9.0 in x),
    "format": lambda x: f"{x[0, 0]:.3f}",
    "copy to the host": lambda x: np.copyto(np.empty((3, 4), np.float32), x),
    "a list beside it": lambda x: x - [1, 2, 3, 4],
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_numpys(name: str) -> None:
    found, wanted = CALLS[name](there(NUMBERS)), CALLS[name](NUMBERS)
    if wanted is None or isinstance(wanted, str):
        assert found == wanted
        return
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-6, atol=1e-6)


def test_an_array_that_grows_is_another() -> None:
    x = before = there(NUMBERS)
    x += 1
    assert x is not before
    np.testing.assert_array_equal(before.numpy(), NUMBERS)


def test_indices_are_pythons_and_have_numpys_spread() -> None:
    numbers = np.arange(12).reshape(3, 4)
    indices: Any = there(numbers, np.int32)
    assert list(range(indices[0, 3])) == [0, 1, 2]
    assert indices[indices[0, 1]].tolist() == [4, 5, 6, 7]
    for axis in (None, 0, (0, 1)):
        np.testing.assert_allclose(indices.var(axis), numbers.var(axis))
        np.testing.assert_allclose(np.std(indices, axis=axis, ddof=1), numbers.std(axis, ddof=1))
    assert indices.sum(1).dtype == np.int32
    with pytest.raises(InputError, match="not int32"):
        there([2**31 - 1, 1], np.int32).sum()
    with pytest.raises(TypeError):
        operator.index(there(1.0))


def test_what_an_array_is_stays() -> None:
    x: Any = there(NUMBERS)
    for name, value in (("shape", (100,)), ("dtype", np.int32)):
        with pytest.raises(AttributeError):
            setattr(x, name, value)
    assert str(x) == str(NUMBERS)
    assert f"{x[0, 0]}" == str(NUMBERS[0, 0])


def test_masked_entries_are_refused() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(InputTypeError, match="masked"):
        sg.device_array(masked, "gpu")
    with pytest.raises(InputTypeError, match="no real numbers"):
        np.add(there([1.0, 2.0]), masked)


def test_a_step_keeps_nan() -> None:
    x = np.array([np.nan, -1.0, 0.0, -0.0, 2.0, np.inf, -np.inf], np.float32)
    step: Any = np.heaviside(there(x), 0.5)
    np.testing.assert_array_equal(step.numpy(), np.heaviside(x, 0.5))


def test_no_write_is_lost() -> None:
    x: Any = there(NUMBERS)
    for write in (
        lambda: np.copyto(x, 1.0),
        lambda: np.put(x, 0, 1.0),
        lambda: np.fill_diagonal(x, 0.0),
        lambda: np.putmask(x, NUMBERS > 0, 0.0),
        lambda: np.add.at(x, 0, 1.0),
        lambda: np.sum(NUMBERS, axis=0, out=x[0]),
        lambda: np.clip(NUMBERS, 0, 1, out=x),
        lambda: np.add(x, 1, out=x),
    ):
        with pytest.raises(InputTypeError, match="use what is returned"):
            write()


def test_axes_and_indices_that_are_none() -> None:
    x: Any = there(NUMBERS)
    for wrong in (lambda: x.sum((0, 0)), lambda: x.transpose(0, 5), lambda: x.transpose(0, -2)):
        with pytest.raises(InputError, match=r"ax[ie]s"):
            wrong()
    for key in (np.array([0, 2]), [0, 2], x > 0, 1.0):
        with pytest.raises(InputTypeError, match="not an index for an array on a device"):
            x[key]
    with pytest.raises(TypeError, match="bitwise_xor"):
        np.bitwise_xor(x, x)
    with pytest.raises(InputError, match="not int32"):
        np.concatenate([there([1], np.int32), [2**40]])
    with pytest.raises(InputTypeError, match="float64"):
        np.concatenate([there([1], np.int32), [0.5]])


def test_results_of_the_other_side_are_refused_in_short() -> None:
    kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="gpu")
    points = np.ones((500, 2), np.float32)
    for x, out, needed in (
        (
            there(points),
            np.empty(500, np.float32),
            r"a NumPy array .*: it must be a float32",
        ),
        (points, there(np.zeros(500)), "must be a NumPy array"),
    ):
        with pytest.raises(InputError, match=needed) as caught:
            kernel.run(x, out=out)
        assert len(str(caught.value)) < 400
