"""What modules refuse, and how: arrays, kernels that do not compile, lost devices; and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Chromium, Page, PageError
from web.modules import calls

import symgrad as sg

POINTS = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
ROWS = sg.fused_forward_backward(
    2, lambda p, r: (p[0] * r[0] + p[1]) ** 2, row=3, weights=2, reduce="mean", device="cpu"
)
WRONG = {
    "kernel.run(new Float32Array(3))": "the points has 3 numbers: rows of 2 are needed",
    "kernel.run([1, 2])": "the points: a Float32Array is needed",
    "kernel.runOnDevice(new Float32Array(2), 1)": "points: a GPUBuffer with .*STORAGE is needed",
    "kernel.runOnDevice(device.createBuffer({ size: 8, usage: 0x80 }), 2)":
        "points: a GPUBuffer of 8 bytes, where 16 are needed",
    "create({})": "takes a GPUDevice",
    "kernel.minimize(new Float32Array(3))": "the starts has 3 numbers",
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG)
def test_wrong_arrays_are_refused(call: str, browser: Chromium, page: Page) -> None:
    def export(path: Path) -> None:
        POINTS.export_js(path, sg.Adam(0.1), steps=3)

    with pytest.raises(PageError, match="SymgradError: .*" + WRONG[call]):
        calls(browser, page, export, f"await {call}")


def test_wrong_rows_are_refused(browser: Chromium, page: Page) -> None:
    buffer = "device.createBuffer({ size: 48, usage: 0x80 })"
    for call, told in {
        "kernel.run(new Float32Array(2), new Float32Array(4))": "rows of 3 are needed",
        "kernel.run(new Float32Array(1), new Float32Array(6))": "1 parameters: 2 are needed",
        "kernel.run(new Float32Array(2), new Float32Array(6))": "weights of 0, is not defined",
        f"kernel.bind({buffer})": "the mean of weighted rows",
    }.items():
        with pytest.raises(PageError, match="SymgradError: .*" + told):
            calls(browser, page, ROWS.export_js, f"await {call}")


def test_no_points_give_no_results(browser: Chromium, page: Page) -> None:
    found = calls(browser, page, POINTS.export_js, "await kernel.run(new Float32Array())")
    assert [len(found[name]) for name in ("loss", "grad")] == [0, 0]


def test_calls_are_queued(browser: Chromium, page: Page) -> None:
    what = "await Promise.all([1, 2, 3, 4].map((k) => kernel.run(new Float32Array([k, k + 1]))))"
    found = calls(browser, page, POINTS.export_js, what)
    assert [float(one["loss"][0]) for one in found] == [2.0, 6.0, 12.0, 20.0]


def test_points_stay_on_the_device(browser: Chromium, page: Page) -> None:
    what = """await (async () => {
      const x = new Float32Array([3, 4, 5, 6]);
      const points = device.createBuffer({ size: 16, usage: 0x80 | 0x8 | 0x4 });
      device.queue.writeBuffer(points, 0, x);
      const { grad } = kernel.runOnDevice(points, 2);
      const again = kernel.runOnDevice(grad, 2, { grad: points });
      const staging = device.createBuffer({ size: 16, usage: 0x1 | 0x8 });
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(again.loss, 0, staging, 0, 8);
      encoder.copyBufferToBuffer(points, 0, staging, 8, 8);
      device.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      return new Float32Array(staging.getMappedRange().slice(0));
    })()"""
    found = calls(browser, page, POINTS.export_js, what)
    np.testing.assert_array_equal(found, [12.0, 30.0, 3.0, 4.0])


def test_a_kernel_that_does_not_compile_says_so(browser: Chromium, page: Page) -> None:
    def broken(path: Path) -> None:
        POINTS.export_js(path)
        path.write_text(path.read_text().replace("@compute", "nonsense @compute"))

    with pytest.raises(PageError, match=r"SymgradError: the kernel does not compile here:\s+line"):
        calls(browser, page, broken, "1")


def test_a_device_that_is_lost_says_so(browser: Chromium, page: Page) -> None:
    what = """await (async () => {
      const lost = await requestDevice();
      const other = await create(lost);
      await other.run(new Float32Array([1, 2]));
      const going = other.run(new Float32Array(2 ** 16));
      lost.destroy();
      const told = await Promise.allSettled([going, other.run(new Float32Array(2))]);
      await lost.lost;
      const later = await other.run(new Float32Array(2)).catch((error) => error.message);
      return [told.map((one) => one.reason?.message ?? "done"), later];
    })()"""
    told, later = calls(browser, page, POINTS.export_js, what)
    for text in (*told, later):
        assert "the GPU device was lost" in text and "create the kernel there" in text


def test_too_few_arrays_are_told(browser: Chromium, page: Page) -> None:
    kernel = sg.fused_hessian(2, lambda v: sg.exp(v[0]) * v[1], device="cpu")
    what = """await (async () => {
      const few = new Proxy(device, { get: (d, name) => (name === "limits"
        ? { maxStorageBuffersPerShaderStage: 3, maxStorageBufferBindingSize: 2 ** 27 }
        : typeof d[name] === "function" ? d[name].bind(d) : d[name]) });
      return create(few);
    })()"""
    with pytest.raises(PageError, match="binds 3 arrays and the kernel has 4: request it with"):
        calls(browser, page, kernel.export_js, what)


# --- exporting ------------------------------------------------------------------------------------


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fit.mjs"
    POINTS.export_js(path)
    first = path.read_text()
    sg.fused_forward_backward(2, lambda v: v[0] + v[1], device="cpu").export_js(path)
    assert path.read_text() != first  # symgrad's own
    types = tmp_path / "fit.d.mts"
    types.write_text("mine")
    with pytest.raises(sg.InputError, match="not written by symgrad: choose another name"):
        POINTS.export_js(path)
    assert types.read_text() == "mine"
    assert path.read_text() != first  # all or none


@pytest.mark.parametrize(("name", "told"), [
    ("fit.py", r"ends in \.mjs or \.js"), ("no/fit.mjs", "there is no folder"),
])  # fmt: skip
def test_names_of_modules(name: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(sg.InputError, match=told):
        POINTS.export_js(tmp_path / name)


def looked_up(p: Any, r: Any) -> Any:
    return p[r.who] * r.x


UNKNOWN = {
    "float32x2, not float64": lambda: sg.fused_forward(
        1, lambda v: v, device="cpu", dtype="float64"),
    "look up by an index": lambda: sg.fused_forward_backward(
        3, looked_up, columns=["who", "x"], device="cpu"),
    'nan_policy="omit"': lambda: sg.fused_forward_backward(
        1, lambda p, r: p[0] * r[0], row=1, nan_policy="omit", device="cpu"),
    "a regularizer": lambda: sg.fused_forward_backward(
        1, lambda p, r: p[0] * r[0], row=1, regularizer=lambda p: p[0] ** 2, device="cpu"),
}  # fmt: skip


@pytest.mark.parametrize("told", UNKNOWN)
def test_what_cannot_be_exported_is_named(told: str, tmp_path: Path) -> None:
    with pytest.raises(sg.InputError, match=told):
        UNKNOWN[told]().export_js(tmp_path / "fit.mjs")
    assert list(tmp_path.iterdir()) == []


def test_methods_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(sg.InputError, match="minimises squares"):
        POINTS.export_js(tmp_path / "fit.mjs", sg.LevenbergMarquardt())
    with pytest.raises(sg.InputError, match='use reduce="sum"'):
        ROWS.export_js(tmp_path / "fit.mjs", sg.Adam(0.1))


def test_the_same_kernel_is_the_same_module(tmp_path: Path) -> None:
    for name in ("a.mjs", "b.mjs"):
        POINTS.export_js(tmp_path / name, sg.LBFGS())
    assert (tmp_path / "a.mjs").read_text() == (tmp_path / "b.mjs").read_text()
    assert "LaunchKernel" not in (tmp_path / "a.mjs").read_text()
    assert "Promise<PointKernel & Minimizer>" in (tmp_path / "a.d.mts").read_text()
