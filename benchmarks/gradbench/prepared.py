"""What an eval is: functions that make of an input the call that is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Where = Mapping[str, Any]
"""The device and the dtype of kernels."""

Call = Callable[[], Any]

Eval = dict[str, Callable[[Any, Where], Call]]
"""By the names of its functions: what makes a call of an input."""
