"""The size of a loss+gradient kernel beside that of its loss, for the dense chain.

Nodes are the distinct inputs, constants and operations of a kernel's graph, after simplification;
operations are nodes that compute. Forward nodes are those of the loss as it was traced.

    python benchmarks/chain_size.py
"""

from __future__ import annotations

import workloads
from measure import bar, report

import symgrad as sg


def main() -> None:
    """Build the kernels and count."""
    rows, bars = [], []
    for n in (64, 256, 1024, 4096):
        kernel = sg.fused_forward_backward(n, workloads.chain, device="cpu")
        loss = sg.fused_forward(n, workloads.chain, device="cpu")
        traced = kernel.expr[0].id + 1  # the gradient's nodes come after the loss
        rows.append(
            {
                "n": n,
                "forward nodes": traced,
                "kernel nodes": kernel.stats.nodes,
                "nodes, ratio": kernel.stats.nodes / traced,
                "forward operations": loss.stats.operations,
                "kernel operations": kernel.stats.operations,
                "operations, ratio": kernel.stats.operations / loss.stats.operations,
                "shaders": kernel.stats.shaders,
                "WGSL bytes an operation": len(kernel.wgsl) / kernel.stats.operations,
            }
        )
        ratio = max(rows[-1]["nodes, ratio"], rows[-1]["operations, ratio"])
        bars.append(bar(f"kernel over forward nodes or operations, n = {n}", ratio, 4))
    report("chain_size", rows, bars)


if __name__ == "__main__":
    main()
