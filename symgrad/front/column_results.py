"""Results that are single numbers, on a GPU: a kernel stores each of them as an array of its own.

Stored point by point, every one of them would have to be gathered from all: that takes several
times as long as most kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.layout import whole_workgroups
from symgrad.kernel.skeletons.map import map_launch
from symgrad.kernel.target import WorkgroupTarget
from symgrad.report.source import Shaders
from symgrad.targets import Device
from symgrad.values.results import Nested, Result
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import open_gpu
from symgrad.wgsl.dispatch.launch import Launched


@dataclass(frozen=True)
class ColumnResults:
    """A map that stores its results by columns, and how these are nested."""

    launched: Launched
    tree: Tree

    def run(self, points: DeviceArray, batch: tuple[int, ...]) -> Any:
        """The results of points (B, n), each an array of the batch's shape; None if they are many.

        Columns begin where arrays may be bound. Between two of them are the results of points that
        there are not.
        """
        count = len(points)
        length, launched = whole_workgroups(count), self.launched
        if not 0 < length <= launched.chunk or points.gpu is not launched.gpu:
            return None
        width = launched.launch.outputs[0].size
        columns = DeviceArray.empty(launched.gpu, (width, length))
        launched.submit(length, [points.rows(0, count), columns.rows(0, width)])
        return self.tree.nest(columns[k, :count].reshape(batch) for k in range(width))


def column_results(
    shaders: Shaders, results: Sequence[Result], device: Device
) -> ColumnResults | None:
    """What stores the results of a kernel so, if they are nested numbers, and its code is short."""
    nested = results[0] if len(results) == 1 else None
    if not isinstance(nested, Nested) or len(nested.shapes) < 2 or any(nested.shapes):
        return None
    computation = shaders.computation
    if computation.is_structured or shaders.count > 1:
        return None
    launch = map_launch(computation, WorkgroupTarget(computation.workgroup), columns_out=True)
    style = replace(shaders.style, columns_out=True)
    return ColumnResults(Launched(open_gpu(device.index), launch, style), nested.tree)
