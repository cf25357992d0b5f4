"""Nests are taken apart and put together again, whatever their leaves are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from symgrad.expr.tracers.tree import Blocks, Tree, flatten


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Layer:
    weights: Any
    kind: str = field(default="relu", metadata={"static": True})


NESTS = {
    "number": 1.5,
    "dict": {"a": 1.0, "b": {"c": np.ones(2)}},
    "tuples": (1.0, (np.zeros(3),)),
    "named tuple": Pair(1.0, {"x": 2.0}),
    "dataclass": {"layer": Layer(np.ones((2, 2)), "tanh")},
    "blocks": Blocks({"values": 1.0, "inner": Blocks({"a": 2.0})}),
}


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_what_is_taken_apart_is_put_together(nest: Any) -> None:
    leaves, tree = flatten(nest)
    made = tree.nest(iter(leaves), None)
    again, same = flatten(made)
    assert type(made) is type(nest) and same == tree
    assert all(a is b for a, b in zip(leaves, again, strict=True))
    if isinstance(nest, dict) and "layer" in nest:
        assert made["layer"].kind == "tanh"


def test_parameters_stay_what_they_are_only_where_that_is_asked_for() -> None:
    leaves, tree = flatten(NESTS["blocks"])
    assert leaves == [1.0, 2.0]
    assert isinstance(tree.nest(iter(leaves), None)["inner"], Blocks)
    assert tree.nest(iter(leaves)) == {"values": 1.0, "inner": {"a": 2.0}}


def test_a_leaf_may_be_several_values() -> None:
    def numbers(value: Any) -> tuple[list[Any], Tree] | None:
        if isinstance(value, dict):
            return None
        array = np.asarray(value)
        return array.ravel().tolist(), Tree("array", array.shape)

    leaves, tree = flatten({"a": [1, 2], "b": {"c": [[3], [4]]}}, numbers)
    assert leaves == [1, 2, 3, 4]
    assert [(b.name, b.start, b.shape) for b in tree.blocks] == [("a", 0, (2,)), ("b.c", 2, (2, 1))]


def test_a_list_of_numbers_is_a_leaf() -> None:
    assert flatten([[1.0, 2.0], [3.0]])[0] == [[[1.0, 2.0], [3.0]]]
    assert flatten([np.ones(2), 1.0])[1].kind is list
