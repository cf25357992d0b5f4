"""How much memory of a device is taken, and giving back what is only kept."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.backend import backend_of
from symgrad.targets import DeviceChoice, choose


@dataclass(frozen=True)
class Memory:
    """Bytes of a device's memory; see `memory`.

    Example:
        >>> import symgrad as sg
        >>> str(sg.Memory(in_use=4096, kept=1024, limit=None))
        '4,096 bytes in use, 1,024 kept to be used again, no limit is set'
    """

    in_use: int
    kept: int
    limit: int | None

    def __str__(self) -> str:
        most = "no limit is set" if self.limit is None else f"at most {self.limit:,} in all"
        return f"{self.in_use:,} bytes in use, {self.kept:,} kept to be used again, {most}"


def memory(device: DeviceChoice = None) -> Memory:
    """What symgrad holds of a device's memory, in bytes.

    ``in_use`` is in arrays that are alive, in bound rows and in the workspaces of kernels; ``kept``
    is in none of these, and will be used again by the next calls, or given back when it has not
    been for ten seconds, when the device is full, or by `free_memory`. ``limit`` is how many bytes
    arrays may have in all, for a GPU in software the machine's memory, or None: as many as the
    device gives.

    Of the CPU's memory, results of 128 KiB or more are counted.

    Args:
        device: as everywhere; None is the first real GPU, or the CPU if there is none.

    Raises:
        DeviceError: if there is no such device.

    Example:
        >>> import symgrad as sg
        >>> sg.memory("cpu").limit is None
        True
    """
    return Memory(*backend_of(choose(device)).memory)


def free_memory(device: DeviceChoice = None) -> int:
    """Give back what symgrad keeps of a device's memory and nothing uses: how many bytes it was.

    It waits until the device has done what was queued. Kernels' workspaces are given back too, and
    made again by their next call.

    Args:
        device: as for `memory`.

    Raises:
        DeviceError: if there is no such device, or it was lost.

    Example:
        >>> import symgrad as sg
        >>> sg.free_memory("cpu") >= 0
        True
        >>> sg.memory("cpu").kept
        0
    """
    return backend_of(choose(device)).free()
