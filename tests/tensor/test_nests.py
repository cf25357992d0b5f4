"""Nests of arrays on devices and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import drawn

import symgrad as sg
from symgrad.expr.tracers.tree import flatten

safetensors = pytest.importorskip("safetensors.numpy")

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]


def nest() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"W": drawn(rng, (3, 4)), "more": [drawn(rng, (5,)), (drawn(rng, ()), np.zeros((0, 2)))]}


@pytest.mark.parametrize("device", DEVICES)
def test_there_and_back(device: Literal["cpu", "gpu"], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    there = {"params": sg.device_put(nest(), device), "step": 7, "rate": 0.1}
    kind = sg.DeviceArray if device == "gpu" else np.ndarray
    assert all(isinstance(a, kind) for a in flatten(there["params"])[0])
    sg.save_arrays(path, there, about="a test")
    first = path.read_bytes()
    sg.save_arrays(path, there, about="a test")
    assert path.read_bytes() == first
    like = {"params": sg.device_put(nest(), device), "step": 0, "rate": 0.0}
    found = sg.load_arrays(path, like, about="a test")
    assert found["step"] == 7 and type(found["step"]) is int and found["rate"] == 0.1
    assert isinstance(found["params"]["more"][1], tuple)
    for a, b in zip(flatten(found)[0], flatten(there)[0], strict=True):
        assert type(a) is type(b) and np.array_equal(np.asarray(a), np.asarray(b))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    assert {*safetensors.load_file(path)} == {
        "params.W", "params.more.0", "params.more.1.0", "params.more.1.1", "step", "rate"
    }  # fmt: skip


def test_a_state_of_an_update_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    update, path = sg.adamw_update(0.1, device="cpu"), tmp_path / "state"
    params, state = update.run(nest(), nest())
    sg.save_arrays(path, (params, state))
    loaded, again = sg.load_arrays(path, (nest(), update.start(nest())))
    wanted, found = update.run(params, nest(), state), update.run(loaded, nest(), again)
    for a, b in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_what_others_wrote_stays(device: Literal["cpu", "gpu"], tmp_path: Path) -> None:
    there = sg.device_put(nest(), device)
    foreign = tmp_path / "foreign"
    for write in (
        lambda: foreign.write_text("the work of a year"),
        lambda: foreign.write_bytes(b""),
        lambda: safetensors.save_file({"W": np.ones(3)}, foreign),
    ):
        write()
        before = foreign.read_bytes()
        with pytest.raises(sg.InputError, match=r"not written by save_arrays|not a safet"):
            sg.save_arrays(foreign, there)
        with pytest.raises(sg.InputError, match=r"not written by save_arrays|not a safet"):
            sg.load_arrays(foreign, there)
        assert foreign.read_bytes() == before
    own = tmp_path / "own"
    sg.save_arrays(own, there, about="one model")
    before = own.read_bytes()
    with pytest.raises(sg.InputError, match="is about 'one model', not 'another'"):
        sg.save_arrays(own, there, about="another")
    assert own.read_bytes() == before


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path, full = tmp_path / "file", nest()
    sg.save_arrays(path, full)
    with pytest.raises(sg.InputError, match="differ in V"):
        sg.load_arrays(path, {**full, "V": np.ones(3)})
    with pytest.raises(sg.InputError, match=r"W in .* is float64 of shape \(3, 4\): float64 of"):
        sg.load_arrays(path, {**full, "W": np.ones((4, 3))})
    with pytest.raises(sg.InputError, match="int64 of shape"):
        sg.load_arrays(path, {**full, "W": np.ones((3, 4), int)})
    with pytest.raises(sg.InputError, match="is about '', not 'other'"):
        sg.load_arrays(path, full, about="other")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(sg.InputError, match="not a safetensors file"):
        sg.load_arrays(path, full)
    with pytest.raises(FileNotFoundError):
        sg.load_arrays(tmp_path / "none", full)
    with pytest.raises(sg.InputError, match=r"called a\.b"):
        sg.save_arrays(tmp_path / "twice", {"a.b": np.ones(1), "a": {"b": np.ones(1)}})
    with pytest.raises(sg.InputTypeError, match="strings"):
        sg.save_arrays(tmp_path / "words", {"a": "word"})
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    sg.save_arrays(path, nest())
    before = path.read_bytes()

    def refused(self: Path, target: Path) -> None:
        raise OSError("no room")

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(OSError, match="no room"):
        sg.save_arrays(path, {"other": np.ones(1000)})
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]
