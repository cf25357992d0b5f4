"""From a Python function to source code, loss and gradient of the dense chain, beside CasADi.

symgrad: ``sg.fused_forward_backward``, which ends with WGSL. CasADi's SX, on the same function:
build the expression, ``gradient``, make the ``Function``, and generate its C code; bars compare
with all four. Nothing is compiled by either. JAX traces, differentiates and compiles, as it has no
step between; it needs minutes, so it runs only when a limit is given.

    python benchmarks/chain_time.py [--jax SECONDS]
"""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

import workloads
from measure import bar, in_fresh_process, interleaved, once, report

import symgrad as sg

N = 1024


def with_casadi(n: int, code: bool) -> Any:
    """The chain's loss and gradient as a CasADi function, or as its C code."""
    casadi = importlib.import_module("casadi")
    x = casadi.SX.sym("x", n)
    z = workloads.chain(x, casadi)
    f = casadi.Function("chain", [x], [z, casadi.gradient(z, x)])
    if not code:
        return f
    generator = casadi.CodeGenerator("chain.c")
    generator.add(f)
    return generator.dump()


def with_jax(n: int) -> None:
    """The chain's loss and gradient, compiled by JAX."""
    jax = importlib.import_module("jax")
    f = jax.jit(jax.value_and_grad(lambda x: workloads.chain(x, jax.numpy)))
    f.lower(jax.numpy.ones(n)).compile()


def main() -> None:
    """Measure all, in turns; JAX once, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jax", type=float, default=0, help="seconds that JAX may take")
    parser.add_argument("--only-jax", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_jax:
        print(json.dumps(once(lambda: with_jax(N))[1].wall))
        return
    ours = f"symgrad, n = {N}"
    works: dict[str, Any] = {
        ours: lambda: sg.fused_forward_backward(N, workloads.chain, device="cpu").wgsl,
        "symgrad, comments=False": lambda: (
            sg.fused_forward_backward(N, workloads.chain, device="cpu", comments=False).wgsl
        ),
    }
    try:
        with_casadi(8, True)
    except ImportError:
        print("CasADi is not installed")
    else:
        works["CasADi SX, to C code"] = lambda: with_casadi(N, True)
        works["CasADi SX, to a Function"] = lambda: with_casadi(N, False)
    first = once(works[ours])[1]
    found = interleaved(works, 15)
    rows = [{"work": name, "s": s.wall, "CPU s": s.cpu} for name, s in found.items()]
    rows.insert(0, {"work": f"{ours}, first call", "s": first.wall, "CPU s": first.cpu})
    if options.jax:
        took = in_fresh_process(__file__, "--only-jax", limit=options.jax)
        rows.append({"work": f"JAX, compiled (limit {options.jax:.0f} s)", "s": took or "stopped"})
    bars = [bar("seconds from trace to WGSL", found[ours].wall, 0.5)]
    if "CasADi SX, to C code" in found:
        for name in ("CasADi SX, to C code", "CasADi SX, to a Function"):
            bars.append(bar(f"CPU time over {name}", found[ours].cpu / found[name].cpu, 3))
    report("chain_time", rows, bars)


if __name__ == "__main__":
    main()
