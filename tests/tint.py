"""Tint, the WGSL front end of Chrome, as a second opinion on every kernel that symgrad emits.

It comes with npm's package ``webgpu``; the environment variable SYMGRAD_TINT names the folder
that holds its ``node_modules``. Dawn's null back end checks as Chrome would and needs no driver.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tint.mjs")
SECONDS = 600
"""The longest that Tint may take for one list of sources."""


def tint_available() -> bool:
    """Whether SYMGRAD_TINT is set; if it is, a missing node or package is an error, not a skip."""
    return bool(os.environ.get("SYMGRAD_TINT"))


needs_tint = pytest.mark.skipif(not tint_available(), reason="SYMGRAD_TINT is not set")


def check_with_tint(sources: Sequence[str]) -> list[str | None]:
    """For each WGSL source None, or what Tint and Dawn say against it.

    All sources go through one node process. Each is made into a shader module and a compute
    pipeline with entry point "main", an explicit layout of group 0 as the source declares it, and
    WebGPU's default limits.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sources.json")
        path.write_text(json.dumps(list(sources)), "utf-8")
        process = subprocess.run(
            [_node(), str(SCRIPT), str(_modules()), str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
    verdicts = [json.loads(line) for line in process.stdout.split("\n") if line]
    assert process.returncode == 0 and len(verdicts) == len(sources), (
        f"node ended with {process.returncode} at source {len(verdicts)}:\n{process.stderr}"
    )
    return verdicts


def _modules() -> Path:
    modules = Path(os.environ["SYMGRAD_TINT"], "node_modules").resolve()
    assert (modules / "webgpu").is_dir(), f"no npm package webgpu in {modules}"
    return modules


def _node() -> str:
    node = shutil.which("node")
    assert node, "SYMGRAD_TINT is set, but there is no node on the PATH"
    return node
