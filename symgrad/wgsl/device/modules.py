"""How WGSL becomes a shader module: trusted with its loops, where this wgpu can do so.

wgpu counts the iterations of every loop, so that drivers may not take one for endless, which costs
short loops most of their time and keeps drivers from unrolling them. All loops of symgrad's kernels
count to a bound. Bounds of arrays are checked all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

CHECKED_BOUNDS: Final = 1
"""wgpu's flag for the checks of arrays' bounds, without that for those of loops."""

TRIED: Final = "@compute @workgroup_size(1) fn main() {}"
"""A module that says whether this wgpu has the function."""

MakeModule = Callable[[str], Any]


def choose_modules(device: Any, native: Any) -> MakeModule:
    """Makes modules from WGSL: trusted if this wgpu has that, else by its documented function."""
    try:
        modules = TrustedModules(device, native)
        modules(TRIED)
    except Exception:  # whatever another version of wgpu raises
        return lambda source: device.create_shader_module(code=source)
    return modules


class TrustedModules:
    """Makes modules by the C function that ``native``, wgpu's back end, exports."""

    def __init__(self, device: Any, native: Any) -> None:
        self._device, self._ffi, self._lib = device, native.ffi, native.lib
        self._errors, self._module = native._api.error_handler, native._api.GPUShaderModule

    def __call__(self, source: str) -> Any:
        """The module; a RuntimeError has naga's message if it refuses the source."""
        ffi, text = self._ffi, source.encode()
        held = ffi.new("char[]", text)
        wgsl = ffi.new("WGPUShaderSourceWGSL *")
        wgsl.chain.sType = self._lib.WGPUSType_ShaderSourceWGSL
        wgsl.code.data, wgsl.code.length = held, len(text)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", wgsl)
        self._errors.capture("symgrad")
        try:
            module = self._lib.wgpuDeviceCreateShaderModuleTrusted(
                self._device._internal, descriptor, CHECKED_BOUNDS
            )
        finally:
            error = self._errors.release("symgrad")
        if error is not None:
            raise RuntimeError(error[1])
        return self._module("", module, self._device)
