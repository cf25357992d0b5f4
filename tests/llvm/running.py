"""Compiling and calling a module of LLVM without the library's own dispatch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.map import map_program
from symgrad.llvm.device.cpu import compile_source
from symgrad.llvm.dispatch.compiled import definitions_for
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.printer import print_kernel
from symgrad.llvm.printing.source import Source


def computation(graph: Graph, *outputs: Sequence[int]) -> Computation:
    return Computation("f", graph, tuple(Output(f"o{k}", tuple(o)) for k, o in enumerate(outputs)))


def emitted(made: Computation, shape: Shape, thorough: bool = False) -> Source:
    kernel = map_program(made, SimdTarget(max(shape.lanes, 4)))
    return print_kernel(kernel, definitions_for("accurate", shape.dtype), shape, thorough=thorough)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that starts at a whole line of the cache, full of what no kernel gives."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.full(size + 64, 0xA5, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def run(
    made: Computation, shape: Shape, points: np.ndarray, stream: bool = False
) -> list[np.ndarray]:
    """The results of the whole blocks of a batch, or of every point if the shape has one lane."""
    source = emitted(made, shape)
    code = compile_source(source)
    results = [aligned((len(points), len(o.nodes)), shape.dtype) for o in made.outputs]
    room = aligned((source.workspace + 64,), np.uint8)
    call = ctypes.CFUNCTYPE(None)(code.address)

    def address(array: np.ndarray, row: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data + row * array.strides[0])

    if shape.lanes == 1:
        for r in range(len(points)):
            call(address(points, r), *[address(a, r) for a in results], address(room))
    else:
        count = ctypes.c_int64(len(points))
        arrays = [address(a) for a in (points, *results, room)]
        call(*arrays, ctypes.c_int64(0), count, ctypes.c_bool(stream))
    return results
