"""The reference as Markdown that is read in the repository: docs/reference, made of docstrings."""

from __future__ import annotations

import inspect
import operator
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any

from public_api import VERBS, arguments
from site_reference import GROUPS, Group

import symgrad as sg
from symgrad.report.kernel import KernelBase

NOTE = "<!-- Written by tools/generate_docs.py from the docstrings: change these, and run it. -->"
SECTION = re.compile(r"^(Args|Returns|Raises|Example|Attributes|Reference|References):$", re.M)
TITLES = {"Args": "Arguments"}
ITEM = re.compile(r"^(\*{0,2}[\w, ]+): (?=\S)", re.MULTILINE)


FILES = ("README", *(group.file for group in GROUPS))
"""The pages of docs/reference, without their ".md"."""


def page(file: str) -> str:
    """The text of a page of docs/reference."""
    return _page(next(g for g in GROUPS if g.file == file)) if file != "README" else _contents()


def _contents() -> str:
    lines = [NOTE, "", "# Reference", "", "Every public name, by what it is for.", ""]
    for group in GROUPS:
        names = ", ".join(f"[`{n}`]({group.file}.md#{n.lower()})" for n in group.names)
        lines.append(f"- [{group.title}]({group.file}.md): {names}")
    return "\n".join(lines) + "\n"


def _page(group: Group) -> str:
    about = re.sub(r":doc:`([^<]*) </ops>`", r"[\1](../ops.md)", group.about)
    about = re.sub(r":py:obj:`(\w+) <[^>]*>`", r"`\1`", about).replace("``", "`")
    head = f"{NOTE}\n\n# {group.title}\n\n{about}\n"
    entries = [entry for name in group.names for entry in _entries(name)]
    if group.beside:
        module, _, name = group.beside.rpartition(".")
        entries += _class(group.beside, getattr(__import__(module, fromlist=[name]), name))
    return "\n".join([head, *entries])


def _entries(name: str) -> Iterator[str]:
    value = operator.attrgetter(name)(sg)
    if isinstance(value, ModuleType):
        yield f"## {name}\n\n{_text(inspect.getdoc(value) or '')}\n"
        for part in dir(value):
            yield from _entries(f"{name}.{part}")
    elif inspect.isclass(value):
        yield from _class(name, value)
    else:
        yield _entry(f"sg.{name}", name, arguments(value), value)


def _class(name: str, value: Any) -> Iterator[str]:
    """A class with its documented methods and properties."""
    shown = name if "." in name else f"sg.{name}"
    made = inspect.isclass(value) and is_dataclass(value) and issubclass(value, sg.Method)
    yield _entry(shown, name, arguments(value) if made else "", value)
    for part, method in _members(value).items():
        if part.startswith("_") or not inspect.getdoc(method):
            continue
        if isinstance(method, property):
            yield _entry(f"{name}.{part}", f"{name}.{part}", "", method, "###")
        elif inspect.isfunction(method) and (part in VERBS or ">>>" in (method.__doc__ or "")):
            given = arguments(method).replace("(self, ", "(").replace("(self)", "()")
            yield _entry(f"{name}.{part}", f"{name}.{part}", given, method, "###")


def _members(value: type) -> dict[str, Any]:
    """The members of a class; of a kernel also those of bases that have no entry of their own."""
    public = [getattr(sg, name) for name in dir(sg)]
    members = dict(vars(value))
    for base in value.__mro__[1:] if issubclass(value, KernelBase) else ():
        if base.__module__.startswith("symgrad.") and base not in public:
            members = {**vars(base), **members}
    return {**{k: members[k] for k in vars(value)}, **members}


def _entry(shown: str, name: str, given: str, value: Any, level: str = "##") -> str:
    signature = textwrap.fill(shown + given, 100, subsequent_indent="    ")
    return f"{level} {name}\n\n```text\n{signature}\n```\n\n{_text(inspect.getdoc(value) or '')}\n"


def _text(doc: str) -> str:
    """A docstring in Markdown: its sections, their items, and examples as blocks of code."""
    first, *rest = SECTION.split(doc)
    parts = [_paragraphs(first)]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        body = textwrap.dedent(body.strip("\n"))
        if title in ("Args", "Attributes"):
            body = _items(body)
        parts.append(f"**{TITLES.get(title, title)}**\n\n{_paragraphs(body)}")
    return "\n\n".join(part.rstrip() for part in parts)


def _items(body: str) -> str:
    """``name: what it is`` of an indented list, as a list of Markdown's."""
    items = re.split(r"\n(?=\S)", body)
    lines = [ITEM.sub(lambda m: f"`{m[1]}`: ", " ".join(item.split()), count=1) for item in items]
    return "\n".join(f"- {line}" for line in lines)


def _paragraphs(text: str) -> str:
    """Text with Markdown's marks for code; examples, which end at an empty line, in blocks."""
    blocks = text.strip("\n").split("\n\n")
    out: list[str] = []
    for block in blocks:
        if ">>>" in block or (out and out[-1].endswith("```") and block.startswith("    ")):
            out.append(f"```python\n{textwrap.dedent(block)}\n```")
        else:
            plain = re.sub(r"``([^`]+)``", r"`\1`", block)
            out.append(plain.replace("|", r"\|") if "|" in plain and "`" not in plain else plain)
    return "\n\n".join(out)
