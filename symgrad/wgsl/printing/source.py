"""Printed kernels: their modules, and what they say of themselves, for their reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import POINTS_PER_WORKGROUP
from symgrad.kernel.shapes import Computation
from symgrad.wgsl.printing.operations import FLOATS, Floats

# Names in emitted source: the user's where WGSL can take them.

_OURS: Final = re.compile(r"^(s\d+|saved_\d+_\d+|part_\d+)$")
_NUMBERED: Final = re.compile(r"^(t\d+|sg_.*|pair_.*|opaque)$")

_DEFINED: Final = """
    x params Params tile scratch main stride point cell first local group rows k
    loss grad values jacobian hessian product
"""
_WORDS: Final = """
    bool f16 f32 i32 u32 vec2 vec3 vec4 mat2x2 mat2x3 mat2x4 mat3x2 mat3x3 mat3x4 mat4x2 mat4x3
    mat4x4 array atomic ptr sampler sampler_comparison vec2f vec3f vec4f vec2i vec3i vec4i vec2u
    vec3u vec4u vec2h vec3h vec4h
    abs acos acosh all any asin asinh atan atan2 atanh bitcast ceil clamp cos cosh countLeadingZeros
    countOneBits cross degrees determinant distance dot exp exp2 extractBits faceForward
    firstLeadingBit firstTrailingBit floor fma fract frexp insertBits inverseSqrt ldexp length log
    log2 max min mix modf normalize pow quantizeToF16 radians reflect refract reverseBits round
    saturate select sign sin sinh smoothstep sqrt step storageBarrier tan tanh transpose trunc
    workgroupBarrier arrayLength workgroupUniformLoad atomicAdd atomicLoad
    read write read_write function private workgroup uniform storage
    alias break case const const_assert continue continuing default diagnostic discard else enable
    false fn for if let loop override requires return struct switch true var while
    NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become
    cast catch class co_await co_return co_yield coherent column_major common compile
    compile_fragment concept const_cast consteval constexpr constinit crate debugger decltype
    delete demote demote_to_helper do dynamic_cast enum explicit export extends extern external
    fallthrough filter final finally friend from fxgroup get goto groupshared highp impl implements
    import inline instanceof interface layout lowp macro macro_rules match mediump meta mod module
    move mut mutable namespace new nil noexcept noinline nointerpolation non_coherent noncoherent
    noperspective null nullptr of operator package packoffset partition pass patch pixelfragment
    precise precision premerge priv protected pub public readonly ref regardless register
    reinterpret_cast require resource restrict self set shared sizeof smooth snorm static
    static_assert static_cast std subroutine super target template this thread_local throw trait
    try type typedef typeid typename typeof union unless unorm unsafe unsized use using varying
    virtual volatile wgsl where with writeonly yield
"""
_RESERVED: Final = frozenset(_WORDS.split())
"""WGSL's types and built-ins, its keywords and reserved words."""
_TAKEN: Final = frozenset(_DEFINED.split())
"""Names that a kernel of straight code defines itself."""


def is_reserved(name: str) -> bool:
    """Whether WGSL has the name, or a function of the library, or a value without a name."""
    return name in _RESERVED or _NUMBERED.match(name) is not None


def is_taken(name: str) -> bool:
    """Whether a name is reserved, or a kernel of straight code may have it itself."""
    return is_reserved(name) or name in _TAKEN or _OURS.match(name) is not None


@lru_cache(maxsize=2**12)
def identifier(name: str, refused: Callable[[str], bool] = is_taken) -> str:
    """The name in ASCII letters, digits and underscores, prefixed where it is refused."""
    plain = re.sub(r"\W|[^\x00-\x7f]", "_", name)
    plain = re.sub(r"_{2,}", "_", plain)
    if refused(plain) or not plain[:1].isalpha():
        return f"v_{plain.lstrip('_')}"
    return plain


@lru_cache(maxsize=1024)
def printable(text: str, limit: int = 72) -> str:
    """One line of plain text: nothing in it can end a comment or turn the reading direction."""
    line = "".join(c if c.isprintable() and ord(c) < 0x2000 else "?" for c in text)
    return line if len(line) <= limit else line[: limit - 3] + "..."


@dataclass(frozen=True)
class Style:
    """The remarks of the source beside the code."""

    math: str = "accurate"
    comments: bool = True
    title: str = ""
    columns_in: bool = False
    """Whether points stand column by column, and not row by row, each of ``params.count``."""
    columns_out: bool = False
    """Whether results stand column by column."""
    dtype: str = "float32"
    """The dtype that the kernel computes in."""

    @property
    def floats(self) -> Floats:
        """How WGSL has its floats."""
        return FLOATS[self.dtype]


@dataclass(frozen=True)
class Printed:
    """The source of a kernel: modules with the entry point "main", to be run in this order.

    Each has the uniform block as binding 0, then the buffers that are read, those that are written,
    and, if there are any ``slots``, scratch memory: so many numbers for each invocation of whole
    workgroups.
    """

    modules: tuple[str, ...]
    bound: tuple[Buffer, ...]
    """The buffers that are bound, in the order of the bindings."""
    slots: int
    iterations: int
    """The most iterations of an invocation in all loops of a module together."""
    width: int = POINTS_PER_WORKGROUP
    """The invocations of a workgroup."""
    shared: int = 0
    """The most bytes that the arrays of a workgroup may have."""

    @property
    def tables(self) -> tuple[tuple[float, ...], ...]:
        """The constants of the buffers that have any."""
        return tuple(b.data for b in self.bound if b.data is not None)


def header(computation: Computation, style: Style, operations: int = 0) -> Iterator[str]:
    """The head of a map: what it computes, of what, in which arrays, in how many operations."""
    n, outputs = len(computation.graph.names), computation.outputs
    columns = ", ".join(f"{o.name} (B, {len(o.nodes)})" for o in outputs)
    order = _order(style.columns_in, style.columns_out)
    moved = style.floats.dtype.itemsize * (n + sum(len(o.nodes) for o in outputs))
    yield f"// {printable(style.title or computation.name)}"
    yield f"// in: x (B, {n}); out: {columns}; {style.dtype}, {order}, one invocation a point"
    counted = f"{operations:,} operations and " * bool(operations)
    yield f"// {counted}{moved:,} bytes a point; math: {style.math}"


def _order(columns_in: bool, columns_out: bool) -> str:
    """How arrays stand in memory."""
    if columns_in == columns_out:
        return "by columns" if columns_in else "C order"
    return f"{'x' if columns_in else 'results'} by columns"
