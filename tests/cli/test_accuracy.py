"""The errors that `fastmma gemm` reports."""

from __future__ import annotations

import numpy as np
import pytest

from fastmma.cli.accuracy import Errors


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
def test_the_error_of_the_whole_neither_overflows_nor_vanishes(scale: float) -> None:
    exact = np.array([[3.0, 4.0, np.inf], [0.0, 12.0, 1.0]]) * scale
    result = np.array([[3.0, 4.5, 1.0], [1.2, 12.0, np.nan]]) * scale
    errors = Errors()
    for row in range(2):
        errors.add(result[row : row + 1], exact[row : row + 1])
    found = errors.summary()
    assert found["relative_error"] == pytest.approx(1.3 / 13)  # the infinity and the NaN are left out
    assert (found["compared"], found["max_relative"]) == (3, pytest.approx(0.125))


def test_nothing_to_compare() -> None:
    errors = Errors()
    errors.add(np.zeros((0, 4)), np.zeros((0, 4)))
    assert errors.summary() == {"relative_error": None, "max_relative": 0.0, "mean_relative": None, "compared": 0}
