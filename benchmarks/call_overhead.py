"""One call at one point: ``kernel.run`` beside the same WGSL dispatched by hand with wgpu.

By hand means persistent buffers, bind group and staging buffer, and for each call: write_buffer,
one encoder with the dispatch and the copy to staging, one submit, a map, and fresh arrays from
what was mapped. Two ways to map: wgpu's documented one, whose thread polls the device, and the C
functions under it, polled in the calling thread, as symgrad does.

    python benchmarks/call_overhead.py [--device gpu]
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import workloads
from measure import bar, interleaved, report

import symgrad as sg
from symgrad.wgsl.memory.buffers import PollingMapper

N = 100
LOSS_BYTES = 256
"""The loss stands at the start of the results, the gradient from here on."""


def by_hand(kernel: sg.Kernel, x: np.ndarray) -> dict[str, Callable[[], tuple[float, np.ndarray]]]:
    """The ways to run the kernel's source with nothing but wgpu."""
    wgpu = importlib.import_module("wgpu")
    native = importlib.import_module("wgpu.backends.wgpu_native")
    adapters = wgpu.gpu.enumerate_adapters_sync()
    vulkan = [a for a in adapters if a.info["backend_type"] == kernel.device.backend]
    adapter = next(a for a in vulkan if a.info["device"] == kernel.device.name)
    device = adapter.request_device_sync()
    size = LOSS_BYTES + 4 * N
    params = device.create_buffer(size=16, usage="UNIFORM|COPY_DST")
    points = device.create_buffer(size=4 * N, usage="STORAGE|COPY_DST")
    results = device.create_buffer(size=size, usage="STORAGE|COPY_SRC")
    staging = device.create_buffer(size=size, usage="MAP_READ|COPY_DST")
    block = np.array([1, 0, 0x7F800000, 0x7FC00000], np.uint32)
    device.queue.write_buffer(params, 0, block)
    kinds = ("uniform", "read-only-storage", "storage", "storage")
    layout = device.create_bind_group_layout(
        entries=[
            {"binding": k, "visibility": "COMPUTE", "buffer": {"type": kind}}
            for k, kind in enumerate(kinds)
        ]
    )
    ranges = [(params, 0, 16), (points, 0, 4 * N), (results, 0, 4), (results, LOSS_BYTES, 4 * N)]
    group = device.create_bind_group(
        layout=layout,
        entries=[
            {"binding": k, "resource": {"buffer": b, "offset": start, "size": nbytes}}
            for k, (b, start, nbytes) in enumerate(ranges)
        ],
    )
    (source,) = kernel.modules
    module = device.create_shader_module(code=source)
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
        compute={"module": module, "entry_point": "main"},
    )
    mapper = PollingMapper(device, native)

    def start() -> None:
        device.queue.write_buffer(points, 0, x)
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(1)
        compute.end()
        encoder.copy_buffer_to_buffer(results, 0, staging, 0, size)
        device.queue.submit([encoder.finish()])

    def split(floats: np.ndarray) -> tuple[float, np.ndarray]:
        return float(floats[0]), floats[LOSS_BYTES // 4 :].copy()

    def documented() -> tuple[float, np.ndarray]:
        start()
        staging.map_sync("READ")
        result = split(np.frombuffer(staging.read_mapped(copy=False), np.float32))
        staging.unmap()
        return result

    def raw() -> tuple[float, np.ndarray]:
        start()
        result = split(mapper.map(staging, size))
        mapper.unmap(staging)
        return result

    return {"by hand, map_sync": documented, "by hand, polling": raw}


def main() -> None:
    """Measure all ways in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=100, help="calls in a row")
    options = parser.parse_args()
    device = int(options.device) if options.device.isdecimal() else options.device
    kernel = sg.fused_forward_backward(N, workloads.rosenbrock, device=device)
    x = np.random.default_rng(0).random(N, dtype=np.float32)
    works: dict[str, Any] = {"symgrad": lambda: kernel.run(x), **by_hand(kernel, x)}
    wanted = works["symgrad"]()
    for name, work in works.items():
        value, gradient = work()
        assert value == wanted[0] and np.array_equal(gradient, wanted[1]), name
    calls = int(options.calls)
    found = interleaved(works, options.rounds, dict.fromkeys(works, calls))
    ours = found["symgrad"]
    rows = [
        {
            "work": name,
            "us": took.wall * 1e6,
            "CPU us, all threads": took.cpu * 1e6,
            "symgrad over this": ours.wall / took.wall,
        }
        for name, took in found.items()
    ]
    documented = found["by hand, map_sync"].wall
    quickest = min(took.wall for name, took in found.items() if name != "symgrad")
    bars = [
        bar("time of a call over by hand, map_sync", ours.wall / documented, 1.3),
        bar("time of a call over the quickest by hand", ours.wall / quickest, 1.3),
    ]
    kind = "gpu" if kernel.device.is_real_gpu else "software"
    report(f"call_overhead_{kind}", rows, bars, device=str(kernel.device))


if __name__ == "__main__":
    main()
