"""The devices of this machine, and which of them a kernel runs on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from symgrad.errors import DeviceError, InputError, InputTypeError
from symgrad.llvm.device.cpu import host
from symgrad.values.arrays import is_float, memory_dtype, real_numbers
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import DTYPES
from symgrad.wgsl.device.adapters import float64_rate
from symgrad.wgsl.device.gpus import list_gpus, open_gpu

FLOATS: Final = ("float32", "float32x2", "float64")


@dataclass(frozen=True)
class Device:
    """A device that kernels run on.

    ``kind`` is "discrete", "integrated", "software" (a GPU driver on the CPU), "unknown" or "cpu".
    Two cards of one name differ in their ``index``, and are counted by ``number``.

    Example:
        >>> import symgrad as sg
        >>> cpu = sg.devices()[-1]
        >>> cpu.kind, cpu.is_gpu
        ('cpu', False)
    """

    index: int
    name: str
    kind: str
    backend: str
    number: int = 0
    """Which of the GPUs of its name and back end it is, from 1 on; 0 if it is the only one."""
    dtypes: tuple[str, ...] = FLOATS[:2]
    """The dtypes that kernels for it can compute in."""

    @property
    def is_gpu(self) -> bool:
        """Whether kernels reach it as WGSL."""
        return self.kind not in ("cpu", "several")

    @property
    def is_real_gpu(self) -> bool:
        """Whether it is a GPU rather than a driver that computes on the CPU."""
        return self.kind not in ("cpu", "software", "several")

    @property
    def float64_rate(self) -> float | None:
        """Operations in float64 in the time of one in float32; None if unknown, 0 without float64.

        It is 1/2 on NVIDIA's cards for data centres and 1/64 on its cards for games since 2020.
        Where vectors of a CPU compute it is 1/2, as they hold half as many float64.
        """
        if "float64" not in self.dtypes:
            return 0.0
        return float64_rate(self.name) if self.is_real_gpu else 0.5

    def __str__(self) -> str:
        twin = f" #{self.number}" if self.number else ""
        return f"{self.name}{twin} ({self.kind}, {self.backend})"


@dataclass(frozen=True)
class Devices(Device):
    """Several devices that share work, in the order in which they were named: see `choose_any`."""

    parts: tuple[Device, ...] = ()

    @classmethod
    def of(cls, parts: Sequence[Device]) -> Devices:
        """These devices, at least two."""
        dtypes = tuple(d for d in FLOATS if all(d in part.dtypes for part in parts))
        name = " + ".join(map(str, parts))
        return cls(-1, name, "several", "", dtypes=dtypes, parts=tuple(parts))

    @property
    def float64_rate(self) -> float | None:
        """The smallest of its parts; None if one is unknown."""
        rates = [part.float64_rate for part in self.parts]
        return None if None in rates else min(r for r in rates if r is not None)

    def __str__(self) -> str:
        return self.name


One = Literal["gpu", "cpu"] | int | Device | None
"""A name of a device: see `choose`."""

DeviceChoice = One | Literal["gpus"] | Sequence[One]
"""The type of ``device=``: see `choose_any`."""


def devices() -> list[Device]:
    """The devices of this machine: its GPUs, then its CPU. Their indices go into ``device=``.

    Where several may share the work, batches of points, rows of data and many fits, ``device=``
    takes a list of devices too, or "gpus" for all real GPUs.

    Example:
        >>> import symgrad as sg
        >>> sg.devices()[-1].kind
        'cpu'
        >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
        >>> kernel = sg.fused_forward_backward(2, line, row=2, device=sg.devices())
        >>> kernel.bind([[0.0, 1.0], [1.0, 3.0]]).run([1.0, 1.0])
        (1.0, array([-2., -2.], dtype=float32))
    """
    gpus = [
        Device(k, g.name, g.kind, g.backend, g.number, FLOATS[: 2 + g.float64])
        for k, g in enumerate(list_gpus())
    ]
    return [*gpus, _cpu(len(gpus))]


def _cpu(index: int) -> Device:
    cpu = host()
    return Device(index, f"{cpu.name}, {cpu.threads} cores", "cpu", "LLVM", dtypes=FLOATS)


def _preferred() -> str | int | None:
    """The environment variable SYMGRAD_DEVICE."""
    device = os.environ.get("SYMGRAD_DEVICE") or None
    return int(device) if device and device.isdecimal() else device


def choose(device: DeviceChoice = None) -> Device:
    """The device that ``device=`` names: "gpu", "cpu", an index, a `Device`, or None.

    None is the environment variable SYMGRAD_DEVICE, or else the first real GPU, or else the CPU.

    Raises:
        DeviceError: if there is no such device. InputError: for a name that is none.
    """
    choice: object = _preferred() if device is None else device
    if isinstance(choice, Devices) or choice == "gpus" or _is_list(choice):
        raise InputError(
            f"device={_shown(choice)} is more than one device: batches of points, rows of data and "
            "many fits are shared out, and this runs on one"
        )
    if isinstance(choice, Device):
        return choice
    if choice == "cpu":
        return _cpu(-1)
    listed = devices()
    if choice is None:
        return next((d for d in listed if d.is_real_gpu), listed[-1])
    if choice == "gpu":
        return _first_gpu(listed)
    if isinstance(choice, (int, np.integer)) and not isinstance(choice, bool):
        if not 0 <= choice < len(listed):
            raise DeviceError(f"there is no device {choice}: sg.devices() lists {len(listed)}")
        return listed[choice]
    raise InputError(f'device={choice!r}: use "gpu", "cpu", an index of sg.devices(), or None')


def choose_any(device: DeviceChoice = None) -> Device:
    """The device, or the `Devices`, that ``device=`` names where several may share the work.

    It is what `choose` takes; or a list of such, each device once; or "gpus", which are all real
    GPUs, or all GPUs if none is real. A list of one is that one.

    Raises:
        InputError: for a list that is empty, or names a device twice. DeviceError: as `choose`.
    """
    if isinstance(device, Device):
        return device
    choice: Any = _preferred() if device is None else device
    if choice == "gpus":
        gpus = [d for d in devices() if d.is_gpu]
        parts = [d for d in gpus if d.is_real_gpu] or gpus or [_first_gpu([])]
    elif _is_list(choice):
        parts = [choose(part) for part in choice]
    else:
        return choose(choice)
    if not parts:
        raise InputError("device= names no device: sg.devices() lists what there is")
    keys = [d.index if d.is_gpu else -1 for d in parts]
    twice = [d for k, d in enumerate(parts) if keys[k] in keys[:k]]
    if twice:
        raise InputError(f"device={_shown(device)} names {twice[0]} twice: each works once")
    return Devices.of(parts) if len(parts) > 1 else parts[0]


def _is_list(choice: object) -> bool:
    return isinstance(choice, Sequence) and not isinstance(choice, str)


def _shown(choice: object) -> str:
    """A short description of what a user gave for devices."""
    if isinstance(choice, Sequence) and not isinstance(choice, str):
        return f"[{', '.join(map(_shown, choice))}]"
    return str(choice) if isinstance(choice, Device) else repr(choice)


def _first_gpu(listed: list[Device]) -> Device:
    gpus = [d for d in listed if d.is_gpu]
    if not gpus:
        raise DeviceError(
            "no GPU: wgpu found no adapter. Install a Vulkan driver (on Debian, "
            'mesa-vulkan-drivers is one that computes on the CPU), or use device="cpu"'
        )
    return gpus[0]


def device_array(x: Any, device: DeviceChoice = None, dtype: Any = "float32") -> DeviceArray:
    """An array that lives on a GPU: kernels given one return such arrays, copying nothing.

    ``x`` is array-like, of any real dtype; ``device`` as everywhere, but never the CPU. ``dtype``
    is float32, float32x2 (pairs of float32; NumPy has them as float64), float64 on a GPU that has
    it, or int32 or uint32 for indices.

    Raises:
        DeviceError: if the device is no GPU, or has no float64. InputTypeError: if x holds no real
        numbers, or the dtype is another. InputError: if x holds numbers that are no integers of
        the dtype.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="gpu")
        >>> x = sg.device_array([[2.0, 3.0], [4.0, 5.0]], device="gpu")
        >>> (kernel.run(x) + 1.0).tolist()
        [7.0, 21.0]
    """
    kind = memory_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    if kind not in DTYPES:
        kinds = "float32, float32x2, float64, int32 or uint32"
        raise InputTypeError(f"dtype={dtype!r}: arrays on a GPU are {kinds}")
    target = choose(device) if device is not None else _first_or_real()
    if not target.is_gpu:
        raise DeviceError(f"{target} has no memory of its own: on the CPU use NumPy arrays")
    values = real_numbers(x, "x")
    if not is_float(kind):
        with np.errstate(invalid="ignore"):
            indices = values.astype(kind)
        if not np.array_equal(indices, values):
            raise InputError(f"x holds numbers that are not {kind}")
        values = indices
    return DeviceArray.from_numpy(open_gpu(target.index), values, kind)


def _first_or_real() -> Device:
    chosen = choose(None)
    return chosen if chosen.is_gpu else _first_gpu(devices())
