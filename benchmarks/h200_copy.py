"""Loss and gradient of Rosenbrock-10 for 4 million points on a GPU, beside copying as many bytes.

All arrays stay on the device. A measurement queues many calls and waits once, at the end; peers
take turns, so that the clocks are equally warm. Traffic is what the work cannot avoid: n floats
read and n + 1 written for each point. The copies read half of these bytes and write half.

    python benchmarks/h200_copy.py                         # on the GPU
    python benchmarks/h200_copy.py --points 20000 --rounds 2 --sample 0.05   # a dry run
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from copy_kernel import BINDINGS, COPY, copy_workgroups
from measure import bar, report

import symgrad as sg
from symgrad.mathlib.define import Math

N = 10
NEEDED = "symgrad", "wgpu"

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


@dataclass
class Peer:
    """Something to time: ``call`` queues the work once, ``wait`` waits for all that is queued.

    ``result`` gives loss and gradient as NumPy arrays (B,), (B, n), or is None for a copy;
    ``calls`` is how often ``call`` does the work.
    """

    name: str
    layout: str
    call: Callable[[], Any]
    wait: Callable[[], Any]
    result: Callable[[], tuple[Any, Any]] | None = None
    calls: int = 1


def losses(x: Any, axis: int = -1) -> Any:
    """Rosenbrock over the last axis, for NumPy, torch and JAX."""
    a, b = x[..., 1:] - x[..., :-1] ** 2, 1 - x[..., :-1]
    return (100 * a * a + b * b).sum(axis)


def loss(v: Any) -> Any:
    """Rosenbrock of one point, whose components are told apart."""
    return sum(100 * (v[i + 1] - v[i] ** 2) ** 2 + (1 - v[i]) ** 2 for i in range(N - 1))


# --- symgrad, and copies through the same wgpu ----------------------------------------------------


def symgrad_peer(points: np.ndarray, math: Math, device: Any) -> Peer:
    """The kernel, given an array on the device."""
    kernel = sg.fused_forward_backward(N, loss, device=device, math=math, name="rosenbrock")
    x = sg.device_array(points, device)
    marker = sg.device_array([0.0], device)  # fetching it waits for all that was queued before

    def result() -> tuple[Any, Any]:
        value, gradient = kernel.run(x)
        return value.numpy(), gradient.numpy()

    return Peer(f"symgrad math={math}", "(B, n)", lambda: kernel.run(x), marker.numpy, result)


COPIES_A_SUBMIT = 8


def wgpu_peers(half: int, name: str) -> list[Peer]:
    """A copy kernel written by hand, one invocation for 16 bytes, and the driver's own copy."""
    wgpu = importlib.import_module("wgpu")
    adapters = wgpu.gpu.enumerate_adapters_sync()
    adapter = next(a for a in adapters if a.info["device"] == name)
    device = adapter.request_device_sync(required_limits=adapter.limits)
    buffers = [device.create_buffer(size=half, usage="STORAGE|COPY_SRC|COPY_DST") for _ in "ab"]
    module = device.create_shader_module(code=COPY)
    stage = {"module": module, "entry_point": "main"}
    pipeline = device.create_compute_pipeline(layout="auto", compute=stage)
    places = zip(BINDINGS, buffers, strict=True)
    entries = [{"binding": k, "resource": {"buffer": b}} for k, b in places]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    workgroups = copy_workgroups(half)
    seed = np.random.default_rng(1).random(half // 4, dtype=np.float32)
    device.queue.write_buffer(buffers[0], 0, seed)

    def kernel() -> None:
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        for _ in range(COPIES_A_SUBMIT):
            compute.dispatch_workgroups(workgroups)
        compute.end()
        device.queue.submit([encoder.finish()])

    def command() -> None:
        encoder = device.create_command_encoder()
        for _ in range(COPIES_A_SUBMIT):
            encoder.copy_buffer_to_buffer(buffers[0], 0, buffers[1], 0, half)
        device.queue.submit([encoder.finish()])

    def wait() -> None:  # on_submitted_work_done is broken in wgpu 0.32
        device.queue.read_buffer(buffers[1], 0, 16)

    kernel()
    copied = np.frombuffer(device.queue.read_buffer(buffers[1]), np.float32)
    assert np.array_equal(copied, seed), "the copy kernel does not copy"
    return [
        Peer("copy: WGSL kernel, vec4", "", kernel, wait, calls=COPIES_A_SUBMIT),
        Peer("copy: copy_buffer_to_buffer", "", command, wait, calls=COPIES_A_SUBMIT),
    ]


# --- copies and peers through CUDA ----------------------------------------------------------------


def torch_copy(half: int, any_device: bool) -> Peer:
    """torch's copy, which is CUDA's."""
    torch, device, wait = _torch(any_device)
    source, target = (torch.rand(half // 4, device=device) for _ in "ab")
    return Peer("copy: torch", "", lambda: target.copy_(source), wait)


def cupy_copy(half: int) -> Peer:
    """An elementwise kernel of CuPy."""
    cupy = importlib.import_module("cupy")
    source, target = (cupy.ones(half // 4, "float32") for _ in "ab")
    copy = cupy.ElementwiseKernel("float32 a", "float32 b", "b = a", "copy")
    wait = cupy.cuda.Device().synchronize
    return Peer("copy: CuPy kernel", "", lambda: copy(source, target), wait)


def _torch(any_device: bool) -> tuple[Any, str, Callable[[], Any]]:
    """torch, its device, and how to wait for it."""
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        return torch, "cuda", torch.cuda.synchronize
    if not any_device:
        raise ImportError("torch has no CUDA here")
    return torch, "cpu", lambda: None


def torch_peer(points: np.ndarray, form: str, any_device: bool) -> Peer:
    """torch.compile of vmap(grad_and_value), or of grad_and_value of the sum of all losses."""
    torch, device, wait = _torch(any_device)
    x = torch.from_numpy(points).to(device)
    if form == "vmap":
        each = torch.func.vmap(torch.func.grad_and_value(losses))

        def both(x: Any) -> Any:
            gradient, value = each(x)
            return value, gradient
    else:

        def both(x: Any) -> Any:
            gradient, (_, values) = torch.func.grad_and_value(_summed, has_aux=True)(x)
            return values, gradient

    compiled = torch.compile(both)

    def result() -> tuple[Any, Any]:
        value, gradient = compiled(x)
        return value.cpu().numpy(), gradient.cpu().numpy()

    name = f"torch.compile, {form}"
    return Peer(name, "(B, n)", lambda: compiled(x), wait, result)


def _summed(x: Any) -> Any:
    values = losses(x)
    return values.sum(), values


def jax_peer(points: np.ndarray, form: str, any_device: bool) -> Peer:
    """jit(vmap(value_and_grad)), of the loss over slices or component by component."""
    jax = importlib.import_module("jax")
    if jax.default_backend() != "gpu" and not any_device:
        raise ImportError("JAX has no GPU here")
    x = jax.device_put(points)
    compiled = jax.jit(jax.vmap(jax.value_and_grad(losses if form == "slices" else loss)))
    last: list[Any] = []

    def call() -> None:
        last[:] = compiled(x)

    def result() -> tuple[Any, Any]:
        value, gradient = compiled(x)
        return np.asarray(value), np.asarray(gradient)

    name = f"JAX jit(vmap(value_and_grad)), {form}"
    return Peer(name, "(B, n)", call, lambda: jax.block_until_ready(last), result)


def drjit_peer(points: np.ndarray, any_device: bool) -> Peer:
    """Dr.Jit, in its own layout: n arrays of B floats."""
    dr = importlib.import_module("drjit")
    backends = [("CUDA", "cuda"), ("LLVM", "llvm")] if any_device else [("CUDA", "cuda")]
    here = [room for name, room in backends if dr.has_backend(getattr(dr.JitBackend, name))]
    if not here:
        raise ImportError("Dr.Jit has no CUDA here")
    float_ = importlib.import_module(f"drjit.{here[0]}.ad").Float
    columns = [float_(np.ascontiguousarray(column)) for column in points.T]
    last: list[Any] = []

    def call() -> None:
        x = [float_(column) for column in columns]
        dr.enable_grad(x)
        value = loss(x)
        dr.backward(value)
        last[:] = [dr.detach(value), *[dr.grad(x_i) for x_i in x]]
        dr.eval(last)

    def result() -> tuple[Any, Any]:
        call()
        return last[0].numpy(), np.stack([column.numpy() for column in last[1:]], axis=1)

    return Peer("Dr.Jit", "n arrays (B,)", call, dr.sync_thread, result)


# --- measuring ------------------------------------------------------------------------------------


def check(peer: Peer, points: np.ndarray) -> None:
    """Compare some results with NumPy in float64."""
    if peer.result is None:
        return
    value, gradient = peer.result()
    some = np.linspace(0, len(points) - 1, 1000).astype(int)
    x = points[some].astype(np.float64)
    a, b = x[:, 1:] - x[:, :-1] ** 2, 1 - x[:, :-1]
    wanted = np.zeros_like(x)
    wanted[:, :-1] -= 400 * x[:, :-1] * a + 2 * b
    wanted[:, 1:] += 200 * a
    assert value.shape == (len(points),) and gradient.shape == points.shape
    np.testing.assert_allclose(value[some], losses(x), rtol=1e-4)
    np.testing.assert_allclose(gradient[some], wanted, rtol=1e-3, atol=1e-2)


def seconds_of(peer: Peer, count: int) -> tuple[float, float]:
    """Seconds of one work: until all is done, and until the host has queued it."""
    peer.wait()
    start = time.perf_counter()
    for _ in range(count):
        peer.call()
    queued = time.perf_counter() - start
    peer.wait()
    return (time.perf_counter() - start) / count / peer.calls, queued / count / peer.calls


def gather(options: argparse.Namespace, points: np.ndarray, target: sg.Device) -> list[Peer]:
    """All peers that are here, checked; the optional ones only while there is time."""
    half = -(-points.nbytes * (2 * N + 1) // (2 * N) // 16) * 16
    end = time.perf_counter() + options.compile_limit
    anywhere = options.peers_anywhere
    makers: list[tuple[str, Callable[[], list[Peer]]]] = [
        ("symgrad", lambda: [symgrad_peer(points, "accurate", target)]),
        ("wgpu", lambda: wgpu_peers(half, target.name)),
        ("CuPy", lambda: [cupy_copy(half)]),
        ("torch copy", lambda: [torch_copy(half, anywhere)]),
        ("JAX", lambda: [jax_peer(points, "slices", anywhere)]),
        ("Dr.Jit", lambda: [drjit_peer(points, anywhere)]),
        ("torch", lambda: [torch_peer(points, "sum", anywhere)]),
        ("JAX components", lambda: [jax_peer(points, "components", anywhere)]),
        ("torch vmap", lambda: [torch_peer(points, "vmap", anywhere)]),
    ]
    peers: list[Peer] = []
    for name, make in makers:
        if time.perf_counter() > end and name not in NEEDED:
            print(f"left out for want of time: {name}", file=sys.stderr, flush=True)
            continue
        start = time.perf_counter()
        try:
            for peer in make():
                check(peer, points)
                peers.append(peer)
        except ImportError as error:
            print(f"not here: {name}: {error}", file=sys.stderr, flush=True)
        except Exception:
            if name in NEEDED:
                raise
            print(f"failed: {name}", file=sys.stderr, flush=True)
            traceback.print_exc()
        took = time.perf_counter() - start
        print(f"{name}: ready after {took:.1f} s", file=sys.stderr, flush=True)
    return peers


def measured(
    peers: list[Peer], options: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    """For each peer its seconds, a pair for each round."""
    warm_until = time.perf_counter() + options.warm
    while time.perf_counter() < warm_until:
        seconds_of(peers[0], 10)
    counts = {}
    for peer in peers:
        seconds_of(peer, 3)
        one = seconds_of(peer, 5)[0] * peer.calls
        counts[peer.name] = max(3, min(5000, round(options.sample / one)))
    found: dict[str, list[tuple[float, float]]] = {peer.name: [] for peer in peers}
    for _ in range(options.rounds):
        for peer in peers:
            found[peer.name].append(seconds_of(peer, counts[peer.name]))
    return found


def clocks() -> str | None:
    """The clocks of an NVIDIA GPU now."""
    query = ["nvidia-smi", "--query-gpu=name,clocks.sm,clocks.mem,driver_version", "--format=csv"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None


def main() -> None:
    """Measure, print the table, and the result as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sample", type=float, default=0.1, help="seconds of one measurement")
    parser.add_argument("--warm", type=float, default=1.0, help="seconds before the first one")
    parser.add_argument("--compile-limit", type=float, default=100.0, help="seconds for peers")
    parser.add_argument("--peers-anywhere", action="store_true", help="peers on the CPU: a dry run")
    options = parser.parse_args()
    device = next((d for d in sg.devices() if d.is_real_gpu), sg.devices()[0])
    points = np.random.default_rng(0).random((options.points, N), dtype=np.float32)
    peers = gather(options, points, device)
    found = measured(peers, options)
    warm = clocks()
    nbytes = 4 * (2 * N + 1) * options.points
    rows = []
    for peer in peers:
        least, queued = min(found[peer.name])
        middle = float(np.median([s for s, _ in found[peer.name]]))
        rows.append(
            {
                "work": peer.name,
                "layout": peer.layout,
                "us, least": least * 1e6,
                "us, median": middle * 1e6,
                "us to queue": queued * 1e6,
                "GB/s": nbytes / least / 1e9,
            }
        )
    copies = {r["work"]: r["GB/s"] for r in rows if r["work"].startswith("copy")}
    best = max(copies.values())
    for row in rows:
        row["of the best copy"] = row["GB/s"] / best
    ours = rows[0]
    kernel_copy = copies["copy: WGSL kernel, vec4"]
    bars = [
        bar("share of the copy bandwidth, WGSL kernel", ours["GB/s"] / kernel_copy, 0.9, True),
        bar("share of the best copy's bandwidth", ours["GB/s"] / best, 0.9, True),
    ]
    for row in rows[1:]:
        if not row["work"].startswith("copy"):
            ratio = ours["us, least"] / row["us, least"]
            bars.append(bar(f"time over that of {row['work']}", ratio, 1))
    result = report(
        "h200_copy", rows, bars, keep=device.is_real_gpu, device=str(device),
        points=options.points, bytes=nbytes, clocks=warm, rounds=options.rounds,
    )  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
