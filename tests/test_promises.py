"""What docs/promises.md promises: names that stay, deprecations, versions, and no connections."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import public_api
import pytest

import symgrad as sg
from symgrad.errors import DEPRECATIONS, KEPT_FOR, Deprecation

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/promises.md").read_text("utf-8")
PACKAGE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = tuple(map(int, sg.__version__.split(".")[:2]))
RELEASES = sorted(ROOT.glob("tests/golden/api_*.txt"))

KERNEL = sg.fused_least_squares(
    2, lambda p, row: p[0] + p[1] * row.x - row.y, columns=["x", "y"], device="cpu"
)
TABLE = {"x": np.arange(4.0), "y": 1 + 2 * np.arange(4.0)}
USES: dict[str, Callable[[str], Any]] = {
    "DataKernel.minimize": lambda name: (
        KERNEL.minimize([0.0, 0.0], sg.LevenbergMarquardt(), **cast("Any", {name: TABLE})).x
    ),
    "LeastSquaresKernel.fit": lambda name: KERNEL.fit([0.0, 0.0], **cast("Any", {name: TABLE})).x,
}
"""A call for each function with a deprecated argument, by either name of it."""


def names_experimental() -> set[str]:
    section = PAGE.partition("**Experimental**")[2].partition("\nAll other")[0]
    return set(re.findall(r"`(\w+)`", section))


def arguments(text: str) -> list[inspect.Parameter]:
    """The parameters in a line such as "f(x, /, *, y=0.0)", their defaults as text."""
    definition = re.sub(r"<[^>]*>", "None", text[text.find("(") :])
    function = ast.parse(f"def f{definition}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    space: dict[str, Any] = {}
    exec(ast.unparse(_quoted(function)), space)
    return list(inspect.signature(space["f"]).parameters.values())


def _quoted(function: ast.FunctionDef) -> ast.FunctionDef:
    """Defaults become their own text, so that `inf` need not be known."""
    of = function.args
    of.defaults = [ast.Constant(ast.unparse(value)) for value in of.defaults]
    of.kw_defaults = [value and ast.Constant(ast.unparse(value)) for value in of.kw_defaults]
    return function


def renamed(name: str, argument: str) -> str:
    """What an argument of an earlier release is called now."""
    owner, _, method = name.rpartition(".")
    for d in DEPRECATIONS:
        of, _, called = d.function.rpartition(".")
        same = bool(owner and of) and _is_a(owner, of)
        if same and called == method and d.old == argument:
            return d.new
    return argument


def _is_a(name: str, base: str) -> bool:
    value = getattr(sg, name, None)
    return inspect.isclass(value) and issubclass(value, getattr(sg, base))


def faults(before: str, now: dict[str, str]) -> Iterator[str]:
    """What a line of an earlier release says that is so no longer."""
    name = before.partition("(")[0]
    if name not in now:
        yield f"{name} is gone"
    elif "(" in before:
        old, new = arguments(before), {p.name: p for p in arguments(now[name])}
        for p in old:
            now_called = renamed(name, p.name)
            if now_called not in new:
                yield f"{name}({p.name}) is gone"
            elif p.default not in (new[now_called].default, p.empty):
                yield f"{name}({p.name}): {p.default} has become {new[now_called].default}"
        in_order = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        places = [renamed(name, p.name) for p in old if p.kind in in_order]
        taken = [p.name for p in new.values() if p.kind in in_order]
        if any(p.kind is p.VAR_POSITIONAL for p in new.values()):  # which takes the rest
            places = places[: len(taken)]
        if places != taken[: len(places)]:
            yield f"{name}: the order of its arguments has changed"


@pytest.mark.parametrize("release", RELEASES, ids=lambda p: p.stem)
def test_what_a_release_had_is_still_there(release: Path) -> None:
    now = {line.partition("(")[0]: line for line in public_api.lines()}
    experimental = names_experimental()
    promised = [
        line
        for line in release.read_text("utf-8").splitlines()
        if re.split(r"[.(]", line)[0] not in experimental
    ]
    assert len(promised) > 200
    assert [fault for line in promised for fault in faults(line, now)] == []


def test_a_change_of_what_a_release_had_is_found() -> None:
    now = {"f": "f(x, *, z=2.0)", "g": "g(b, a)"}
    lines = "f(x, *, y=1.0, z=inf)", "g(a, b)", "h(x)"
    assert [fault for line in lines for fault in faults(line, now)] == [
        "f(y) is gone", "f(z): inf has become 2.0",
        "g: the order of its arguments has changed", "h is gone",
    ]  # fmt: skip


def test_experimental_names_are_public() -> None:
    found = names_experimental()
    assert len(found) > 20
    assert found <= set(sg.__all__)


@pytest.mark.parametrize("module", [sg, sg.random, sg.linalg, sg.schedules])
def test_dir_shows_public_names_only(module: Any) -> None:
    shown = [name for name in dir(module) if name != "__version__"]
    assert shown == sorted(module.__all__)
    assert all(hasattr(module, name) and not name.startswith("_") for name in shown)


@pytest.mark.parametrize("d", DEPRECATIONS, ids=lambda d: f"{d.function}({d.old})")
def test_what_is_deprecated_still_works(d: Deprecation) -> None:
    call = USES[d.function]
    with pytest.warns(DeprecationWarning, match=d.old) as caught:
        old = call(d.old)
    assert [(str(w.message), w.filename) for w in caught] == [(d.message, __file__)]
    assert np.array_equal(old, call(d.new))


def test_both_names_of_an_argument_are_refused() -> None:
    with pytest.raises(sg.InputTypeError, match=r"minimize got both rows= and its old name data="):
        KERNEL.minimize([0.0, 0.0], sg.LevenbergMarquardt(), rows=TABLE, data=TABLE)


def test_deprecations_say_what_to_write_and_until_when() -> None:
    assert DEPRECATIONS
    for d in DEPRECATIONS:
        assert f"write {d.new}=" in d.message and f"in symgrad {d.removed_in[0]}." in d.message
        assert d.removed_in == (d.since[0], d.since[1] + KEPT_FOR)
        assert d.removed_in > VERSION, f"{d.function}({d.old}=) is to be removed now"


def test_the_version_is_one() -> None:
    assert PACKAGE["dynamic"] == ["version"]  # it is read from the package
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {sg.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.findall(r"^## \[(\d\S+)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    assert releases[0][0] == sg.__version__
    assert f"\ndate-released: {releases[0][1]}\n" in citation
    assert releases == sorted(releases, reverse=True)


def test_the_floors_are_those_of_the_package() -> None:
    extras = PACKAGE["optional-dependencies"]
    users = [extras[name] for name in extras if name not in ("bench", "frameworks", "docs", "dev")]
    given = {
        name: floor
        for group in [PACKAGE["dependencies"], *users]
        for name, floor in re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)", "\n".join(group), re.M)
    }
    given["Python"] = PACKAGE["requires-python"].removeprefix(">=")
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| [\d-]*(?: )?\|$", PAGE, re.MULTILINE)
    assert len(rows) == 14
    assert [(name, floor) for name, floor in rows if given.get(name) != floor] == []


def test_every_promise_names_a_test() -> None:
    kept = re.findall(r"\[([\w/]+\.py)::(test_\w+)\]\(\.\./tests/([\w/]+\.py)\)", PAGE)
    sections = PAGE.split("\n| promise | kept by |\n|---|---|\n")[1:]
    tables = [section.partition("\n\n")[0].splitlines() for section in sections]
    assert len(kept) == sum(map(len, tables)) > 20
    for shown, test, place in kept:
        assert shown == place
        assert f"\ndef {test}(" in (ROOT / "tests" / place).read_text("utf-8"), (place, test)
