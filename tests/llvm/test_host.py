"""The CPU that code is compiled for: this machine's own, or what SYMGRAD_CPU names."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.llvm import compiler
from symgrad.llvm.device import cpu as device
from symgrad.llvm.device import recompile
from symgrad.llvm.device.cpu import Host, host, this_machine
from symgrad.llvm.printing.operations import Shape
from symgrad.llvm.printing.source import Source

from .running import computation, emitted, run

X86 = compiler.llvm().get_process_triple().startswith(("x86_64", "amd64"))
x86 = pytest.mark.skipif(not X86, reason="names CPUs of x86-64")
FOREIGN = "neoverse-n1" if X86 else "haswell"

LEVELS = [
    ("x86-64", 128, False),
    ("x86-64-v2", 128, False),
    ("x86-64-v3", 256, True),
    ("x86-64-v4", 512, True),
]


@pytest.fixture
def taken_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Host]]:
    """This machine, taken for a CPU by kernels that are compiled from now on."""

    def taken(name: str) -> Host:
        monkeypatch.setenv("SYMGRAD_CPU", name)
        this_machine.cache_clear()
        return host()

    yield taken
    this_machine.cache_clear()


def machine(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Have this machine's own CPU be of a level."""
    llvm, triple = compiler.llvm(), compiler.llvm().get_process_triple()
    every = llvm.get_host_cpu_features()
    has = compiler.features_of(level, "", list(every), triple)
    every.update({f: f in has for f in every})
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: level)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: every)


@x86
@pytest.mark.parametrize(("name", "bits", "fused"), LEVELS)
def test_levels(name: str, bits: int, fused: bool, taken_for: Any) -> None:
    cpu = taken_for(name)
    assert (cpu.name, cpu.vector_bits, cpu.fused) == (name, bits, fused)
    assert cpu.shape("float32", True) == Shape("float32", bits // 32, fused, bits == 512)
    assert sg.devices()[-1].name.startswith(name)


@x86
@pytest.mark.parametrize(
    ("name", "bits", "fused"), [("sandybridge", 256, False), ("znver3", 256, True)]
)
def test_cpus_as_llvm_calls_them(name: str, bits: int, fused: bool, taken_for: Any) -> None:
    """What else they have than vectors, a virtual machine may hide."""
    cpu = taken_for(name)
    assert (cpu.name, cpu.vector_bits, cpu.fused) == (name, bits, fused)
    own = this_machine.__wrapped__()
    assert not {"avx", "avx2"} & set(cpu.lacking) or "avx" not in own.features


@pytest.mark.parametrize("name", ["i686", "znver33", "haswell\n", 'x" "y', "help", "x86_64-v3"])
def test_what_is_no_cpu_is_refused(name: str, taken_for: Any) -> None:
    with pytest.raises(sg.DeviceError, match="LLVM knows no such CPU; name a level") as error:
        taken_for(name)
    assert f"SYMGRAD_CPU={name!r}" in str(error.value)
    assert all(level in str(error.value) for level, _, _ in LEVELS)


@x86
@pytest.mark.parametrize(("have", "named"), [("x86-64-v3", "x86-64-v4"), ("x86-64", "x86-64-v3")])
def test_what_this_machine_cannot_run_is_not_run(
    have: str, named: str, taken_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, have)
    kernel = sg.fused_forward(1, lambda v: v[0] * 3.03125, device="cpu")
    missing = "avx512f" if named == "x86-64-v4" else "avx, avx2"
    taken_for(named)
    with pytest.raises(sg.DeviceError, match=rf"SYMGRAD_CPU={named}: .*{missing}.*needs less"):
        kernel.run([1.0])
    assert taken_for(have).lacking == ()


def test_a_cpu_of_another_architecture_is_not_run(taken_for: Any) -> None:
    kernel = sg.fused_forward(1, lambda v: v[0] * 3.0625, device="cpu")
    assert taken_for(FOREIGN).name == FOREIGN
    with pytest.raises(sg.DeviceError, match=rf"SYMGRAD_CPU={FOREIGN}: .* lacks .*instructions"):
        kernel.run([1.0])


@x86
def test_levels_have_vectors_and_code_of_their_own(taken_for: Any) -> None:
    """Registers as wide as its vectors, and the bits of all that fuse products and sums, or not."""
    graph = Graph()
    a, b, c = (Expr(graph, graph.input(n)) for n in "abc")
    made, keys = computation(graph, [(a * b + c).id]), set[str]()
    points = np.random.default_rng(0).uniform(0.1, 0.9, (64, 3)).astype(np.float32)
    results: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for name, bits, fused in LEVELS:
        cpu = taken_for(name)
        if cpu.lacking:
            continue
        shape = cpu.shape("float32", True)
        results[fused].append(run(made, shape, points)[0])
        source = emitted(made, shape)
        code = compiler.target_machine(cpu.name, cpu.features).emit_assembly(
            compiler.llvm().parse_assembly(source.text)
        )
        widest = next(w for w in ("zmm", "ymm", "xmm") if w in code)
        assert widest == {512: "zmm", 256: "ymm", 128: "xmm"}[bits], name
        assert ("vfmadd" in code) == fused, name
        keys.add(device.key_of(Source("", "", 0, 0)))
    assert len(keys) == sum(map(len, results.values())), "each has files of its own"
    for found in (*results[True], *results[False]):
        np.testing.assert_allclose(found, results[False][0], rtol=1e-6)
    for same in results.values():
        assert all(np.array_equal(a, same[0]) for a in same)


# NEON, by its text --------------------------------------------------------------------------------


def batch(sine: Any = sg.sin) -> None:
    kernel = sg.fused_forward_backward(2, lambda v: sine(v[0]) * v[1] * 1.0625, device="cpu")
    kernel.run(np.ones((100, 2), np.float32))


def sums() -> None:
    def loss(p: Any, r: Any) -> Any:
        hidden = np.tanh(p[:30] * r[0] + p[30:60] * r[1] * 1.0625)
        return np.sum(hidden) ** 2

    rows = np.ones((100, 2), np.float32)
    sg.fused_forward_backward(60, loss, row=2, device="cpu").run(np.ones(60), rows)


def loops() -> None:
    def iterations(v: Any) -> Any:
        return sg.while_loop(lambda c: c[0] < 1e3, lambda c: (c[0] * v[0] * 1.0625,), (v[1],))[0]

    sg.fused_forward(2, iterations, device="cpu").run(np.full((100, 2), 2.0, np.float32))


def tables() -> None:
    def looked_up(p: Any, r: Any) -> Any:
        return (p[r.k] * 1.0625 - r.y) ** 2

    kernel = sg.fused_forward_backward(8, looked_up, columns=["k", "y"], device="cpu")
    kernel.run(np.ones(8), {"k": np.arange(64) % 8, "y": np.ones(64)})


def fits() -> None:
    x = np.linspace(0.0, 1.0, 20)
    sg.fit_many(lambda x, a, b: a * np.exp(-1.0625 * b * x), x, np.ones((50, 20)), [1.0, 1.0],
                device="cpu", dtype="float32")  # fmt: skip


class Read(Exception):
    """The code has been read, and is not run."""


@pytest.mark.parametrize("use", [batch, sums, loops, tables, fits])
def test_code_for_neon(use: Callable[[], None], taken_for: Any, monkeypatch: Any) -> None:
    """LLVM takes it for a CPU of ARM, with no vector wider than its own, and compiles it."""
    monkeypatch.setattr(device, "_architecture", lambda triple: triple.partition("-")[0])
    neon = taken_for("neoverse-n1")
    assert (neon.vector_bits, neon.fused) == (128, True)

    def compiled(source: Source) -> None:
        widths = re.findall(r"<(\d+) x (float|double)>", source.text)
        assert any(int(n) * (4 if t == "float" else 8) == 16 for n, t in widths)
        assert "llvm.x86" not in source.text
        code = compiler.compiled(source.text, source.effort, neon.name, neon.features, neon.triple)
        magic, machine = struct.unpack_from("4s14xH", code)
        assert (magic, machine) == (b"\x7fELF", 183), "an object file for AArch64"
        llvm = compiler.llvm()
        target = compiler.target_machine(neon.name, neon.features, 0, neon.triple)
        assembly = target.emit_assembly(llvm.parse_assembly(source.text))
        assert re.search(r"\bf(mla|mul|add)\tv\d+\.(4s|2d)", assembly)
        raise Read

    monkeypatch.setattr(recompile, "compile_source", compiled)
    with pytest.raises(Read):
        use()
