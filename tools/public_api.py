"""The public names of symgrad and their arguments, one to a line: what a release promises to keep.

    python tools/public_api.py > tests/golden/api_0.2.txt

Run it when a minor version is released. `tests/test_promises.py` reads all of these files.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

import symgrad as sg

VERBS = {"as_jax", "as_scipy", "as_torch", "bind", "fit", "minimize", "run", "to", "vjp"}
"""Methods of kernels that are promised, beside those that have examples of their own."""


def lines() -> Iterator[str]:
    """``name(arguments)`` of every public function, method, and class that users make."""
    for name in sorted(sg.__all__):
        yield from _of(name, getattr(sg, name))


def _of(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        for part in dir(value):
            yield from _of(f"{name}.{part}", getattr(value, part))
    elif inspect.isclass(value):
        yield from _of_class(name, value)
    else:
        yield name + arguments(value)


def _of_class(name: str, value: type) -> Iterator[str]:
    """How it is made, if users make it, or else its fields and properties; and its methods."""
    made = value in (sg.Tolerances, sg.Move) or "schedules" in name or issubclass(value, sg.Method)
    yield name + (arguments(value) if made and is_dataclass(value) else "")
    if not made and is_dataclass(value):
        parts = {f.name for f in fields(value)}
        parts |= {part for part in dir(value) if isinstance(getattr(value, part, None), property)}
        yield from sorted(f"{name}.{part}" for part in parts if not part.startswith("_"))
    for part in sorted(part for part in dir(value) if not part.startswith("_")):
        method = getattr(value, part)
        if inspect.isfunction(method) and (part in VERBS or ">>>" in (method.__doc__ or "")):
            yield f"{name}.{part}{arguments(method)}"


def arguments(value: Any) -> str:
    """Arguments with their defaults, and without their types."""
    signature = inspect.signature(value)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines()))
