"""What modules that were exported compute in a page."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from chromium import Chromium, Page

_numbers = itertools.count()


def calls(browser: Chromium, page: Page, export: Callable[[Path], None], what: str,
          **values: Any) -> Any:  # fmt: skip
    """What an expression gives with the kernel that a function exports, as ``kernel`` there."""
    name = f"kernel{next(_numbers)}.mjs"
    export(browser.folder / name)
    return page.run(
        "const { create, requestDevice, SymgradError } = await import(`/${name}`);"
        "globalThis.device ??= await requestDevice();"
        f"const kernel = await create(device); return {what};",
        name=name, **values,
    )  # fmt: skip


def assert_near(found: Any, wanted: Any, ulps: float = 64.0) -> None:
    """Arrays, the found one in a row, that differ by little for the size of each column."""
    wanted = np.asarray(wanted)
    found = np.asarray(found).reshape(wanted.shape)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    rows = np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    scale = rows.max(axis=0, initial=1e-30) if wanted.ndim > 1 else rows.max(initial=1e-30)
    off = np.where(np.isfinite(wanted), np.abs(found - wanted), 0.0) / scale
    assert off.max(initial=0.0) <= ulps * 2.0**-23, f"off by {off.max() * 2.0**23:.0f} ULP"
