"""What Tint refuses and naga takes: the reason to ask both front ends about every kernel."""

from __future__ import annotations

import pytest
from tint import check_with_tint, needs_tint

pytestmark = needs_tint


def shader(body: str, declarations: str = "") -> str:
    """A map kernel with bindings as symgrad's own have them."""
    return f"""
@group(0) @binding(0) var<uniform> params: vec4<u32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
{declarations}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
  {body}
}}
"""


def total(terms: int) -> str:
    return f"y[id.x] = {' + '.join(['x[id.x]'] * terms)};"


def nested(levels: int) -> str:
    return f"y[id.x] = {'(' * levels}x[id.x]{')' * levels};"


def tile(length: int) -> str:
    body = "tile[id.x % 64u] = x[id.x]; workgroupBarrier(); y[id.x] = tile[0];"
    return shader(body, f"var<workgroup> tile: array<f32, {length}>;")


TAKEN = {
    "a map": shader("y[id.x] = 2.0 * x[id.x];"),
    "unused bindings": shader(""),
    "a bound from a uniform": shader(
        "for (var i = 0u; i < params.x; i++) { y[id.x] += x[i]; workgroupBarrier(); }"
    ),
    "500 terms": shader(total(500)),
    "100 levels": shader(nested(100)),
    "16,384 bytes of workgroup memory": tile(4096),
    "not ASCII": shader("y[id.x] = 1.0; // ∂ \U0001d6fc"),
    "a megabyte": shader("\n".join(f"let a{i} = x[{i}u]; y[{i}u] = a{i};" for i in range(20_000))),
}

REFUSED = {
    "a barrier after an early return": (
        shader("if id.x >= params.x { return; } workgroupBarrier();"),
        "uniform control flow",
    ),
    "a barrier behind a bound from a read_write buffer": (
        shader("for (var i = 0.0; i < y[0]; i += 1.0) { workgroupBarrier(); }"),
        "uniform control flow",
    ),
    "a reserved word": (shader("let auto = 1.0;"), "reserved keyword"),
    "600 terms": (shader(total(600)), "max expression depth"),
    "130 levels": (shader(nested(130)), "recursive depth"),
    "20,000 bytes of workgroup memory": (tile(5000), "workgroup storage (20000 bytes)"),
    "512 invocations": (shader("").replace("(64)", "(512)"), "workgroup_size(512, 1, 1)"),
    "9 storage buffers": (
        shader(
            "",
            "\n".join(
                f"@group(0) @binding({k}) var<storage, read> b{k}: array<f32>;"
                for k in range(3, 10)
            ),
        ),
        "storage buffers (9)",
    ),
    "&& and || without parentheses": (
        shader("let a = x[0] > 0.0; let b = a && a || a;"),
        "requires parenthesis",
    ),
    "division by a constant 0": (shader("let a = 1.0 / 0.0;"), "cannot be represented"),
    "a constant that overflows": (shader("let a = exp(100.0);"), "cannot be represented"),
    "an extension that is no default": ("enable subgroups;" + shader(""), "not allowed"),
    "a comment with a line separator": (shader("// x \u2028 y"), "10:"),
    "no entry point": (shader("").replace("main", "other"), "doesn't exist"),
    "no WGSL": ("", "doesn't exist"),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str | None]:
    """All cases through one node process, as symgrad's kernels go."""
    sources = TAKEN | {name: source for name, (source, _) in REFUSED.items()}
    return dict(zip(sources, check_with_tint(list(sources.values())), strict=True))


@pytest.mark.parametrize("name", TAKEN)
def test_tint_takes(name: str, verdicts: dict[str, str | None]) -> None:
    assert verdicts[name] is None


@pytest.mark.parametrize("name", REFUSED)
def test_tint_refuses(name: str, verdicts: dict[str, str | None]) -> None:
    verdict = verdicts[name]
    assert verdict is not None
    assert REFUSED[name][1] in verdict


def test_no_sources_no_verdicts() -> None:
    assert check_with_tint([]) == []


def test_a_node_that_fails_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMGRAD_TINT", "/nowhere")
    with pytest.raises(AssertionError, match="no npm package webgpu"):
        check_with_tint([TAKEN["a map"]])
