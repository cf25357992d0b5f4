"""Results and gradients of all kernels of arrays, beside those of PyTorch in float64."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from torch_cases import GRADIENTS, STEPS, UPDATES, Case, checksum, compared, expected

import symgrad as sg

Device = Literal["cpu", "gpu"]

DEVICES: list[Device] = ["cpu", "gpu"]
BOUND = 2e-5
DOUBLE_BOUND = 1e-11
"""The same in float64; sums of 2049 squares and steps are behind it."""

KNOWN = expected()


def on_gpus(case: Case) -> bool:
    """Whether a case runs on GPUs too.

    Of products, test_products has all activations and shapes there, with gradients by hand.
    """
    match case.kind:
        case "linear":
            return case.options[0] in ("none", "own")
        case "gemm_bias":
            return case.shapes[0] in ((33, 129), (3, 1, 8, 8))
        case _:
            return True


ON_DEVICES = [(c, d) for c in GRADIENTS for d in DEVICES if d == "cpu" or on_gpus(c)]

ACTIVATIONS: dict[str, Any] = {
    "none": None, "relu": sg.relu, "gelu": sg.gelu, "gelu_tanh": sg.gelu_tanh, "silu": sg.silu,
    "sigmoid": sg.sigmoid, "tanh": np.tanh, "own": lambda z: sg.where(z > 0.5, z**2, 0.1 * z),
}  # fmt: skip


def rms_norm(x: Any, w: Any) -> Any:
    return w * x / np.sqrt(np.mean(x * x) + 1e-6)


ROWS: dict[str, Any] = {
    "softmax": sg.softmax,
    "log_softmax": sg.log_softmax,
    "layer_norm": lambda x, w, b: w * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + b,
    "rms_norm": rms_norm,
    "residual": lambda x, r, w: r + rms_norm(x + r, w),
    "cross_entropy": lambda x, t: -(sg.softmax(t) * sg.log_softmax(x)).sum(),
}

SCANS: dict[str, Any] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "logaddexp": np.logaddexp,
    "affine": lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1]),
}  # fmt: skip


def kernel_of(case: Case, device: Device, dtype: str = "float32") -> Any:
    """The kernel of a case."""
    given: Any = {"device": device, "dtype": dtype}
    match case.kind, case.options:
        case "rowwise", (name,):
            return sg.rowwise(ROWS[str(name)], **given)
        case "selective_scan", (kind, softplus, state):
            return sg.selective_scan(bool(softplus), kind, state=bool(state), **given)  # pyright: ignore[reportArgumentType]
        case "associative_scan", (name, axis, reverse):
            return sg.associative_scan(SCANS[str(name)], axis=axis, reverse=reverse, **given)  # pyright: ignore[reportArgumentType]
        case kind, (name,):
            return getattr(sg, kind)(ACTIVATIONS[str(name)], **given)
    raise AssertionError(f"there is no {case.kind}")


def worst(found: list[Any], case: Case, inputs: list[np.ndarray]) -> float:
    """The largest error of some arrays, relative to the largest number of each."""
    known, *wanted = KNOWN[case.name]
    assert checksum(inputs) == pytest.approx(known[0], rel=1e-12), "the inputs are others"
    assert len(found) == len(wanted)
    errors = []
    for array, (scale, *samples) in zip(found, wanted, strict=True):
        own, *numbers = compared(array)
        assert len(numbers) == len(samples) and own == pytest.approx(scale, rel=10 * BOUND)
        difference = np.abs(np.subtract(numbers, samples)).max(initial=0.0)
        errors.append(difference / (scale or 1.0))
    return max(errors)


def error(case: Case, kernel: Any) -> float:
    """The largest error of the results and the gradients."""
    arrays = case.arrays()
    results = kernel.run(*arrays)
    results = list(results) if isinstance(results, tuple) else [results]
    cotangents = case.cotangents([y.shape for y in results])
    again, gradients = kernel.vjp(*arrays, *cotangents)
    again = list(again) if isinstance(again, tuple) else [again]
    for a, b in zip(again, results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return worst([*again, *gradients], case, [*arrays, *cotangents])


def error_of_update(case: Case, device: Device, dtype: Any = "float32") -> float:
    """The same for kernels of nests."""
    arrays, (limit,) = case.arrays(), case.options
    many = len(arrays) // (1 + STEPS)
    if case.kind == "clip_by_global_norm":
        assert isinstance(limit, float)
        clipped, norm = sg.clip_by_global_norm(limit, device=device, dtype=dtype).run(arrays)
        return worst([*clipped, norm], case, arrays)
    update: Any = sg.adamw_update(
        0.02, weight_decay=0.1, max_norm=limit, device=device, dtype=dtype  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    params, state = arrays[:many], None
    for step in range(1, 1 + STEPS):
        params, state = update.run(params, arrays[many * step : many * (step + 1)], state)
    return worst(params, case, arrays)


def test_every_case_has_a_name_and_is_known() -> None:
    names = [case.name for case in (*GRADIENTS, *UPDATES)]
    assert len({*names}) == len(names) and {*names} == {*KNOWN}


@pytest.mark.parametrize(
    ("case", "device"), ON_DEVICES, ids=lambda v: v.name if isinstance(v, Case) else v
)
def test_gradients(case: Case, device: Device) -> None:
    assert error(case, kernel_of(case, device)) <= BOUND


@pytest.mark.parametrize("case", GRADIENTS, ids=lambda case: case.name)
def test_gradients_in_float64(case: Case) -> None:
    assert error(case, kernel_of(case, "cpu", "float64")) <= DOUBLE_BOUND


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.name)
def test_updates(case: Case, device: Device) -> None:
    assert error_of_update(case, device) <= BOUND


def test_a_number_that_is_wrong_is_an_error() -> None:
    """What is compared tells results from others."""
    case = next(case for case in GRADIENTS if case.kind == "linear")
    kernel, arrays = kernel_of(case, "cpu"), case.arrays()
    cotangents = case.cotangents([kernel.run(*arrays).shape])
    y, gradients = kernel.vjp(*arrays, *cotangents)
    gradients[1][0, 0] += 1e-3
    assert worst([y, *gradients], case, [*arrays, *cotangents]) > BOUND
