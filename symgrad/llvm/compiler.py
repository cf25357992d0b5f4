"""LLVM as a compiler, in this process or as a program of its own, which needs nothing of symgrad.

A process of its own holds no lock of this one, ends with it, and is unknown to its forks.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import sys
from typing import Any, Final

HEADER: Final = b"symgrad's compiled code, format 2\n"
"""How every file of code begins; changes when what follows does: a SHA-256 and what it is of."""


SWEEPING: Final = 3
"""The level of optimisation at which loops over arrays do several turns at once, in vectors."""


@functools.cache
def llvm() -> Any:
    """LLVM, ready to compile for this machine; loaded when it is first needed."""
    found = importlib.import_module("llvmlite.binding")
    found.initialize_native_target()
    found.initialize_native_asmprinter()
    return found


def target_machine(cpu: str, features: str, effort: int = 0) -> Any:
    """The target, made anew for each use: an engine takes possession of it."""
    target = llvm().Target.from_triple(llvm().get_process_triple())
    return target.create_target_machine(cpu=cpu, features=features, opt=effort, jit=True)


def compiled(text: str, effort: int, cpu: str, features: str) -> bytes:
    """The machine code of a module of LLVM, as an object file."""
    module = llvm().parse_assembly(text)
    machine = target_machine(cpu, features, effort)
    if "alwaysinline" in text:
        builder = llvm().create_pass_builder(machine, llvm().create_pipeline_tuning_options(0))
        passes = llvm().create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, builder)
    if effort == SWEEPING:
        options = llvm().create_pipeline_tuning_options(2)
        options.loop_unrolling = False
        builder = llvm().create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def sealed(code: bytes) -> bytes:
    """The content of a file of code."""
    return HEADER + hashlib.sha256(code).digest() + code


def unsealed(content: bytes) -> bytes | None:
    """The code of a file, if it is whole: a broken object file would end the process."""
    code = content[len(HEADER) + 32 :]
    return code if content == sealed(code) else None


def main() -> None:
    """Compile what the standard input asks for; it runs only where nothing else does."""
    if hasattr(os, "nice"):
        os.nice(19)
    asked = json.load(sys.stdin)
    sys.path[:] = asked.pop("path")
    sys.stdout.buffer.write(sealed(compiled(**asked)))


if __name__ == "__main__":
    main()
