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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

MARK: Final = b"symgrad's compiled code, format "
"""How every file of code begins, those of earlier versions of symgrad too."""

HEADER: Final = MARK + b"3\n"
"""How those of this version begin; changes when what follows does: a SHA-256, and what it is of,
which is the key of the code, a zero and the code itself."""


SWEEPING: Final = 3
"""The level of optimisation at which loops over arrays are vectorised."""


@functools.cache
def llvm() -> Any:
    """LLVM, ready to compile for this machine; loaded when it is first needed."""
    binding = importlib.import_module("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


def target_machine(cpu: str, features: str, effort: int = 0, triple: str = "") -> Any:
    """The target, made anew for each use: an engine takes possession of it.

    It is this machine's, or one that code is only written for, if a ``triple`` says so.
    """
    if triple:
        llvm().initialize_all_targets()
        llvm().initialize_all_asmprinters()
    target = llvm().Target.from_triple(triple or llvm().get_process_triple())
    return target.create_target_machine(cpu=cpu, features=features, opt=effort, jit=not triple)


_machine: Final = functools.cache(target_machine)
"""The target, for any number of modules, one after the other: what it knows of a CPU takes time."""


def compiled(text: str, effort: int, cpu: str, features: str, triple: str = "") -> bytes:
    """The machine code of a module of LLVM, as an object file."""
    module, machine = llvm().parse_assembly(text), _machine(cpu, features, effort, triple)
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


def features_of(cpu: str, features: str, candidates: Sequence[str], triple: str) -> list[str]:
    """Which of the features that are asked for a CPU has.

    LLVM has no question for that, but inlines a function into another only if the CPU of the latter
    has the features of the former.

    A CPU that LLVM does not know gives a line on the standard error, or ends the process.
    """
    lines = [f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}']
    for k, name in enumerate(candidates):
        lines += [
            f'attributes #{k + 1} = {{ "target-features"="+{name}" }}',
            f"define void @f{k}(ptr %p) #{k + 1} {{ store volatile i8 0, ptr %p ret void }}",
            f"define void @g{k}(ptr %p) #0 {{ call void @f{k}(ptr %p) ret void }}",
        ]
    module, machine = llvm().parse_assembly("\n".join(lines)), target_machine("", "", 2, triple)
    builder = llvm().create_pass_builder(machine, llvm().create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    return [name for k, name in enumerate(candidates) if f"call void @f{k}(" not in str(module)]


# a process of its own -----------------------------------------------------------------------------


def program() -> list[str] | None:
    """How this module is started as a program; None where Python is a part of another program."""
    if Path(sys.executable or "").name.lower().startswith("python"):
        return [sys.executable, __file__]
    return None


def sealed(key: str, code: bytes) -> bytes:
    """Code as a file keeps it, or a process hands it on, with the key that it was made for."""
    content = key.encode() + b"\0" + code
    return HEADER + hashlib.sha256(content).digest() + content


def unsealed(key: str, content: bytes) -> bytes | None:
    """The code for a key, if it is that and whole: a broken object file would end the process."""
    code = content[len(HEADER) + 32 + len(key) + 1 :]
    return code if content == sealed(key, code) else None


GIVES_WAY: Final = 10
"""How nice the process is: a tenth of a core beside calls that keep all cores busy, where the
nicest would get a seventieth, and be done when nobody waits for it any more."""


def main() -> None:
    """Compile, giving way to calls, or describe a CPU, as the standard input asks."""
    request = json.load(sys.stdin)
    sys.path[:] = request.pop("path")
    if "candidates" in request:
        sys.stdout.write(json.dumps(features_of(**request)))
        return
    if hasattr(os, "nice"):
        os.nice(GIVES_WAY)
    key = request.pop("key")
    sys.stdout.buffer.write(sealed(key, compiled(**request)))


if __name__ == "__main__":
    main()
