"""What a kernel over data is made of, and how it shows itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.errors import TraceError
from symgrad.expr.semantics.show import formula
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.stats import Stats, measured
from symgrad.mathlib.define import functions
from symgrad.report.screen import html
from symgrad.rows.loss import Request, Traced
from symgrad.values.codes import Codes
from symgrad.values.parameters import Nest
from symgrad.wgsl.dispatch.summation import Summation, emit_reduction
from symgrad.wgsl.printing.source import Style


def _travelled(*_: Any) -> Any:
    """In the place of a traced function that was left behind."""
    raise TraceError("this kernel came from another process, without its Python function")


class RowProgram:
    """A function of one row, traced and compiled for a device: its source, its size, its names."""

    def __init__(self, request: Request, device: Any, traced: Traced) -> None:
        self.request, self._traced = request, traced
        self._parameters = Nest(traced.tree, self.dtype)
        self.device = targets.choose_any(device)
        self._title = f"{request.options.name}: loss and gradient, summed over rows"
        self._sums = self._compiled()

    def _compiled(self) -> Any:
        """What runs it."""
        reduction, options = self._traced.reduction, self.request.options
        return backend_of(self.device).sums(reduction, options, self._title)

    def __reduce__(self) -> tuple[Any, ...]:
        """The trace travels, but no code of the user's; it is compiled again where it arrives."""
        penalty = self.request.penalty
        if penalty is not None:
            penalty = replace(penalty, f=_travelled)
        request = replace(self.request, f=_travelled, penalty=penalty)
        return type(self), (request, self.device, *self._made_of(False))

    def _made_of(self, code: bool = True) -> tuple[Any, ...]:
        """What it was made of, besides the request and the device, with the user's code or not."""
        return (self._traced if code else self._traced.without_code(),)

    @property
    def name(self) -> str:
        """The name it was given, or that of the traced function."""
        return self.request.options.name

    @property
    def tree(self) -> Tree:
        """How the parameters are nested and shaped."""
        return self._traced.tree

    @property
    def n_inputs(self) -> int:
        """The number of parameters."""
        return self.tree.size

    @cached_property
    def _summations(self) -> tuple[Summation, ...]:
        """The WGSL modules, and where they write which sums."""
        options = self.request.options
        style = Style(options.math, options.comments, self._title)
        return emit_reduction(self._traced.reduction, functions(options.math), style)

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules: the results are summed up in as many passes."""
        return tuple(module.source for module in self._summations)

    @property
    def wgsl(self) -> str:
        """The source as a GPU gets it; the CPU runs the same graph, compiled by LLVM."""
        return "\n".join(self.modules)

    @property
    def expr(self) -> tuple[Any, ...]:
        """The loss of one row, times its weight, and its derivatives by the parameters' names."""
        loss, slopes, *_ = self._traced.expressions.in_groups()
        return loss[0], dict(zip(self._traced.wrt, slopes, strict=True))

    @property
    def stats(self) -> Stats:
        """The size of what is computed at a row, and the seconds that making the kernel took."""
        reduction = self._traced.reduction
        looked = sum(lookup.width for lookup in reduction.lookups)
        words = reduction.columns + 2 * looked  # which are read, and whose slopes are written
        nbytes = words * self.dtype.itemsize + 4 * len(self._traced.columns.indices)
        seconds = self._traced.seconds | {"compile": self._sums.seconds}
        on_host, derived = backend_of(self.device).on_host, self._traced.derived
        shaders = 1 if on_host else len(self.modules)
        return measured(reduction.graph, reduction.outputs, nbytes, shaders, seconds, derived, 4)

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters, in a row."""
        blocks = self._traced.tree.blocks
        return [b.name_of(k) for b in blocks for k in range(b.start, b.start + b.size)]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what ``run`` returns."""
        return "loss", "grad"

    @property
    def columns(self) -> tuple[str, ...] | int:
        """The names of a row's columns, or their number."""
        return self.request.columns.names or self.request.columns.count

    @property
    def codes(self) -> Codes:
        """What the numbers of columns stand for that hold labels or dates.

        Of labels, strings or categories, an array: label k is number k, as an index too. Of dates
        the one from which days are counted. The first table that the kernel reads says what they
        are, or ``columns=`` beforehand, as ``columns={"school": ["A", "B"], "score": None}``.
        Another kernel, as one of predictions, takes them as its ``codes=``.

        Example:
            >>> import symgrad as sg
            >>> kernel = sg.fused_forward(2, lambda p, r: p[r.city] * r.x, columns=["city", "x"],
            ...                           reduce=None, device="cpu")
            >>> kernel.run([1, 2], {"city": ["Rome", "Bern", "Rome"], "x": [1, 1, 2]}).tolist()
            [2.0, 1.0, 4.0]
            >>> kernel.codes["city"].tolist()
            ['Bern', 'Rome']
        """
        return self.request.columns.codes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the arithmetic and of the gradient."""
        return np.dtype(self.request.options.dtype)

    def __repr__(self) -> str:
        names = self.request.columns.names
        row = (
            ", ".join(map(self._shown, names)) if names else f"{self.request.columns.count} columns"
        )
        return (
            f"<symgrad data kernel {self.name}: {self.n_inputs} parameters, rows of {row}; "
            f"{self.request.reduce}, {self.dtype} on {self.device}>"
        )

    def _shown(self, name: str) -> str:
        """A column, the shape of its arrays, and how many labels it has if it has any."""
        shape, known = self.request.columns.column(name).shape, self.codes.get(name)
        labels = f" ({len(known)} labels)" if isinstance(known, np.ndarray) else ""
        return name + (f" {shape}" if shape else "") + labels

    def _repr_html_(self) -> str:
        return html(repr(self), str(self.stats), self.wgsl)

    def _repr_latex_(self) -> str | None:
        return formula(self.expr[0])

    def to(self, device: targets.DeviceChoice) -> Self:
        """The same kernel on another device: "gpu", "cpu", an index, or a `Device`."""
        return type(self)(self.request, device, *self._made_of())
