"""Kernels of the language as pipelines of a GPU."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import DeviceError
from symgrad.kernel.launch import Dispatch
from symgrad.kernel.skeletons.map import Map
from symgrad.kernel.skeletons.steps import Iterate
from symgrad.mathlib.define import functions
from symgrad.wgsl.device.gpu import FLOAT
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.iteration import printed_steps
from symgrad.wgsl.printing.printer import print_kernel, printed_map
from symgrad.wgsl.printing.source import Printed, Style

CACHED_PIPELINES: Final = 256
"""Most compiled kernels that are cached."""


class Compiled:
    """A kernel of the language as pipelines, which run one after the other."""

    def __init__(self, gpu: Gpu, printed: Printed, floats: np.dtype[Any] = FLOAT) -> None:
        self.printed, self.bound = printed, printed.bound
        """The kernel's buffers that are bound, in the order of the bindings."""
        self.readable = sum(b.space == "read" for b in self.bound)
        self.tables = {b: gpu.constants(b.data, floats) for b in self.bound if b.data is not None}
        writable = len(self.bound) - self.readable + bool(printed.slots)
        if (needed := self.readable + writable) > gpu.max_arrays:
            raise DeviceError(
                f"{gpu.info.name} binds {gpu.max_arrays} arrays, the kernel has {needed}"
            )
        if printed.shared > gpu.max_shared:
            raise DeviceError(
                f"{gpu.info.name} has {gpu.max_shared:,} bytes of memory for a workgroup, too few "
                f'for the {printed.shared:,} of a kernel in pairs: use dtype="float32", or '
                'device="cpu"'
            )
        self.pipelines = [
            gpu.pipeline(source, writable, self.readable) for source in printed.modules
        ]


_compiled: Once[Any, Compiled] = Once(CACHED_PIPELINES)


def compiled_kernel(gpu: Gpu, dispatch: Dispatch, style: Style) -> Compiled:
    """A dispatch's kernel, compiled once for all launches."""
    key = gpu, dispatch.program, dispatch.target, style
    floats = style.floats.dtype
    return _compiled.get(key, lambda: Compiled(gpu, printed_kernel(dispatch, style), floats))


def printed_kernel(dispatch: Dispatch, style: Style) -> Printed:
    """The WGSL of a dispatch's kernel."""
    program = dispatch.program
    if isinstance(program, Map):
        return printed_map(program.computation, style)
    kernel = dispatch.kernel
    library = functions(style.math, style.dtype)
    if isinstance(program, Iterate):
        return printed_steps(program.iteration, kernel, library, style)
    return print_kernel(kernel, library, style, [f"// {kernel.name}"])


def can_end(gpu: Gpu, iterations: int) -> bool:
    """Whether the GPU lets an invocation turn its loops so often."""
    return gpu.info.iterations is None or iterations <= gpu.info.iterations


def require_iterations(gpu: Gpu, iterations: int) -> None:
    """Refuse loops that the GPU would end, and give wrong results."""
    if not can_end(gpu, iterations):
        most = gpu.info.iterations
        raise DeviceError(
            f"{gpu.info.name} ends the loops of a kernel after {most:,} iterations, and those of "
            "this one may take more within one of the outermost, or an unknown number: give "
            "max_steps= to a loop whose bounds are computed and to sg.while_loop, or use "
            'device="cpu"'
        )
