"""Points of kernels over rows, put together on a GPU: parameters, columns, and entries of tables.

So rows that stay there are not copied again, and those that do not go up as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.kernel.layout import WORKGROUPS_PER_ROW
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.arrays.stored import FLOAT
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.memory.copying import converted
from symgrad.wgsl.memory.encoding import Step
from symgrad.wgsl.memory.pool import in_pieces

JOIN_INVOCATIONS: Final = 256

POINTS_BYTES: Final = 1 << 26
"""Memory for points that are put together: of more rows there are some at a time."""

ROWS_ALIGNED: Final = 64
"""Rows that are put together are whole multiples of these, so that bindings may start there."""

WRITABLE: Final = 3
"""Bindings after the numbers of rows: the points, the parameters and the indices."""

WORD_TYPE: Final = np.dtype(np.uint32)


@dataclass(frozen=True)
class Entry:
    """An entry of a table that a row's index names.

    The index stands in ``column`` of all indices, the table begins at ``start`` of the parameters.
    """

    column: int
    start: int
    width: int


@dataclass(frozen=True)
class Pattern:
    """What a point consists of: the first of the parameters, the columns of a row, and entries."""

    uniform: int
    columns: int
    indices: int
    entries: tuple[Entry, ...]

    @property
    def width(self) -> int:
        """The numbers of a point."""
        return self.uniform + self.columns + sum(entry.width for entry in self.entries)


@functools.cache
def emit_joined(pattern: Pattern) -> str:
    """The WGSL that puts points together, an invocation for each of their numbers."""
    end = pattern.uniform + pattern.columns
    choices = [
        f"if (j < {pattern.uniform}u) {{ found = parameters[j]; }}",
        f"if (j < {end}u) {{ found = "
        f"numbers[row * {pattern.columns}u + (j - {pattern.uniform}u)]; }}",
    ]
    for entry in pattern.entries:
        first, end = end, end + entry.width
        index = f"indices[row * {pattern.indices}u + {entry.column}u]"
        place = f"{entry.start}u + {index} * {entry.width}u + (j - {first}u)"
        choices.append(f"if (j < {end}u) {{ found = parameters[{place}]; }}")
    chosen = "\n  else ".join(choices)
    return f"""\
// points of rows: parameters, columns, and entries that indices name, side by side
struct Params {{ count: u32, zero: u32, infinity: f32, nan: f32 }}

@group(0) @binding(0) var<uniform> params: Params;  // count: the points
@group(0) @binding(1) var<storage, read> numbers: array<u32>;
@group(0) @binding(2) var<storage, read_write> points: array<u32>;
@group(0) @binding(3) var<storage, read_write> parameters: array<u32>;
@group(0) @binding(4) var<storage, read_write> indices: array<u32>;

@compute @workgroup_size({JOIN_INVOCATIONS})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
  let k = id.y * {WORKGROUPS_PER_ROW * JOIN_INVOCATIONS}u + id.x;
  if (k >= params.count * {pattern.width}u) {{ return; }}
  let row = k / {pattern.width}u;
  let j = k % {pattern.width}u;
  var found = 0u;
  {chosen}
  points[k] = found;
}}
"""


class Rows:
    """Rows on a GPU, of which a kernel computes something at each. Any number of threads may.

    Args:
        gpu: where they go.
        pattern: what a point consists of.
        numbers: (N, columns), which are rounded to float32, or are there already.
        indices: (N, indices), whole numbers of 32 bits that are not negative.
    """

    def __init__(
        self, gpu: Gpu, pattern: Pattern, numbers: np.ndarray | DeviceArray, indices: np.ndarray
    ) -> None:
        self.gpu, self.pattern = gpu, pattern
        on_device = isinstance(numbers, DeviceArray) and numbers.size
        some = numbers if on_device else _some(np.asarray(numbers))
        self._numbers = some if isinstance(some, DeviceArray) else DeviceArray.from_numpy(gpu, some)
        words = converted(_some(indices), WORD_TYPE)
        self._indices = DeviceArray.from_numpy(gpu, words.view(FLOAT))

    def compute(
        self, launched: Launched, parameters: np.ndarray, results: Sequence[Any], first: int
    ) -> None:
        """Fill results (count, k), here or there, of as many rows from ``first`` on.

        ``first`` is a multiple of 64.

        ``parameters`` are those of every point, and then all that entries are taken from.
        """
        count, gpu = len(results[0]), self.gpu
        gpu.check()
        sent = DeviceArray.from_numpy(gpu, _some(parameters))
        step = max(POINTS_BYTES // (4 * self.pattern.width) // ROWS_ALIGNED, 1) * ROWS_ALIGNED
        with gpu.guard, gpu.transfers.download() as down:

            def run(start: int, end: int) -> None:
                points = self._points(sent, first + start, end - start)
                if isinstance(results[0], DeviceArray):
                    launched.bind([points], [result[start:end] for result in results])()
                    return
                pairs = zip(launched.run(points), results, strict=True)
                down.get(*(array.into(result[start:end]) for array, result in pairs))

            in_pieces(count, step, ROWS_ALIGNED, run)

    def _points(self, parameters: DeviceArray, start: int, count: int) -> DeviceArray:
        """The points (count, width) of some rows."""
        gpu, width = self.gpu, self.pattern.width
        points = DeviceArray.empty(gpu, (count, width))
        numbers = self._rows(self._numbers, self.pattern.columns, start, count)
        indices = self._rows(self._indices, self.pattern.indices, start, count)
        arrays = [numbers, points.rows(0, count), parameters.rows(0, len(parameters)), indices]
        groups = -(-count * width // JOIN_INVOCATIONS)
        step = Step(
            gpu.pipeline(emit_joined(self.pattern), WRITABLE),
            gpu.bind(count, arrays),
            min(groups, WORKGROUPS_PER_ROW),
            -(-groups // WORKGROUPS_PER_ROW),
        )
        gpu.submit_unwaited([step])
        return points

    def _rows(self, array: DeviceArray, columns: int, start: int, count: int) -> Any:
        """Where some rows stand; something to bind if there are no columns."""
        return array.rows(start, count) if columns else array.rows(0, len(array))


def _some(array: np.ndarray) -> np.ndarray:
    """The array, or another that is there, for one without elements cannot be bound."""
    return array if array.size else np.zeros(1, array.dtype)
