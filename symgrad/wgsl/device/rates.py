"""How fast GPUs compute in float64 beside float32, by their names, where makers have said so.

NVIDIA's numbers are results in a clock cycle (CUDA C++ Programming Guide, throughput of arithmetic
instructions, by compute capability), AMD's the peaks of its data sheets.
"""

from __future__ import annotations

import re
from typing import Final

NVIDIA: Final = r"\b(NVIDIA|GeForce|Quadro|Tesla)\b.*\b"

FLOAT64_RATES: Final = {
    NVIDIA + r"(P100|V100S?|GV100|TITAN V|A100|A30|H100|H200|GH200|B200|GB200)\b": 1 / 2,
    r"\bQuadro RTX \d000\b": 1 / 32,
    NVIDIA + r"(GTX (9|10|16)\d\d|RTX 20\d\d|TITAN RTX|P4|P40|T4|T4G)\b": 1 / 32,
    NVIDIA + r"(RTX [345]0\d\d|A2|A10|A10G|A16|A40|L4|L40|L40S|RTX A\d000)\b": 1 / 64,
    r"AMD .*\bMI(210|250X?)\b": 1.0,
    r"AMD .*\bMI(50|60|100|300X)\b": 1 / 2,
    r"AMD .*\bRX [56]\d00\b": 1 / 16,
    r"AMD .*\bRX 7\d00\b": 1 / 32,
}
"""Arithmetic of float64 for each of float32, by patterns of adapters' names."""


def float64_rate(name: str) -> float | None:
    """The float64 rate of a GPU of a name; None where it is not known."""
    return next((rate for known, rate in FLOAT64_RATES.items() if re.search(known, name)), None)
