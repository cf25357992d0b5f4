"""Results that are elements of an array in a row are stored by a loop, whatever array it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.statements import Store, StoreRow
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.map import map_program

DEVICES = [pytest.param("cpu"), *[d for d in sg.devices() if d.is_gpu]]
AT = np.random.default_rng(2).uniform(0.3, 0.9, (70, 3))


def history(v: Any, count: int = 40) -> Any:
    return sg.scan(lambda s, _: (s * v[0] + v[1], s), v[2], length=count)


def two_versions(v: Any) -> Any:
    """An array as it was, and as it is after it has been written to."""
    _, a = history(v, 12)
    b = sg.fori_loop(0, 12, lambda k, b: b.at[k].multiply(b[11 - k]), sg.array(a))
    return [*a, *b, *a[2:11], *a[::-1]]


RESULTS = {
    "all": (lambda v: history(v)[1], 1),
    "some_and_others": (lambda v: [v[0], *history(v)[1][5:30], v[1] * v[2], *history(v)[1][:9]], 4),
    "too_few": (lambda v: history(v)[1][:7], 7),
    "nested": (lambda v: dict(zip("ab", history(v), strict=True)), 2),
    "two_versions": (two_versions, 3 + 11),  # a[11] comes behind a[10]
}
"""A function, and how many numbers are stored by what is written of it."""


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("target", [SimdTarget(8), WorkgroupTarget(64)], ids=["step", "groups"])
def test_a_loop_stores_them(name: str, target: Any) -> None:
    f, stores = RESULTS[name]
    kernel = sg.fused_forward(3, f, device="cpu", dtype="float64")
    program = map_program(kernel._shaders.computation, target)
    verify(program)
    items = [i for _, i in program.items() if isinstance(i, Store | StoreRow)]
    written = [i for i in items if i.buffer.space == "write"]
    assert sum(len(i.values) if isinstance(i, StoreRow) else 1 for i in written) == stores
    count = -(-len(AT) // target.width) * target.width if target.whole else len(AT)
    arrays = {"x": np.resize(AT, (count, 3))}
    outputs = kernel._shaders.computation.outputs
    arrays |= {o.name: np.empty((count, len(o.nodes))) for o in outputs}
    execute(program, arrays, count)
    want = flat(kernel.run(AT))
    np.testing.assert_allclose(arrays["values"][: len(AT)], want, rtol=1e-13)


def parts(found: Any) -> list[Any]:
    """The arrays, and the numbers, of results."""
    if isinstance(found, dict):
        return [*found.values()]
    return found if isinstance(found, list) else [found]


def flat(found: Any) -> np.ndarray:
    """All results in a row."""
    return np.concatenate([np.reshape(p, (len(AT), -1)) for p in parts(found)], axis=1)


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("name", RESULTS)
def test_they_are_those_of_numbers(name: str, device: Any) -> None:
    f, _ = RESULTS[name]
    found = flat(sg.fused_forward(3, f, device=device).run(AT))
    want = [np.concatenate([np.ravel(p) for p in parts(f(point))]) for point in AT]
    np.testing.assert_allclose(found, np.array(want, float), rtol=3e-6)


def test_the_source_does_not_grow_with_their_number() -> None:
    few, many = (sg.fused_forward(3, lambda v, n=n: history(v, n)[1]).wgsl for n in (100, 1000))
    assert many.count("\n") == few.count("\n") < 70
