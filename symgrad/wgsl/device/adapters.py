"""Which of the adapters that wgpu shows are GPUs for symgrad, in which order, and how fast.

Pure functions of what wgpu says; ``device.py`` asks it. Rates in float64 beside float32 are their
makers' numbers: NVIDIA's are results in a clock cycle (CUDA C++ Programming Guide, throughput of
arithmetic instructions, by compute capability), AMD's the peaks of its data sheets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

NVIDIA: Final = r"\b(NVIDIA|GeForce|Quadro|Tesla)\b.*\b"

FLOAT64_RATES: Final = {
    NVIDIA + r"(P100|V100S?|GV100|TITAN V|A100|A30|H100|H200|GH200|B200|GB200)\b": 1 / 2,
    r"\bQuadro RTX \d000\b": 1 / 32,
    NVIDIA + r"(GTX (9|10|16)\d\d|RTX 20[678]0|TITAN RTX|P4|P40|T4|T4G)\b": 1 / 32,
    NVIDIA
    + r"(RTX [345]0\d\d|RTX 2050|RTX \d000 Ada|A2|A10|A10G|A16|A40|L4|L40|L40S|RTX A\d000)\b": 1
    / 64,
    r"AMD .*\bMI(210|250X?)\b": 1.0,
    r"AMD .*\bMI(50|60|100|300X)\b": 1 / 2,
    r"AMD .*\bRX [56]\d00\b": 1 / 16,
    r"AMD .*\bRX 7\d00\b": 1 / 32,
}
"""Arithmetic of float64 for each of float32, by patterns of adapters' names."""


def float64_rate(name: str) -> float | None:
    """The float64 rate of a GPU of a name; None where it is not known."""
    return next((rate for known, rate in FLOAT64_RATES.items() if re.search(known, name)), None)


BACKENDS = ("Vulkan", "Metal", "D3D12")
"""Back ends of wgpu that run kernels, best first.

Not OpenGL: Mesa's leaves threads behind for which a forked child waits when it exits, or crashes.
"""

KINDS = {
    "DiscreteGPU": "discrete",
    "IntegratedGPU": "integrated",
    "Unknown": "unknown",
    "CPU": "software",
}
"""wgpu's adapter types as ``GpuInfo.kind``, best first."""

LIMITS = {
    "max-bind-groups": 4,
    "max-storage-buffers-per-shader-stage": 8,
    "max-dynamic-storage-buffers-per-pipeline-layout": 4,
    "max-uniform-buffers-per-shader-stage": 12,
    "max-uniform-buffer-binding-size": 65_536,
    "max-storage-buffer-binding-size": 1 << 27,
    "max-buffer-size": 1 << 28,
    "max-compute-workgroup-storage-size": 16_384,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroup-size-y": 256,
    "max-compute-workgroup-size-z": 64,
    "max-compute-workgroups-per-dimension": 65_535,
    "min-storage-buffer-offset-alignment": 256,
    "min-uniform-buffer-offset-alignment": 256,
}
"""WebGPU's default limits, which kernels are written for (wgpu would give the adapter's own)."""

FLOAT64_FEATURES = ("shader-f64", "shader-int64")
"""wgpu's names of what kernels in float64 need: the floats, and words of their bits."""

WIDE_SHARED = 2 * LIMITS["max-compute-workgroup-storage-size"]
"""Bytes that a workgroup shares in float64, and in pairs, of which numbers are twice as wide.

Drivers that have float64 have them, as it is through Vulkan, on desktops, that wgpu has it."""

MAX_BINDING = 1 << 31
"""The most bytes to ask for in one binding: byte offsets in a kernel stay below 2**31."""

MAX_BUFFER = 1 << 40
"""The most bytes to ask for in one buffer, as drivers claim up to 2**63."""


@dataclass(frozen=True)
class GpuInfo:
    """One adapter as users see it.

    ``kind`` is "discrete", "integrated", "software" or "unknown"; ``backend`` is wgpu's name of
    the interface to the driver, such as "Vulkan"; ``index`` is the place in ``list_gpus()``. Of
    several GPUs that have one name there, ``number`` counts from 1; of the only one it is 0.
    """

    index: int
    name: str
    kind: str
    backend: str
    number: int = 0
    float64: bool = False
    """Whether kernels compute in float64 too."""

    @property
    def iterations(self) -> int | None:
        """After how many iterations the driver ends the loops of an invocation, saying nothing."""
        return 65_535 if "llvmpipe" in self.name else None

    def __str__(self) -> str:
        twin = f" #{self.number}" if self.number else ""
        return f"{self.name}{twin} ({self.kind}, {self.backend})"


def choose(adapters: Iterable[Any]) -> tuple[tuple[GpuInfo, Any], ...]:
    """The usable adapters with what users see of them, real GPUs first.

    A GPU that several back ends show is there once, in the best of them.
    """
    chosen: list[Any] = []
    for adapter in sorted(filter(usable, adapters), key=_backend):
        if not any(_same(adapter.info, other.info) for other in chosen):
            chosen.append(adapter)
    chosen.sort(key=_kind)
    infos = [_info(index, adapter) for index, adapter in enumerate(chosen)]
    return tuple(zip(_numbered(infos), chosen, strict=True))


def usable(adapter: Any) -> bool:
    """Whether the adapter is of a known back end and has WebGPU's default limits."""
    own = adapter.limits
    return adapter.info["backend_type"] in BACKENDS and all(
        own[name] <= limit if name.startswith("min-") else own[name] >= limit
        for name, limit in LIMITS.items()
    )


def limits(adapter: Any) -> dict[str, int]:
    """The limits to open the adapter with: WebGPU's defaults, but its own sizes."""
    own = adapter.limits
    shared = "max-compute-workgroup-storage-size"
    moving = "max-dynamic-storage-buffers-per-pipeline-layout"
    return LIMITS | {
        shared: min(own[shared], WIDE_SHARED),
        moving: min(own[moving], LIMITS["max-storage-buffers-per-shader-stage"]),
        "max-storage-buffer-binding-size": min(own["max-storage-buffer-binding-size"], MAX_BINDING),
        "max-buffer-size": min(own["max-buffer-size"], MAX_BUFFER),
    }


def has_float64(adapter: Any) -> bool:
    """Whether kernels can compute in float64, and have the memory for it."""
    shared = adapter.limits["max-compute-workgroup-storage-size"]
    return set(FLOAT64_FEATURES) <= set(adapter.features) and shared >= WIDE_SHARED


def _backend(adapter: Any) -> int:
    return BACKENDS.index(adapter.info["backend_type"])


def _kind(adapter: Any) -> int:
    return list(KINDS.values()).index(KINDS.get(adapter.info["adapter_type"], "unknown"))


def _same(a: Any, b: Any) -> bool:
    """Whether two back ends mean one GPU; equal names in one back end are two GPUs."""
    one, other = a["device"].lower(), b["device"].lower()
    return a["backend_type"] != b["backend_type"] and (one in other or other in one)


def _numbered(infos: Sequence[GpuInfo]) -> list[GpuInfo]:
    """The GPUs, numbered where several have one name."""
    keys = [(info.name, info.backend) for info in infos]
    numbers = [keys[: k + 1].count(key) if keys.count(key) > 1 else 0 for k, key in enumerate(keys)]
    return [replace(info, number=n) for info, n in zip(infos, numbers, strict=True)]


def _info(index: int, adapter: Any) -> GpuInfo:
    kind = KINDS.get(adapter.info["adapter_type"], "unknown")
    name, backend = adapter.info["device"], adapter.info["backend_type"]
    return GpuInfo(index, name, kind, backend, float64=has_float64(adapter))
