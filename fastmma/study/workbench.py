"""The operands of a case: drawn or read, rounded, and their exact products, shared by cases that differ only in what multiplies them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmma.host.threads import parallel_for
from fastmma.study.distributions import distribution_of, generator
from fastmma.study.encoding import Encoded, encoded, formats_of
from fastmma.study.exact import product
from fastmma.study.grid import Case
from fastmma.study.metrics import ratio
from fastmma.study.products import IEEE
from fastmma.study.tensors import digest_of

Values = NDArray[np.float64]
_CHUNK = 1 << 20  # elements of B that are in float64 at a time
_DIGITS = 10


class Originals(NamedTuple):
    """The operands (rows, K) before they are rounded, what is compared of their product, and the float64 product there.

    Attributes
    ----------
    a, b : float32 or float64 array (M, K), (N, K)
    rows, columns : integer arrays
        Of the product: what is compared lies where they cross.
    product : float64 array (rows, columns)
    digests : (str, str)
        SHA-256 of both, as `fastmma.study.tensors.digest_of` has it.
    """

    a: NDArray[Any]
    b: NDArray[Any]
    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    product: Values
    digests: tuple[str, str]


class StudiedOperands(NamedTuple):
    """The operands as an instruction takes them, and what is compared of their exact product.

    Attributes
    ----------
    a, b : Encoded
    product : float64 array (rows, columns)
    exact : bool
        Whether it is exact up to one rounding to float64 (two where tensors have scales).
    mse : (float or None, float or None)
        Mean squared errors of those rows of A, and of B, over their mean squares.
    """

    a: Encoded
    b: Encoded
    product: Values
    exact: bool
    mse: tuple[float | None, float | None]


def _chunks(rows: NDArray[np.intp], depth: int) -> Iterator[NDArray[np.intp]]:
    step = max(1, _CHUNK // depth)
    return (rows[start : start + step] for start in range(0, len(rows), step))


def _sample(extent: int, most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """All indices in ascending order, or as many of them as there may be."""
    return np.arange(extent) if extent <= most else np.sort(rng.choice(extent, most, replace=False))


class _Error:
    """Mean squared error over mean square, of what is finite."""

    def __init__(self) -> None:
        self._errors = self._squares = 0.0

    def add(self, values: Values, original: NDArray[Any]) -> None:
        """Take in some rows."""
        x = original.astype(np.float64).ravel()
        with np.errstate(invalid="ignore"):  # infinity less infinity
            error = values.ravel() - x
        if not np.isfinite(error).all():
            use = np.isfinite(error)
            x, error = x[use], error[use]
        self._errors += float(error @ error)
        self._squares += float(x @ x)

    def summary(self) -> float | None:
        """With ten significant digits; None for errors of zeros."""
        found = ratio(self._errors, self._squares)
        return None if found is None else float(f"{found:.{_DIGITS}g}")


class Workbench:
    """Operands of the case at hand; those of the case before are kept as far as they are the same.

    Parameters
    ----------
    tensors : dict of str to array
        Those read from files, by the names that cases have for them.
    threads : int
    """

    def __init__(self, tensors: dict[str, NDArray[Any]], threads: int) -> None:
        self._tensors, self._threads = tensors, threads
        self._originals: tuple[Case, Originals] | None = None
        self._operands: tuple[Case, StudiedOperands] | None = None

    def with_tensors(self, tensors: dict[str, NDArray[Any]]) -> Workbench:
        """Itself, with the tensors of the cases that come."""
        self._tensors = tensors
        return self

    def originals(self, case: Case) -> Originals:
        """The matrices of a case as drawn or read."""
        key = replace(case, format="f16", target=IEEE, promote_every=None, split_k=1, arithmetic="")
        if self._originals is None or self._originals[0] != key:
            self._originals = self._operands = None  # two of them would not fit into memory where one does
            self._originals = key, self._draw(case)
        return self._originals[1]

    def _draw(self, case: Case) -> Originals:
        law, drawn, digests = distribution_of(case.distribution), {}, {}
        sources = (("a", case.activations, case.m), ("b", case.weights, case.n))

        def draw(start: int, stop: int, _worker: int) -> None:
            for name, file, extent in sources[start:stop]:
                drawn[name] = self._tensors[file] if file else law.draw(generator(case.seed, name), (extent, case.k))
                digests[name] = digest_of(drawn[name])

        parallel_for(draw, len(sources), self._threads)
        a, b = drawn["a"], drawn["b"]
        rows, columns = (_sample(extent, case.sample, generator(case.seed, f"{name} rows")) for name, _, extent in sources)
        left = a[rows].astype(np.float64)
        with np.errstate(all="ignore"):
            parts = [left @ b[chunk].astype(np.float64).T for chunk in _chunks(columns, case.k)]
        return Originals(a, b, rows, columns, np.concatenate(parts, axis=1), (digests["a"], digests["b"]))

    def operands(self, case: Case) -> StudiedOperands:
        """The matrices of a case as its formats hold them."""
        key = replace(case, target=IEEE, promote_every=None, split_k=1, arithmetic="")
        source = self.originals(case)
        if self._operands is None or self._operands[0] != key:
            self._operands = None
            self._operands = key, self._encode(case, source)
        return self._operands[1]

    def _encode(self, case: Case, source: Originals) -> StudiedOperands:
        formats = formats_of(case.format)
        a, b = (
            encoded(x, fmt, generator(case.seed, f"{name} rounding"), self._threads)
            for name, x, fmt in (("a", source.a, formats[0]), ("b", source.b, formats[1]))
        )
        bits = formats[0].significand_bits, formats[1].significand_bits
        errors = _Error(), _Error()
        left, parts, exact = a.values(source.rows), [], True
        with np.errstate(invalid="ignore"):
            errors[0].add(left * a.factor, source.a[source.rows])
        for chunk in _chunks(source.columns, case.k):
            right = b.values(chunk)
            found = product(left, right.T, bits)
            with np.errstate(invalid="ignore"):  # infinities and NaN of the tensors
                parts.append(found.values * (a.factor * b.factor))
                right *= b.factor
            exact &= found.exact
            errors[1].add(right, source.b[chunk])
        return StudiedOperands(a, b, np.concatenate(parts, axis=1), exact, (errors[0].summary(), errors[1].summary()))
