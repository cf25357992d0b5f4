"""Messages as users read them: tests/golden/messages.txt has a misuse on a line, and its message.

To add one, write its line, beginning with ">>> ", into the file; to write all messages anew, and
then read what has changed:

    SYMGRAD_WRITE_MESSAGES=1 pytest tests/test_messages.py
"""

from __future__ import annotations

import inspect
import linecache
import math
import os
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy

import symgrad as sg
from symgrad import errors
from symgrad.multi_device import DevicePool
from symgrad.wgsl.device.gpu import Gpu

GOLDEN = Path(__file__).parent / "golden" / "messages.txt"
MENTIONED = r"(?<= at )0x[0-9a-f]+|(?<=lists )\d+|(?<=misuse\.py:)\d+"
"""Addresses of objects, how many devices there are, and lines of this file."""


def lost_gpu(text: str) -> None:
    """What a driver's complaint becomes."""
    gpu: Any = SimpleNamespace(info=SimpleNamespace(name="A GPU"), lost=False)
    raise Gpu.translated(gpu, RuntimeError(text))


SCIPYS = ("integrate", "interpolate", "linalg", "optimize", "special", "stats")
"""Modules of SciPy's that misuses call."""


def space() -> dict[str, Any]:
    """What the misuses have: kernels of points and of rows, and data."""
    cpu: dict[str, Any] = {"device": "cpu"}
    x, y = np.arange(4.0), np.array([1.0, 2.0, 2.5, 5.0])
    return {
        "sg": sg,
        "np": np,
        "math": math,
        **{name: getattr(scipy, name) for name in SCIPYS},
        "cpu": cpu,
        "x": x,
        "y": y,
        "rows": {"x": x, "y": y},
        "point": sg.fused_forward_backward(2, lambda v: v[0] ** 2 * v[1], **cpu),
        "named": sg.fused_forward_backward(
            {"a": (), "b": (2,)}, lambda p: p.a * (p.b @ p.b), name="named", **cpu
        ),
        "values": sg.fused_forward(2, lambda v: [v[0], v[1]], name="values", **cpu),
        "data": sg.fused_forward_backward(
            2, lambda p, r: (p[0] + p[1] * r.x - r.y) ** 2, columns=["x", "y"], **cpu
        ),
        "squares": sg.fused_least_squares(
            2, lambda p, r: p[0] + p[1] * r.x - r.y, columns=["x", "y"], **cpu
        ),
        "groups": sg.fused_forward_backward(
            {"level": 3}, lambda p, r: (p.level[r.k] - r.y) ** 2, columns=["k", "y"], **cpu
        ),
        "line": lambda x, a, b: a + b * x,
        "halving": lambda v: sg.while_loop(lambda s: s > 1, lambda s: s / 2, v[0], max_steps=5),
        "square": sg.custom_vjp(lambda x: x * x, lambda g, y, x: (2 * g * x,)),
        "traced": lambda f, n=1: sg.fused_forward(n, f, name="f", **cpu),
        "loss": lambda f, n=1: sg.fused_forward_backward(n, f, name="f", **cpu),
        "row_loss": row_loss,
        "program": lambda *lines: sg.program(
            "program p\n  input x: f32[4]\n  output y: f32[4]\n" + "\n".join(lines)
        ),
        "doubled": lambda v: sg.grad((2 * v[0]) * (2 * v[0]), 2 * v[0]),
        "lost_gpu": lost_gpu,
        "lose": lose,
        "network": sg.network(lambda a: sg.linear(bias=False, **cpu).run(a, a)),
    }  # fmt: skip


def row_loss(f: Any, **options: Any) -> sg.DataKernel:
    """A loss over rows of x and y, if the options do not say otherwise."""
    given: dict[str, Any] = {"columns": ["x", "y"], "device": "cpu", **options}
    return sg.fused_forward_backward(1, f, **given)


def lose(name: str) -> None:
    """One of several devices is lost."""
    pool, member = SimpleNamespace(), SimpleNamespace(device=name, is_lost=False)
    DevicePool.lose(cast("Any", pool), cast("Any", member))


SPACE = space()


def message(code: str) -> str:
    """The class and text of the error, or of the warning, that a misuse leads to.

    Lines of the user's program, and addresses of objects, are left out.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            linecache.cache["<misuse>"] = len(code), None, [code], "<misuse>"
            eval(compile(code, "<misuse>", "eval"), dict(SPACE))
        except Exception as error:
            found: Any = error
        else:
            assert caught, f"{code} leads to no message"
            found = caught[0].message
    lines = [line for line in str(found).splitlines() if line and not line.startswith("  at ")]
    text = "\n".join(lines).replace(__file__, "misuse.py")
    text = re.sub(MENTIONED, "...", text).replace(str(sg.devices()[-1]), "this CPU")
    return f"{type(found).__name__}: {text}"


def entries() -> dict[str, str]:
    """The messages of the file by the code that leads to them; empty lines are between them."""
    blocks = GOLDEN.read_text("utf-8").strip("\n").split("\n\n")
    found = (block.removeprefix(">>> ").partition("\n") for block in blocks if block[0] == ">")
    return {code: text for code, _, text in found}


def written() -> str:
    """The file with each message as it is now."""
    blocks = GOLDEN.read_text("utf-8").strip("\n").split("\n\n")
    lines = (block.partition("\n")[0] for block in blocks)
    new = (
        f"{line}\n{message(line.removeprefix('>>> '))}" if line.startswith(">>> ") else block
        for line, block in zip(lines, blocks, strict=True)
    )
    return "\n\n".join(new) + "\n"


if os.environ.get("SYMGRAD_WRITE_MESSAGES"):
    GOLDEN.write_text(written(), "utf-8")

ENTRIES = entries()


@pytest.mark.parametrize("code", ENTRIES)
def test_a_message_is_as_it_was_read(code: str) -> None:
    assert message(code) == ENTRIES[code]


def test_every_class_of_errors_has_a_message() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, (Exception, Warning))
    } - {"SymgradError"}
    assert {text.partition(":")[0] for text in ENTRIES.values()} >= classes
    assert len(ENTRIES) >= 120


STUMBLED_OVER = (
    r"\b1 (arrays|arguments|parts|numbers|axes|values)\b",
    r"\bof NumPy's\b",
    r"\bnobody\b",
    r"\bso many\b",
    r"\bbut for\b",
    r"\bis none\b",
    r"\bhas none of\b",
    r"\bis to (be|have|give)\b",
)
"""What a native reader stumbles over, in any message of the library."""


@pytest.mark.parametrize("pattern", STUMBLED_OVER)
def test_messages_are_idiomatic(pattern: str) -> None:
    assert [text for text in ENTRIES.values() if re.search(pattern, text)] == []
