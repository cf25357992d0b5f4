"""Losses over data as ES modules for WebGPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from symgrad.errors import InputError
from symgrad.optimize.over_data import RowLoss, require_squares
from symgrad.rows.program import RowProgram
from symgrad.values.parameters import of_row
from symgrad.web.kernels import (
    Minimization,
    RowSums,
    Steps,
    SumOutput,
    require_float32,
    rows_exported,
)


class ExportedRows(RowProgram):
    """A kernel over data that can be written as a module."""

    squares: ClassVar[bool] = False
    """Whether rows give residuals, whose squares are the loss."""

    def _row_loss(self) -> RowLoss:
        """What is minimised."""
        asked, traced = self.request, self._traced
        if asked.reduce is None or self.outputs[0] != "loss":
            raise InputError(
                "only a loss that is summed over rows is minimised: f returns one "
                "number, with reduce='sum'"
            )
        return RowLoss(
            asked.f,
            traced.columns,
            traced.weight,
            asked.reduce,
            asked.nan_policy,
            self.squares,
            None if asked.penalty is None else asked.penalty.f,
        )

    def export_js(
        self,
        path: str | Path,
        method: Any = None,
        *,
        each: bool = False,
        steps: int = 1000,
        tol: Any = None,
        bounds: Any = None,
    ) -> None:
        """Write the kernel as an ES module for WebGPU, and the types of that beside it.

        The module is one file without dependencies; see the page on browsers in the documentation.
        There ``run(parameters, rows)`` and ``bind(rows)`` take arrays in a row, and give the
        results of `run` here. With a method ``minimize(starts, {data})`` is there too.

        Args:
            path: where it goes, ending in .mjs or .js; what symgrad wrote there is replaced.
            method: as for `minimize`.
            each: whether each start has rows of its own, rather than all of them the same.
            steps: the most steps.
            tol: as for `minimize_from`.
            bounds: as for `minimize_from`.

        Raises:
            InputError: for a file there that symgrad did not write; and for kernels that look
                parameters up by an index, leave out rows that hold NaN, or have a regularizer.

        Example:
            >>> import tempfile, symgrad as sg
            >>> line = lambda p, r: p[0] + p[1] * r[0] - r[1]
            >>> kernel = sg.fused_least_squares(2, line, row=2, device="cpu")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     kernel.export_js(f"{folder}/fit.mjs", sg.LevenbergMarquardt(), each=True)
        """
        self._require_exportable()
        traced, by = self._traced, None
        if method is not None:
            by = self._minimization(Steps(method, steps, tol, bounds), each)
        sums = RowSums(
            self._summations,
            traced.columns.count,
            self.n_inputs,
            traced.used,
            self._sum_outputs(),
            self.request.reduce or "sum",
            traced.weight,
        )
        rows_exported(self.name, self.parameters, sums, by).write(path)

    def _require_exportable(self) -> None:
        """Refuse what modules do not compute."""
        asked = self.request
        require_float32(asked.options.dtype)
        missing = {
            "parameters that rows look up by an index": bool(self._traced.gathers),
            f'nan_policy="{asked.nan_policy}"': asked.nan_policy != "propagate",
            "a regularizer": asked.penalty is not None,
            "results for each row, reduce=None,": asked.reduce is None,
        }
        for what in (name for name, present in missing.items() if present):
            raise InputError(f"{self.name}: {what} cannot be exported yet; run it from Python")

    def _minimization(self, by: Steps, each: bool) -> Minimization:
        """What minimises the loss over data that come later."""
        of = self._row_loss()
        require_squares(by.method, of.squares, self.name)
        if of.reduce == "mean":
            raise InputError('a mean over rows is not minimised by modules: use reduce="sum"')
        f = of.residuals if by.method.needs == "squares" else of.loss
        columns = {"own" if each else "shared": of.columns.count}
        tree = self.tree
        return Minimization(of_row(f, tree), tree, by, self.request.options, **columns)

    def _sum_outputs(self) -> list[SumOutput]:
        """Which sums are which numbers of the results."""
        graded = self._traced.graded
        places = range(1, 1 + len(graded))
        return [SumOutput("loss", None, [0], [0]), SumOutput("grad", self.n_inputs, places, graded)]
