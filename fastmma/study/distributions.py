"""Distributions of the operands of a study: one row each, reproducible from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import OperandError
from fastmma.host.threads import give_way

if TYPE_CHECKING:
    from numpy.random import Generator

    _Draw = Callable[[Generator, tuple[int, int]], "Matrix"]

Matrix = NDArray[np.float32]
_OUTLIER_PERCENT = 1
_OUTLIER_GAIN = 30.0
_AT_ONCE = 1 << 22  # numbers that are drawn together


@dataclass(frozen=True)
class Distribution:
    """A distribution from which one operand (rows, K) is drawn.

    Attributes
    ----------
    name : str
    law : str
        One line for reports.
    draw : callable
        ``draw(generator, shape)``; the last dimension is the one that is contracted, so that a column is a channel.
    """

    name: str
    law: str
    draw: _Draw


def _rows(fill: Callable[..., Matrix], shape: tuple[int, int]) -> Matrix:
    """A matrix that is filled some rows at a time: the same numbers as at once."""
    values = np.empty(shape, np.float32)
    step = max(1, _AT_ONCE // max(shape[1], 1))
    for start in range(0, shape[0], step):
        give_way()
        fill(out=values[start : start + step], dtype=np.float32)
    return values


def _normal(rng: Generator, shape: tuple[int, int]) -> Matrix:
    return _rows(rng.standard_normal, shape)


def _uniform(rng: Generator, shape: tuple[int, int]) -> Matrix:
    return np.float32(2) * _rows(rng.random, shape) - np.float32(1)


def _positive(rng: Generator, shape: tuple[int, int]) -> Matrix:
    return _rows(rng.random, shape)


def _lognormal(rng: Generator, shape: tuple[int, int]) -> Matrix:
    magnitude = np.exp(_rows(rng.standard_normal, shape))
    return np.where(_rows(rng.random, shape) < 0.5, -magnitude, magnitude)


def _outliers(rng: Generator, shape: tuple[int, int]) -> Matrix:
    values = _rows(rng.standard_normal, shape)
    # the same channels for both operands would need one more parameter; drawn apart, an outlier meets an ordinary value, as in a model
    channels = rng.permutation(shape[1])[: max(1, round(shape[1] * _OUTLIER_PERCENT / 100))]
    values[:, channels] *= np.float32(_OUTLIER_GAIN)
    return values


DISTRIBUTIONS: dict[str, Distribution] = {
    row.name: row
    for row in (
        Distribution("normal", "N(0, 1)", _normal),
        Distribution("uniform", "uniform in [-1, 1)", _uniform),
        Distribution("positive", "uniform in [0, 1)", _positive),
        Distribution("lognormal", "exp(N(0, 1)) with a random sign", _lognormal),
        Distribution("outliers", f"N(0, 1), {_OUTLIER_PERCENT}% of the channels of K times {_OUTLIER_GAIN:.0f}", _outliers),
    )
}


def distribution_of(name: Any) -> Distribution:
    """The row of that name.

    Raises
    ------
    OperandError
        If there is none.

    Examples
    --------
    >>> distribution_of("normal").law
    'N(0, 1)'
    """
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise OperandError(f"there is no distribution {name!r}; there are {', '.join(DISTRIBUTIONS)}")
    return DISTRIBUTIONS[name]


def generator(seed: int, operand: str) -> Generator:
    """The random numbers of one operand: those of "b" do not depend on the size of "a"."""
    return np.random.default_rng([seed, *operand.encode()])
