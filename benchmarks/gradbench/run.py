"""A tool of GradBench: answers its evals' messages, a JSON object on each line, with symgrad.

    python benchmarks/gradbench/run.py [--device cpu] [--dtype float64]

GradBench (https://github.com/gradbench/gradbench) runs it so:

    ./gradbench run --eval "./gradbench repo eval gmm" --tool "python .../gradbench/run.py"
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import adbench
import nested
import small
from prepared import Eval, Where

EVALS: dict[str, Eval] = small.EVALS | adbench.EVALS | nested.EVALS
"""The functions of each eval."""


def answer(message: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """The response to a message, apart from its id."""
    match message["kind"]:
        case "start":
            return {"tool": "symgrad"}
        case "define":
            return {"success": message["module"] in EVALS}
        case "evaluate":
            try:
                return evaluated(message, where)
            except Exception as error:
                return {"success": False, "error": "".join(traceback.format_exception(error))}
        case _:  # "analysis" says whether an answer was right
            return {}


def evaluated(message: Mapping[str, Any], where: Where) -> dict[str, Any]:
    """The output of a function, and how long each of its runs took."""
    given = message["input"]
    least, seconds, runs = 1, 0.0, []
    if isinstance(given, Mapping):
        least = max(1, int(given.get("min_runs", given.get("runs", 1))))
        seconds = float(given.get("min_seconds", 0.0))
    begin = time.perf_counter_ns()
    call = EVALS[message["module"]][message["function"]](given, where)
    timings = [{"name": "prepare", "nanoseconds": time.perf_counter_ns() - begin}]
    found: Any = None
    while len(runs) < least or sum(runs) < seconds * 1e9:
        begin = time.perf_counter_ns()
        found = call()
        runs.append(time.perf_counter_ns() - begin)
    timings += [{"name": "evaluate", "nanoseconds": n} for n in runs]
    return {"success": True, "output": plain(found), "timings": timings}


def plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return np.asarray(value).tolist()


def main() -> None:
    """Answer until there are no more messages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    given = parser.parse_args()
    where: Where = {"device": given.device, "dtype": given.dtype}
    for line in sys.stdin:
        message = json.loads(line)
        print(json.dumps({"id": message["id"]} | answer(message, where)), flush=True)


if __name__ == "__main__":
    main()
