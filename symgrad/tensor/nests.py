"""Nests of arrays: to a device, to a file, and back from it."""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.errors import InputError, SymgradError
from symgrad.expr.tracers.tree import flatten
from symgrad.kernel.host.memory import ResidentArray
from symgrad.values.arrays import real_numbers

MARK: Final = "symgrad"
"""The only entry of a file's metadata: there the order of several would vary."""

WRITTEN: Final = "arrays 1 about "
"""How it begins where `save_arrays` wrote it; behind that stands what the file is about."""


def device_put(nest: Any, device: targets.DeviceChoice = None) -> Any:
    """The arrays of a nest, where kernels of a device have them, nested as they are.

    These are float32 `DeviceArray`s of a GPU, and NumPy's float32 arrays for the CPU.

    Raises:
        InputTypeError: for what holds no real numbers. DeviceError: if there is no such device.

    Example:
        >>> import symgrad as sg
        >>> p = sg.device_put({"W": [[1.0, 2.0]], "b": 0.5}, "cpu")
        >>> p["W"].dtype, p["b"].shape
        (dtype('float32'), ())
    """
    target = targets.choose(device)
    leaves, tree = flatten(nest)
    if not backend_of(target).on_host:
        arrays = [targets.device_array(np.asarray(a), target) for a in leaves]
    else:
        arrays = [np.array(real_numbers(np.asarray(a), "nest"), np.float32) for a in leaves]
    return tree.nest(iter(arrays), None)


def save_arrays(path: str | os.PathLike[str], nest: Any, about: str = "") -> None:
    """Write the arrays and numbers of a nest to a file of the safetensors format.

    Each is under its name, ``params.W`` for that of ``{"params": {"W": ..}}``. The file is first
    written beside the old one, and then takes its place, so that there is always a whole one. A
    file that this function has not written, or that is ``about`` something else, stays.

    Raises:
        InputError: if such a file is there, or two arrays have one name.
        SymgradError: without the package safetensors: see the extra ``files``.

    Example:
        >>> import tempfile, numpy as np, symgrad as sg
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sg.save_arrays(f"{folder}/p.safetensors", {"W": np.ones((1, 2)), "step": 3})
        ...     sg.load_arrays(f"{folder}/p.safetensors", {"W": np.zeros((1, 2)), "step": 0})
        {'W': array([[1., 1.]]), 'step': 3}
    """
    target = Path(path)
    if target.exists():
        _require_own(target, about)
    leaves, names = _named(nest)
    arrays = {n: np.asarray(a, order="C") for n, a in zip(names, map(_hosted, leaves), strict=True)}
    data = _package().numpy.save(arrays, {MARK: WRITTEN + about})
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(beside).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(beside).unlink()
        raise


def load_arrays(path: str | os.PathLike[str], like: Any, about: str = "") -> Any:
    """Loads a file of `save_arrays` as a nest like another one, on the devices of its arrays.

    Numbers are Python's where ``like`` has such. The file is trusted with nothing: it has to be of
    that function, ``about`` the same, with these names and shapes, and of floats where there are
    floats.

    Raises:
        InputError: if it is not, naming what is wrong. OSError: if it cannot be read.
        SymgradError: without the package safetensors: see the extra ``files``.

    Example:
        >>> import symgrad as sg, tempfile, pathlib
        >>> params = {"W": sg.device_put([[1.0, 2.0]], "cpu"), "step": 3}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "model.safetensors")
        ...     sg.save_arrays(path, params, about="a model")
        ...     sg.load_arrays(path, params, about="a model")
        {'W': array([[1., 2.]], dtype=float32), 'step': 3}
    """
    leaves, names = _named(like)
    stored = _require_own(Path(path), about)
    if missing := sorted({*names} ^ stored.keys()):
        raise InputError(f"{path} and the arrays to load differ in {', '.join(missing)}")
    arrays = [_fitting(stored[n], leaf, n, path) for n, leaf in zip(names, leaves, strict=True)]
    return flatten(like)[1].nest(iter(arrays), None)


def _package() -> Any:
    """The package of the format."""
    try:
        importlib.import_module("safetensors.numpy")
        return importlib.import_module("safetensors")
    except ImportError as error:
        raise SymgradError("files need safetensors: pip install 'symgrad[files]'") from error


def _require_own(path: Path, about: str) -> Mapping[str, np.ndarray]:
    """The arrays of a file that is symgrad's, about something."""
    package = _package()
    try:
        with package.safe_open(path, framework="np") as file:
            _, written, subject = (file.metadata() or {}).get(MARK, "").partition(WRITTEN)
            if not written:
                raise InputError(f"{path} was not written by save_arrays: use another path")
            if subject != about:
                raise InputError(f"{path} is about {subject!r}, not {about!r}")
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (package.SafetensorError, TypeError) as error:
        raise InputError(f"{path} is not a safetensors file: use another path") from error


def _named(nest: Any) -> tuple[list[Any], list[str]]:
    """The leaves of a nest, and their names."""
    leaves, tree = flatten(nest)
    names = [block.name for block in tree.blocks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two arrays are called {', '.join(twice)}")
    return leaves, names


def _hosted(leaf: Any) -> np.ndarray:
    return leaf.numpy() if isinstance(leaf, ResidentArray) else real_numbers(leaf, "nest")


def _fitting(array: np.ndarray, leaf: Any, name: str, path: Any) -> Any:
    """An array of a file in the place of another one, if it fits."""
    wanted = leaf if isinstance(leaf, ResidentArray) else real_numbers(leaf, name)
    if array.shape != wanted.shape or array.dtype.kind != wanted.dtype.kind:
        raise InputError(
            f"{name} in {path} is {array.dtype} of shape {array.shape}: {wanted.dtype} of shape "
            f"{wanted.shape} is needed"
        )
    if isinstance(leaf, ResidentArray):
        return leaf.beside(array)
    return array.item() if isinstance(leaf, int | float) else array
