"""Where the invocations of a workgroup go one way: only there may they wait for each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from symgrad.errors import ProgramError
from symgrad.expr.graph.node import ANY_INPUT, reachable
from symgrad.programs.code import (
    Assign,
    Barrier,
    Code,
    Declare,
    Dispatch,
    For,
    Get,
    If,
    Load,
    Name,
    Reduce,
    Statement,
    assigned,
)
from symgrad.programs.text import shown


class Uniformity:
    """What varies among the invocations of a workgroup, or among groups, of a dispatch's values.

    What is loaded from what invocations write to is taken to vary, as WGSL takes it.
    """

    def __init__(
        self,
        code: Code,
        dispatch: Dispatch,
        among: Literal["invocations", "groups"] = "invocations",
    ) -> None:
        self.code, self.width, self.among = code, dispatch.width, among
        place = dispatch.local if among == "invocations" else dispatch.group
        self.leaves = {dispatch.cell, place}
        """The leaves that vary."""
        self.variables: set[Name] = set()
        """The variables that do."""
        self.parted: dict[Statement, Statement] = {}
        """The statements that stand where invocations may part, and where they do."""
        self._block(dispatch.body, None)

    def varies(self, i: int) -> bool:
        """Whether a value may differ among them."""
        nodes = self.code.graph.nodes
        leaves = (n for n in reachable(self.code.graph, [i]) if nodes[n][0] in ANY_INPUT)
        return not self.leaves.isdisjoint(leaves)

    def _block(self, block: Sequence[Statement], head: Statement | None) -> None:
        for s in block:
            if head is not None:
                self.parted[s] = head
            self._statement(s, head)

    def _statement(self, s: Statement, head: Statement | None) -> None:
        match s:
            case Declare(variable=v, value=value) | Assign(variable=v, value=value):
                if head is not None or self.varies(value):
                    self.variables.add(v)
            case Get(result=result, variable=v):
                if v in self.variables:
                    self.leaves.add(result)
            case Load(result=result, array=array, index=index):
                if array.space != "input" or self.varies(index):
                    self.leaves.add(result)
            case Reduce(result=result, among=among):
                agreed = among == self.width and self.among == "invocations"
                varies = self.varies(s.value)
                if varies and not agreed or among not in (1, self.width):
                    self.leaves.add(result)
            case If():
                inner = s if head is None and self.varies(s.condition) else head
                for block in (s.then, s.otherwise):
                    self._block(block, inner)
            case For():
                self._loop(s, head)
            case _:
                pass

    def _loop(self, s: For, head: Statement | None) -> None:
        """A loop: what an assignment in it makes vary does so from its beginning."""
        parts = self.varies(s.lo) or self.varies(s.hi)
        if self.varies(s.lo) or (s.down and self.varies(s.hi)):
            self.leaves.add(s.counter)
        if parts:
            self.variables.update(assigned(s.body))
        before = -1
        while before < len(self.variables):
            before = len(self.variables)
            self._block(s.body, s if head is None and parts else head)


def require_uniform(code: Code, dispatch: Dispatch) -> Uniformity:
    """What varies, of a dispatch whose invocations wait only where all of a workgroup do.

    Raises:
        ProgramError: it names the statement, and where the invocations part.
    """
    uniformity = Uniformity(code, dispatch)
    for s, head in uniformity.parted.items():
        if isinstance(s, Barrier | Reduce):
            what = "a barrier" if isinstance(s, Barrier) else f"group_{s.operation}"
            raise ProgramError(
                f"{shown(code, s)}: {what} that not all invocations of a workgroup may reach, as "
                f"they part at {shown(code, head)}: put it outside, and what differs into where"
            )
    return uniformity
