"""Measuring: repeat, take the minimum, let peers take turns, say where it ran, keep the data."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(os.environ.get("BENCHMARK_RESULTS") or Path(__file__).parent / "results")
"""Where results go: benchmarks/results, or the folder BENCHMARK_RESULTS."""

PACKAGES = "symgrad", "numpy", "wgpu", "sympy", "casadi", "jax", "torch", "drjit", "cupy-cuda13x"


@dataclass(frozen=True)
class Seconds:
    """How long something took: on the wall, and of all cores of this process together."""

    wall: float
    cpu: float


def once(work: Callable[[], Any]) -> tuple[Any, Seconds]:
    """What ``work`` returns, and how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def repeated(work: Callable[[], Any], count: int) -> Seconds:
    """How long calls in a row take, whose results nobody keeps."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        work()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(
    works: Mapping[str, Callable[[], Any]], repeat: int, calls: Mapping[str, int] | None = None
) -> dict[str, Seconds]:
    """The least time of a call of each work, of ``repeat`` rounds in which they take turns.

    ``calls`` says how often one measurement calls a work; once, if it says nothing.
    """
    found: dict[str, list[Seconds]] = {name: [] for name in works}
    for _ in range(repeat):
        for name, work in works.items():
            count = (calls or {}).get(name, 1)
            took = repeated(work, count)
            found[name].append(Seconds(took.wall / count, took.cpu / count))
    return {
        name: Seconds(min(s.wall for s in all_), min(s.cpu for s in all_))
        for name, all_ in found.items()
    }


def in_fresh_process(script: str, *args: str, limit: float = 600) -> Any:
    """What ``script args`` prints as its last line, read as JSON; None if it runs for too long."""
    try:
        done = subprocess.run(
            [sys.executable, script, *args], stdout=subprocess.PIPE, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.decode().strip().splitlines()[-1])


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: v for name in PACKAGES if (v := version(name))},
    }  # fmt: skip


def version(package: str) -> str | None:
    """The installed version of a package, None if there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def bar(what: str, measured: float, limit: float, at_least: bool = False) -> dict[str, Any]:
    """One requirement, what was measured, and whether that meets it."""
    met = measured >= limit if at_least else measured <= limit
    return {"bar": what, "limit": limit, "measured": round(measured, 4), "met": bool(met)}


def report(
    name: str, rows: Sequence[Mapping[str, Any]], bars: Sequence[Mapping[str, Any]],
    keep: bool = True, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Print the rows and the bars as Markdown, and ``keep`` them as results/NAME.json."""
    print(f"## {name}\n\n{table(rows)}\n")
    print("\n".join(f"- {'met' if b['met'] else 'MISSED'}: {_bar(b)}" for b in bars), flush=True)
    if keep:
        return save(name, rows, bars, **more)
    return _result(name, rows, bars, **more)


def save(
    name: str, rows: Sequence[Mapping[str, Any]], bars: Sequence[Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    """Keep the rows and the bars as results/NAME.json, which is whole at any time."""
    result = _result(name, rows, bars, **more)
    RESULTS.mkdir(parents=True, exist_ok=True)
    unfinished = RESULTS / f"{name}.json.part"
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.replace(RESULTS / f"{name}.json")
    return result


def _result(name: str, rows: Any, bars: Any, **more: Any) -> dict[str, Any]:
    return {"benchmark": name, "machine": machine(), **more, "rows": rows, "bars": bars}


def _bar(b: Mapping[str, Any]) -> str:
    return f"{b['bar']}: {_cell(b['measured'])} (bar {_cell(b['limit'])})"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same keys as a Markdown table."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [heads, ["---"] * len(heads), *[[_cell(row.get(h)) for h in heads] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"
