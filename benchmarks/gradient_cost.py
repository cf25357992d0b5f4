"""Operations of loss and gradient over those of the loss alone.

Operations are those of the emitted kernels, each once, whatever they cost; ``flops`` weighs them
(a division 4, an exponential 10, ...). CasADi's are the instructions of its SX functions that
compute, without its inputs, outputs and constants.

    python benchmarks/gradient_cost.py
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import workloads
from measure import bar, report

import symgrad as sg

WORK: dict[str, tuple[int, Callable[..., Any]]] = {
    "Rosenbrock-100": (100, workloads.rosenbrock),
    "4 Gaussians, 1 row": (12, workloads.gaussians(1)),
    "4 Gaussians, 100 rows": (12, workloads.gaussians(100)),
    "reprojection error": (12, workloads.reprojection),
    "2-16-16-1 network": (337, workloads.network),
}


def with_casadi(n: int, f: Callable[..., Any]) -> tuple[int, int] | None:
    """Operations of the loss, and of loss and gradient; None without CasADi."""
    try:
        casadi = importlib.import_module("casadi")
    except ImportError:
        return None
    x = casadi.SX.sym("x", n)
    loss = f(x, casadi)
    idle = {casadi.OP_INPUT, casadi.OP_OUTPUT, casadi.OP_CONST}

    def count(*outputs: Any) -> int:
        made = casadi.Function("f", [x], list(outputs), {"cse": True})
        return sum(made.instruction_id(k) not in idle for k in range(made.n_instructions()))

    return count(loss), count(loss, casadi.gradient(loss, x))


def main() -> None:
    """Build the kernels and count."""
    rows, bars = [], []
    for name, (n, f) in WORK.items():
        both = sg.fused_forward_backward(n, f, device="cpu", name="loss").stats
        alone = sg.fused_forward(n, f, device="cpu", name="loss").stats
        casadi = with_casadi(n, f)
        rows.append(
            {
                "work": name,
                "loss": alone.operations,
                "loss+gradient": both.operations,
                "ratio": both.operations / alone.operations,
                "flops, loss": alone.flops,
                "flops, loss+gradient": both.flops,
                "flops, ratio": both.flops / alone.flops,
                "CasADi, loss": casadi and casadi[0],
                "CasADi, loss+gradient": casadi and casadi[1],
                "CasADi, ratio": casadi and casadi[1] / casadi[0],
            }
        )
        bars.append(bar(f"operations, loss+gradient over loss, {name}", rows[-1]["ratio"], 3))
    report("gradient_cost", rows, bars)


if __name__ == "__main__":
    main()
