"""Fits of xarray's arrays: the same numbers as those of NumPy's, with coordinates kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg

xr: Any = pytest.importorskip("xarray", reason="needs xarray")

T = np.linspace(0.0, 3.0, 25)
RNG = np.random.default_rng(5)


def decay(x: Any, amount: Any, rate: Any) -> Any:
    return amount * np.exp(-rate * x)


def gaussian(x: Any, height: Any, row: Any, column: Any) -> Any:
    return height * np.exp(-((x[0] - row) ** 2) - (x[1] - column) ** 2)


def field() -> Any:
    """(lat, time, lon), with a coordinate that is no dimension, and noise."""
    coords = {"lat": [10.0, 20.0, 30.0], "lon": [1, 2], "time": T, "site": ("lat", list("abc"))}
    values = RNG.uniform(0.5, 2.0, (2, 3, 1, 2))
    curves = decay(T[:, None], *values) + 0.01 * RNG.normal(size=(3, 25, 2))
    return xr.DataArray(curves, coords, ("lat", "time", "lon"), attrs={"units": "V"})


FIELD = field()


def fitted(*given: Any, **options: Any) -> Any:
    return sg.fit_many(*given, device="cpu", **options)


def test_it_finds_what_xarray_finds() -> None:
    found = fitted(decay, "time", FIELD, [1.0, 1.0], covariance=True)
    want = FIELD.curvefit("time", decay, p0={"amount": 1.0, "rate": 1.0})
    dims = "lat", "lon", "param"
    coefficients = want.curvefit_coefficients.transpose(*dims)
    np.testing.assert_allclose(found.parameters.transpose(*dims), coefficients, rtol=1e-5)
    covariance = want.curvefit_covariance.transpose("lat", "lon", "cov_i", "cov_j")
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-3)
    np.testing.assert_allclose(
        found.errors, np.sqrt(np.einsum("abii->abi", found.covariance)), rtol=1e-12
    )
    assert list(found.param) == list(want.param) == ["amount", "rate"]
    assert list(found.cov_i) == list(want.cov_i)


def test_it_is_the_fit_of_the_same_numbers() -> None:
    found = fitted(decay, "time", FIELD, [1.0, 1.0])
    curves = FIELD.transpose("lat", "lon", "time").values.reshape(6, -1)
    want = fitted(decay, T, curves, [1.0, 1.0])
    np.testing.assert_array_equal(found.parameters.values.reshape(6, 2), want.x)
    for name in ("fun", "nit", "status", "success"):
        np.testing.assert_array_equal(found[name].values.ravel(), want[name])


def test_coordinates_and_attributes_are_kept() -> None:
    found = fitted(decay, "time", FIELD)
    assert set(found.coords) == {"lat", "lon", "site", "param"}
    assert found.site.dims == ("lat",) and found.attrs == {"units": "V"}
    one = fitted(decay, "time", FIELD.sel(lat=20.0, lon=2))
    assert one.fun.dims == () and float(one.lat) == 20.0
    np.testing.assert_array_equal(one.parameters, found.parameters.sel(lat=20.0, lon=2))


def test_images_are_fitted_along_two_dimensions() -> None:
    rows, columns = np.linspace(-2, 2, 7), np.linspace(-1, 3, 6)
    p = RNG.uniform(0.0, 1.0, (4, 3)) + np.array([1.0, 0.0, 0.0])
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"))
    images = np.stack([gaussian(grid, *one) for one in p])
    coords = {"row": rows, "column": columns}
    array = xr.DataArray(images, coords, ("frame", "row", "column"))
    found = fitted(gaussian, ["row", "column"], array.transpose("column", "frame", "row"))
    np.testing.assert_allclose(found.parameters, p, rtol=1e-9)


def test_curves_may_have_an_x_of_their_own() -> None:
    depth = xr.DataArray(np.outer([1.0, 1.5, 2.0], T), dims=("profile", "level"))
    array = decay(depth, 2.0, 0.7).assign_coords(depth=depth)
    found = fitted(decay, "depth", array, dim="level")
    np.testing.assert_allclose(found.parameters, [[2.0, 0.7]] * 3, rtol=1e-9)
    assert found.parameters.dims == ("profile", "param")


def test_starts_and_deviations_have_labels_too() -> None:
    near = fitted(decay, "time", FIELD)
    again = fitted(decay, "time", FIELD, near.parameters.transpose("param", "lon", "lat"))
    assert int(again.nit.max()) <= 1
    rates = fitted(decay, "time", FIELD, {"rate": near.parameters.sel(param="rate")})
    np.testing.assert_allclose(rates.parameters, near.parameters, rtol=1e-6)
    spread = xr.DataArray([1.0, 2.0, 3.0], dims="lat") * xr.DataArray(1 + T, dims="time")
    found = fitted(decay, "time", FIELD, sigma=spread, absolute_sigma=True)
    for k, lat in enumerate(FIELD.lat):
        y = FIELD.sel(lat=lat, lon=1).values
        popt, pcov = sg.curve_fit(decay, T, y, sigma=(k + 1.0) * (1 + T), absolute_sigma=True)
        at = found.sel(lat=lat, lon=1)
        np.testing.assert_allclose(at.parameters, popt, rtol=1e-6)
        np.testing.assert_allclose(at.errors, np.sqrt(np.diag(pcov)), rtol=1e-5)


def test_labels_say_what_belongs_to_which_curve() -> None:
    true = fitted(decay, "time", FIELD, [1.0, 1.0]).parameters
    turned = true.isel(lat=[2, 0, 1], param=[1, 0])
    assert not fitted(decay, "time", FIELD, turned).nit.any()  # it starts at the minimum
    some = fitted(decay, "time", FIELD, turned.sel(param=["rate"]))
    by_name = fitted(decay, "time", FIELD, {"rate": true.sel(param="rate", drop=True)})
    np.testing.assert_array_equal(some.nit, by_name.nit)
    more = xr.concat([turned, turned.assign_coords(lat=[40.0, 50.0, 60.0])], "lat")
    assert not fitted(decay, "time", FIELD, more).nit.any()
    with pytest.raises(sg.InputError, match=r"has no value at lat = "):
        fitted(decay, "time", FIELD, turned.sel(lat=[10.0, 30.0]))
    with pytest.raises(sg.InputError, match="p0 names 'decay'"):
        fitted(decay, "time", FIELD, turned.assign_coords(param=["decay", "rate"]))
    unlabelled = turned.drop_vars("lat").isel(lat=[0, 1])
    with pytest.raises(sg.InputError, match="has 2 values along 'lat': 3 are needed"):
        fitted(decay, "time", FIELD, unlabelled)


def test_there_may_be_no_curves() -> None:
    found = fitted(decay, "time", FIELD.isel(lat=[]), [1.0, 1.0])
    assert dict(found.sizes) == {"lat": 0, "lon": 2, "param": 2}


@pytest.mark.parametrize("name", ["param", "cov_j"])
def test_names_of_results_are_no_dimensions_of_curves(name: str) -> None:
    with pytest.raises(sg.InputError, match=rf"array\.rename\({name}=\.\.\.\)"):
        fitted(decay, "time", FIELD.rename(lat=name), [1.0, 1.0])


def test_rows_with_nan_are_left_out_on_request() -> None:
    holes = FIELD.where((FIELD.time < 1.0) | (FIELD.time > 1.5) | (FIELD.lon == 2))
    found = fitted(decay, "time", holes, nan_policy="omit")
    whole = fitted(decay, "time", FIELD)
    np.testing.assert_allclose(found.parameters.sel(lon=2), whole.parameters.sel(lon=2), rtol=1e-8)
    short = FIELD.sel(lon=1).where((FIELD.time < 1.0) | (FIELD.time > 1.5), drop=True)
    want = fitted(decay, "time", short)
    np.testing.assert_allclose(found.parameters.sel(lon=1), want.parameters, rtol=1e-6)
    spoilt = fitted(decay, "time", holes)
    assert not spoilt.success.sel(lon=1).any() and bool(spoilt.success.sel(lon=2).all())


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        ("tim", {}, "x names 'tim': the array has the coordinates lat, lon, site, time"),
        (T, {}, 'the name of the coordinate to fit along, such as "time"'),
        ([], {}, "the name of the coordinate"),
        ("site", {}, "'site' holds .*: numbers are needed"),
        ("time", {"dim": "when"}, r"dim names \['when'\]"),
        ("time", {"p0": FIELD}, "'param' is needed"),
        ("time", {"p0": {"rate": FIELD}}, r"p0 has the dimensions \['time'\]"),
        ("time", {"sigma": FIELD.rename(lat="y")}, r"sigma has the dimensions \['y'\]"),
    ],
)
def test_what_it_refuses(x: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        fitted(decay, x, FIELD, **options)


def test_kernels_take_them_as_arrays() -> None:
    kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="cpu")
    points = FIELD.isel(lat=0).transpose("time", "lon")
    np.testing.assert_array_equal(kernel.run(points), kernel.run(points.values))
