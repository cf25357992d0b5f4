"""What all kernels have in common: how they say what they are, show themselves, and travel."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from symgrad.pipeline import Options
from symgrad.report.profiling import Size
from symgrad.report.screen import html
from symgrad.targets import Device


class KernelBase:
    """A kernel that a user runs: its name, its dtype, its source, its size, its device.

    It pickles without what belongs to its process, the attributes that ``_process`` names, which
    `_begin` makes where it arrives.
    """

    device: Device
    """Where it runs."""
    _options: Options
    _process: ClassVar[tuple[str, ...]] = ()

    def _begin(self) -> None:
        """Make what belongs to this process."""

    @property
    def name(self) -> str:
        """The name it was given, or that of the traced function."""
        return self._options.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that it computes in, and gives."""
        return np.dtype(self._options.dtype)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules in the order in which they run, each with the entry point ``main``."""
        raise NotImplementedError

    @property
    def wgsl(self) -> str:
        """The source as a GPU gets it, all modules; the CPU runs the same, compiled by LLVM."""
        return "\n".join(self.modules)

    @property
    def stats(self) -> Size:
        """The size of what is computed, and how long making it took."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html(repr(self), str(self.stats), self.wgsl)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in self._process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()
