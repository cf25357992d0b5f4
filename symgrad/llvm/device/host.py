"""The CPU that code is compiled for: this machine's, or what SYMGRAD_CPU takes the machine for."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Generator
from dataclasses import dataclass
from typing import Any, Final

from symgrad.errors import DeviceError
from symgrad.kernel.host.threads import available
from symgrad.llvm import compiler
from symgrad.llvm.printing.operations import BITS, Shape
from symgrad.llvm.printing.source import USUAL_SIZES, CodeSizes

LEVELS: Final = {
    "x86-64": "SSE2",
    "x86-64-v2": "SSE4.2",
    "x86-64-v3": "AVX2 and FMA",
    "x86-64-v4": "AVX-512",
}
"""The levels of the x86-64 psABI, which LLVM takes for CPUs, and the vectors of each."""

FEATURES: Final = {
    "x86_64": (
        *("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"),
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
        *("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    ),
    "aarch64": ("neon", "fullfp16", "lse", "dotprod", "sve", "sve2", "sme"),
}
"""Features of a machine that is taken for another CPU: those of the psABI's levels, and
the vectors of ARM. What else it lacks is left out of the code."""

TRIPLES: Final = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
"""Where CPUs are looked for that this machine's architecture does not have."""


@dataclass(frozen=True)
class Host:
    """The CPU that code is compiled for."""

    name: str
    features: str
    vector_bits: int
    fused: bool
    threads: int
    triple: str = ""
    lacking: tuple[str, ...] = ()
    """Features of it that this machine lacks, so that nothing is run."""
    sizes: CodeSizes = USUAL_SIZES
    """The sizes at which code for it is written in another way."""

    def shape(self, dtype: str, batch: bool, fuse: bool = True) -> Shape:
        """The shape of instructions here: single numbers or whole vectors; fused, if wanted."""
        lanes = self.vector_bits // BITS[dtype] if batch else 1
        fused = self.fused and fuse and dtype != "float32x2"
        return Shape(dtype, lanes, fused, self.vector_bits == 512, self.sizes)

    def require(self) -> None:
        """Refuse to run code for a CPU that this machine is not.

        Raises:
            DeviceError: it says what is missing.
        """
        if self.lacking:
            raise DeviceError(
                f"SYMGRAD_CPU={self.name}: this machine cannot run code for that CPU, as it lacks "
                f"{', '.join(self.lacking)}; name a CPU that needs less, or leave the variable out"
            )


def llvm() -> Any:
    """LLVM.

    Raises:
        DeviceError: if it is not installed.
    """
    try:
        return compiler.llvm()
    except ImportError as error:
        raise DeviceError(
            f"kernels are compiled for the CPU by llvmlite, which is missing here ({error}): "
            "install it, use a GPU, or export the kernel"
        ) from error


def host() -> Host:
    """The CPU that code is compiled for: `this_machine`, unless it is taken for another.

    Raises:
        DeviceError: if LLVM knows no such CPU.
    """
    return _taken[-1] if _taken else this_machine()


@contextlib.contextmanager
def taken_for(other: Host) -> Generator[None]:
    """A context in which this process takes the machine for another, and compiles for that one."""
    _taken.append(other)
    try:
        yield
    finally:
        _taken.pop()


_taken: list[Host] = []


@functools.cache
def this_machine() -> Host:
    """The CPU that the environment variable SYMGRAD_CPU names, or else this machine's own.

    Without LLVM it is only the kind of this machine, for kernels that never run on it.

    Raises:
        DeviceError: if LLVM knows no such CPU.
    """
    try:
        llvm = compiler.llvm()
    except ImportError:
        return Host(platform.machine() or "CPU", "", 128, False, available())
    name, triple = os.environ.get("SYMGRAD_CPU", ""), llvm.get_process_triple()
    if name:
        return _named(name, triple)
    has, cpu = llvm.get_host_cpu_features(), llvm.get_host_cpu_name()
    return _host(cpu, has.flatten(), {f for f, on in has.items() if on}, triple)


def _host(name: str, features: str, has: Collection[str], triple: str, *lacking: str) -> Host:
    bits = 512 if "avx512f" in has else 256 if "avx" in has else 128
    fused = "fma" in has or _architecture(triple) == "aarch64"
    return Host(name, features, bits, fused, available(), triple, lacking)


def _architecture(triple: str) -> str:
    """The architecture of a triple, by its key in `FEATURES` if it has one."""
    name = triple.partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(name, name)


def _named(name: str, triple: str) -> Host:
    """The CPU of that name, which this machine is taken for."""
    llvm, own = compiler.llvm(), _architecture(triple)
    elsewhere = [t for t in TRIPLES if _architecture(t) != own]
    for where in (triple, *elsewhere):
        has = _features(name, where)
        if has is None:
            continue
        if where != triple:
            return _host(name, "", has, where, f"{_architecture(where)} instructions")
        flags = llvm.get_host_cpu_features()
        arguments = llvm.get_host_cpu_name(), flags.flatten(), FEATURES.get(own, ())
        native = compiler.features_of(*arguments, triple)
        without = ",".join(f"-{f}" for f, on in flags.items() if not on)
        return _host(name, without, has, triple, *[f for f in has if f not in native])
    levels = ", ".join(f"{level} ({vectors})" for level, vectors in LEVELS.items())
    raise DeviceError(
        f"SYMGRAD_CPU={name!r}: LLVM knows no such CPU; name a level of x86-64, which is one of "
        f"{levels}, or a CPU as LLVM calls it, such as haswell, znver4 or neoverse-n1"
    )


def _features(name: str, triple: str) -> list[str] | None:
    """Which of `FEATURES` a CPU has, or None if LLVM has no such CPU for this triple.

    It is asked in a process of its own, which LLVM may end; of the levels it is known.
    """
    architecture = _architecture(triple)
    request = {
        "cpu": name,
        "features": "",
        "candidates": FEATURES.get(architecture, ()),
        "triple": triple,
    }
    if architecture == "x86_64" and name in LEVELS:
        return compiler.features_of(**request)
    command = compiler.program()
    if command is None or name == "help" or not re.fullmatch(r"[\w.+-]+", name):
        return None
    order = json.dumps({"path": sys.path, **request})
    done = subprocess.run(command, input=order, capture_output=True, text=True, check=False)
    if done.returncode or "not a recognized processor" in done.stderr:
        return None
    return json.loads(done.stdout)
