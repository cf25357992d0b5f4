"""C types of wgpu by their names: cffi parses all its declarations for each name it has not met."""

from __future__ import annotations

import contextlib
from typing import Any

import _cffi_backend


def name_types(native: Any) -> None:
    """Tell cffi the types that wgpu's C functions take by their names, which it looks up there.

    A name that it has to parse costs 20 ms, and a process that uses a GPU has 40 of them. Where
    cffi keeps names otherwise, it parses them.
    """
    with contextlib.suppress(AttributeError, TypeError):
        ffi, lib = native.ffi, native.lib
        pointers = dict[str, Any]()
        seen = set[Any]()
        functions = [getattr(lib, name) for name in dir(lib) if name.startswith("wgpu")]
        waiting = [ffi.typeof(function) for function in functions]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if one.kind == "function":
                waiting += one.args
            elif one.kind == "pointer":
                waiting.append(one.item)
                pointers.setdefault(f"{one.item.cname} *", one)
            elif one.kind == "struct" and one.fields:
                waiting += [field.type for _, field in one.fields]
                pointers.setdefault(f"{one.cname} *", _cffi_backend.new_pointer_type(one))
        for name, pointer in pointers.items():
            known = {name: pointer}
            if pointer.item.kind == "struct" and pointer.item.fields:
                known[f"{pointer.item.cname}[]"] = _cffi_backend.new_array_type(pointer, None)
            for each, type_ in known.items():
                ffi._parsed_types.setdefault(each, (type_, False))
