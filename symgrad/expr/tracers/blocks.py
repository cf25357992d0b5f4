"""Named parameters as a traced function sees them: mappings whose names are attributes too."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from symgrad.errors import NameUnknownError

_OWN: Final = frozenset({"items", "values", "get"})
"""Methods of mappings that parameters of the same name hide; ``keys`` they do not."""


class Blocks(Mapping[str, Any]):
    """Several blocks of parameters: ``p.cameras`` or ``p["cameras"]``, or blocks of them again.

    It is a mapping: ``dict(p)``, ``**p``, ``p.items()`` and loops over the names do what they do
    with a dict. The tree functions of JAX and of optree, where they are imported, know it.
    """

    def __init__(self, blocks: Mapping[str, Any]) -> None:
        self._blocks = dict(blocks)
        vars(self).update({name: self._blocks[name] for name in _OWN & set(self._blocks)})
        _register()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in vars(self).get("_blocks", ()):
            known = ", ".join(vars(self).get("_blocks", ()))
            raise NameUnknownError(f"there are no parameters {name!r}: the blocks are {known}")
        return self._blocks[name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._blocks:
            raise NameUnknownError(
                f"there are no parameters {name!r}: the blocks are {', '.join(self._blocks)}"
            )
        return self._blocks[name]

    def get(self, key: str, default: Any = None) -> Any:
        """The block of this name, or else the default."""
        return self._blocks.get(key, default)

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def __iter__(self) -> Iterator[str]:
        return iter(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<parameters {', '.join(self._blocks)}>"


def _flatten(blocks: Blocks) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(blocks[name] for name in blocks), tuple(blocks)


def _unflatten(names: tuple[str, ...], parts: Any) -> Blocks:
    return Blocks(dict(zip(names, parts, strict=True)))


_registered: set[str] = set()


def _register() -> None:
    """Make `Blocks` known to the tree functions that have been imported since."""
    for name in ("jax.tree_util", "optree"):
        module = sys.modules.get(name)
        if module is None or name in _registered:
            continue
        _registered.add(name)
        registry = getattr(module, "registry", None)
        everywhere = getattr(registry, "__GLOBAL_NAMESPACE", None)
        more = {} if everywhere is None else {"namespace": everywhere}
        module.register_pytree_node(Blocks, _flatten, _unflatten, **more)
