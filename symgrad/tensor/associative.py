"""Scans by an associative operation: what their calls run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from symgrad.backend import Backend
from symgrad.errors import InputError
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Launch
from symgrad.pipeline import Options
from symgrad.tensor.accumulated import Accumulated, bindable
from symgrad.tensor.kernel import Runner, Shape, TensorKernel, launched
from symgrad.tensor.recipes import Recipes


@dataclass(frozen=True)
class AssociativeScan:
    """The work of a scan of elements of ``size`` numbers: see `associative_scan`."""

    recipes: Recipes
    axis: int

    @property
    def name(self) -> str:
        """What the kernel is called."""
        return self.recipes.options.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that it takes."""
        return tuple(f"x{n}" for n in range(self.recipes.size))

    @property
    def cotangents(self) -> tuple[str, ...]:
        """The names of the cotangents of its results."""
        return tuple(f"g{n}" for n in range(self.recipes.size))

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the elements: see `symgrad.tensor.kernel.Work`."""
        require_elements(shapes, self.axis)
        return [tuple(shape) for shape in shapes]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """What a call runs: see `symgrad.tensor.kernel.Work`."""
        sizes = require_elements(shapes, self.axis)
        shape, size = tuple(shapes[0]), self.recipes.size
        inputs, outputs = [Array(n, shape) for n in self.arguments], ["y"]
        scans = [Accumulated(self.recipes, self.recipes.forward(), sizes, device_target)]
        if kind == "vjp":
            inputs += [Array(n, shape) for n in self.cotangents]
            outputs.append("d")
            scans.append(
                Accumulated(self.recipes, self.recipes.backward(), sizes, device_target, "back")
            )
        named = tuple(Array(f"{kind}{n}", shape) for kind in outputs for n in range(size))
        bound = list(map(bindable, scans))
        scratch = tuple(a for scan in bound for a in scan.scratch)
        dispatches = tuple(d for scan in bound for d in scan.dispatches)
        return Launch(self.name, tuple(inputs), named, scratch, dispatches)

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """A launch: see `symgrad.tensor.kernel.Work`."""
        return launched(self, kind, shapes, backend, options)


class ScanKernel(TensorKernel):
    """A kernel whose elements may be numbers or tuples: there are as many arrays as these have."""

    def _work_of(self, count: int) -> AssociativeScan:
        work = self._work
        assert isinstance(work, AssociativeScan), "a scan is made of recipes"
        return replace(work, recipes=replace(work.recipes, size=max(count, 1)))


def require_elements(shapes: Sequence[Shape], axis: int) -> tuple[int, int, int]:
    """The rows, the length and the columns of arrays of elements.

    Raises:
        InputError: if they have different shapes, or no such axis.
    """
    first = tuple(shapes[0])
    for n, shape in enumerate(shapes):
        if tuple(shape) != first:
            raise InputError(f"element {n} has shape {tuple(shape)}, and the first one {first}")
    if len(first) < -axis:
        raise InputError(f"arrays of shape {first} have no axis {axis}")
    rows = 1
    for n in first[: len(first) + axis]:
        rows *= n
    return rows, first[axis], first[-1] if axis == -2 else 1
