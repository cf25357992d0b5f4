"""Where the numbers of a buffer are: its indices, of numbers, of vectors and in rows."""

from __future__ import annotations

from symgrad.kernel.statements import Buffer
from symgrad.kernel.vectors import Vector, in_row
from symgrad.wgsl.printing.analysis import Vectors
from symgrad.wgsl.printing.operations import PRIMARY, PRODUCT, SUM, Text, wrapped
from symgrad.wgsl.printing.values import Values


class Addresses:
    """The texts of indices."""

    def __init__(self, values: Values, vectors: Vectors) -> None:
        self._values, self._vectors = values, vectors

    def index(self, buffer: Buffer, i: int) -> tuple[Text, str]:
        """An index of a buffer, and the component of what stands there."""
        if buffer.vector == 1:
            return self.of_vector(buffer, Vector(i, 0)), ""
        vector, component = self._vectors.of(buffer, i)
        return self.of_vector(buffer, vector), self._values.floats.component(component)

    def of_vector(self, buffer: Buffer, vector: Vector) -> Text:
        """The index of a vector of a buffer."""
        number, node = vector.number, vector.node
        if buffer.row:
            return self._in_rows(buffer.row, vector), PRIMARY
        return (f"{number}u", PRIMARY) if node is None else self._values.word(node)

    def _in_rows(self, row: int, vector: Vector) -> str:
        """The two indices of a vector in an array of rows.

        What WGSL checks of an index, it does once for all rows where they are known numbers.
        """
        values = self._values
        if vector.node is None:
            return f"{vector.number // row}u][{vector.number % row}u"
        location = in_row(values.graph, vector.node, row)
        if location is None:
            text = wrapped(values.word(vector.node), PRODUCT)
            return f"{text} / {row}u][{text} % {row}u"
        which = f"{location.number}u" if location.row is None else values.text(location.row)
        column = values.word(location.node)
        more = f" + {location.first}u" if location.first else ""
        return f"{which}][{wrapped(column, SUM) if more else column[0]}{more}"
