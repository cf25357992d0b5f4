"""The loops of a workgroup over its matrix, as WGSL: products of rows, and linear systems.

In workgroup memory are ``tile``, vec4s, of which rows of derivatives and residuals take
`LENGTH` for each four numbers; ``work``, the sums and later the factor; and ``matrix``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from symgrad.expr.node import CONST, float_bits
from symgrad.kernel.plan import Matrix
from symgrad.wgsl.expression import literal

LANES: Final = 32, 64
"""Invocations of a workgroup: the fewest that have a block of products each."""

ROWS: Final = 64
"""Rows that are worked on at a time."""

LENGTH: Final = ROWS + 1
"""The tile's numbers for each four of its rows: with the odd one, reads do not meet in a bank."""

SIDE: Final = 4
"""Rows and columns of the products that an invocation adds up: a vec4, four times."""

BLOCK: Final = 16
"""Rows whose products are added up before their sum is added to others."""

UNROLLED: Final = 4
"""Rows of a block that stand there without a loop."""

MEMORY: Final = 16_384
"""Bytes of memory that a workgroup has on every device."""

ACROSS: Final = 8
"""Invocations that work on a row of the factor: others work on the next ones."""


def fits(n: int) -> bool:
    """Whether a workgroup can work on a matrix of so many variables."""
    return _bytes(n) <= MEMORY and blocks(n) <= LANES[-1]


def turns(matrix: Matrix, rows: int) -> int:
    """The turns of all loops that an invocation makes in a step; each residual is a row."""
    n, tiles, width = matrix.n, -(-rows // ROWS), lanes(matrix.n)
    tile = 1 + ROWS // width + ROWS // BLOCK // teams(n) * (1 + BLOCK // UNROLLED)
    down, across = ([-(-(n + 1 - j) // k) for j in range(n + 1)] for k in (width // ACROSS, ACROSS))
    inner = sum(1 + a * (1 + b) for a, b in zip(down, across, strict=True))
    system = down[0] * (1 + across[0]) + inner + n
    solves = sum(call.kind == "solve" for call in matrix.calls)
    others = len(matrix.calls) - solves
    return 8 + n + tiles * tile + solves * system + others * (n + matrix.size // width + 1)


def quads(n: int) -> int:
    """The vec4 of a row of derivatives and the residual."""
    return -(-(n + 1) // SIDE)


def blocks(n: int) -> int:
    """The blocks of products, of the lower half of the matrix with the right side below."""
    return quads(n) * (quads(n) + 1) // 2


def lanes(n: int) -> int:
    """The invocations of a workgroup."""
    return LANES[blocks(n) > LANES[0]]


def teams(n: int) -> int:
    """Invocations that share the rows of a block of products: a power of 2."""
    return max(k for k in (1, 2, 4) if k * blocks(n) <= lanes(n))


def _bytes(n: int) -> int:
    size = n * (n + 1) // 2
    return 16 * quads(n) * LENGTH + 4 * (size + size + n + 1) + 8


def functions_for(matrix: Matrix) -> Iterator[str]:
    """The functions that the loops call."""
    yield from _lines(f"""
        fn held(x: vec4<f32>) -> vec4<f32> {{  // rounded where it stands
          return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(params.zero));
        }}

        // the place of a number of the lower half
        fn place(i: u32, j: u32) -> u32 {{ return i * (i + 1u) / 2u + j; }}

        fn add(i: u32, j: u32, value: f32, team: u32) {{
          if (i > {matrix.n}u || j > i) {{ return; }}
          let at = place(i, j);
          let sum = {_times("value", matrix.weight)};
          if (team == 0u) {{ work[at] = sum; }} else {{ work[at] += sum; }}
        }}

        // one over the j-th number of D, which is not below its floor
        fn inverse(j: u32) -> f32 {{
          let pivot = work[place(j, j)];
          return 1.0f / select(pivot, tile[j].z, pivot < tile[j].z);
        }}
    """)
    yield ""


def add_products(n: int) -> Iterator[str]:
    """Add the products of the tile's rows, or of the team's among them, to the invocation's."""
    yield from _lines(f"""
        let left = down * {LENGTH}u;
        let right = across * {LENGTH}u;
        let end = min({ROWS}u, rows - start);
        {_each("var tile_sum{k} = vec4<f32>();")}
        for (var first = {BLOCK}u * team; first < end; first += {BLOCK * teams(n)}u) {{
          let last = min(first + {BLOCK}u, end);
          {_each("var block_sum{k} = vec4<f32>();")}
          for (var row = first; row < last; row += {UNROLLED}u) {{
    """)
    for r in range(UNROLLED):
        row = f"row + {r}u" if r else "row"
        yield f"    let a{r} = tile[left + {row}]; let b{r} = tile[right + {row}];"
        yield "    " + " ".join(f"block_sum{k} += a{r}.{'xyzw'[k]} * b{r};" for k in range(SIDE))
    yield from _lines(f"""
          }}
          {_each("tile_sum{k} += block_sum{k};")}
        }}
    """)
    for k in range(SIDE):
        yield f"let sum{k} = held(high{k} + tile_sum{k});"
        yield f"let part{k} = held(sum{k} - high{k});"
        yield f"low{k} += (high{k} - held(sum{k} - part{k})) + (tile_sum{k} - part{k});"
        yield f"high{k} = sum{k};"


def both(k: int) -> str:
    """The k-th sums: what was lost is no number where the sum is infinite."""
    exponent = "vec4<u32>(0x7f800000u)"
    lost = f"(bitcast<vec4<u32>>(low{k}) & {exponent}) == {exponent}"
    return f"select(high{k} + low{k}, high{k}, {lost})"


def multiply(n: int) -> Iterator[str]:
    """The tile's first numbers become those of the matrix times them."""
    yield from _lines(f"""
        {{
          var sum = 0.0f;
          if (local < {n}u) {{
            for (var k = 0u; k < {n}u; k += 1u) {{
              sum += matrix[place(max(local, k), min(local, k))] * tile[k].x;
            }}
          }}
          workgroupBarrier();
          if (local < {n}u) {{ tile[local] = vec4<f32>(sum); }}
        }}
    """)


def solve(n: int) -> Iterator[str]:
    """The tile's first numbers, of (right, diagonal, floor, held), become those of the solution."""
    rows = lanes(n) // ACROSS
    yield from _lines(f"""
        {{
          let down_from = local / {ACROSS}u;
          let across_from = local % {ACROSS}u;
          for (var i = down_from; i <= {n}u; i += {rows}u) {{
            for (var j = across_from; j < min(i + 1u, {n}u); j += {ACROSS}u) {{
              var value = tile[j].x;
              if (i == j) {{
                value = tile[j].y;
              }} else if (i < {n}u) {{
                let free = tile[i].w == 0.0f && tile[j].w == 0.0f;
                value = select(0.0f, matrix[place(i, j)], free);
              }}
              work[place(i, j)] = value;
            }}
          }}
          workgroupBarrier();
          for (var j = 0u; j < {n}u; j += 1u) {{
            let scale = inverse(j);
            for (var i = j + 1u + down_from; i <= {n}u; i += {rows}u) {{
              let factor = work[place(i, j)] * scale;
              for (var k = j + 1u + across_from; k < min(i + 1u, {n}u); k += {ACROSS}u) {{
                work[place(i, k)] -= factor * work[place(k, j)];
              }}
            }}
            workgroupBarrier();
          }}
          for (var j = {n - 1}u; j > 0u; j -= 1u) {{
            let x = work[place({n}u, j)] * inverse(j);
            if (local < j) {{ work[place({n}u, local)] -= work[place(j, local)] * x; }}
            workgroupBarrier();
          }}
          if (local < {n}u) {{
            tile[local] = vec4<f32>(work[place({n}u, local)] * inverse(local));
          }}
        }}
    """)


def _each(text: str) -> str:
    return " ".join(text.format(k=k) for k in range(SIDE))


def _lines(text: str) -> Iterator[str]:
    """The lines of a text in Python's indentation, moved to the left."""
    return iter(textwrap.dedent(text).strip("\n").rstrip().split("\n"))


def _times(value: str, weight: float) -> str:
    return value if weight == 1.0 else f"{value} * {literal((CONST, float_bits(weight)))[0]}"
