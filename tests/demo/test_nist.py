"""The reader of NIST's files, and that the models are those of the files."""

from __future__ import annotations

import numpy as np
import pytest

import symgrad as sg
from symgrad.demo import demonstration
from symgrad.demo.demonstration import MODELS


def test_a_file_is_read_as_it_is_printed() -> None:
    data = demonstration.load("Thurber")
    assert (data.name, data.level) == ("Thurber", "higher")
    assert (data.response, data.predictor) == ("electron mobility", "log(density)")
    assert data.parameters == ("b1", "b2", "b3", "b4", "b5", "b6", "b7")
    np.testing.assert_array_equal(data.starts[:, 0], [1000, 1300])
    assert (data.certified[0], data.deviations[0]) == (1.28813968e3, 4.6647963344)
    assert data.residual_sum == 5.6427082397e3
    assert data.x.shape == data.y.shape == (37,)
    assert (data.y[0], data.x[0], data.y[-1], data.x[-1]) == (80.574, -3.067, 1457.628, 2.2)


@pytest.mark.parametrize("name", demonstration.available())
def test_certified_parameters_have_the_certified_sum_of_squares(name: str) -> None:
    data = demonstration.load(name)
    residuals = MODELS[name](data.x, data.certified) - data.y
    # Lanczos3 has five digits, and residuals in the last of them
    assert np.sum(residuals**2) == pytest.approx(data.residual_sum, rel=1e-6)


def test_names_are_found_in_any_case_and_others_are_refused() -> None:
    assert demonstration.load("GAUSS1").name == "Gauss1"
    with pytest.raises(sg.InputError, match=r"no data set 'Gauss9': choose one of Chwirut2, .*"):
        demonstration.load("Gauss9")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a NIST data set"),
        ("Starting Values (lines 2 to 2)\nb1 = one 2 3 4", "something other than numbers"),
        (
            "Starting Values (lines 2 to 2) Data (lines 3 to 3)\nb1 = 1 2 3 4\n1 2 3",
            "columns y and x",
        ),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        demonstration.parse(text)
