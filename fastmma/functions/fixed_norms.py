"""Layer norm and RMS norm of one form, and their gradients, from addresses: rows are whole vectors of 4 elements.

`fastmma.functions.norms` says in which order they add.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastmma import kernels
from fastmma.functions import libdevice
from fastmma.functions.arithmetic import F32
from fastmma.functions.moments import shares_of
from fastmma.host.addresses import address_of
from fastmma.host.errors import NotEmulatedError

if TYPE_CHECKING:
    from fastmma.kernels.matrices.memory import AlignedMemory

_SUMS = 2 * 128 * 4  # bytes of two sums of each of 128 threads
_ONE, _NOTHING = np.float32(1), np.float32(-0.0)  # a weight and a bias that change no bit


class NormForm(NamedTuple):
    """The key of a `FixedNorm`: its shape, dtype and operands.

    Attributes
    ----------
    rows, columns : int
    dtype : dtype
        Of all operands, and of the result.
    weighted, biased : bool
        Whether there is a weight, and a bias.
    centred : bool
        Whether means are subtracted, as layer norm does.
    """

    rows: int
    columns: int
    dtype: np.dtype[Any]
    weighted: bool
    biased: bool
    centred: bool


class FixedNorm:
    """A norm of whose operands and results only the addresses change."""

    def __init__(self, form: NormForm) -> None:
        rows, columns = form.rows, form.columns
        self._form, self._size = form, (rows, columns)
        self._shares = shares_of(columns)
        self._widen, self._widen_line = (_applied("rounded", F32, form.dtype, shape) for shape in (self._size, (columns,)))
        self._factor = _applied("norm_factor", F32, F32, (rows,), (1,), (1,))
        self._normalize = _applied("layer_norm", form.dtype, F32, self._size, (rows, 1), (rows, 1), (columns,), (columns,))
        self._ones, self._nothing = np.full(columns, _ONE), np.full(columns, _NOTHING)
        self._zeros = None if form.centred else np.zeros(rows, np.float32)  # in place of means
        self._numbers = math.nan, self._ones  # an eps, and the number of columns with it
        self._free: list[AlignedMemory] = []  # what no call uses now

    def __call__(self, eps: float, x: int, weight: int, bias: int, out: int, mean: int, rstd: int, threads: int | None = None) -> None:
        """Write the results, and a factor and, where rows are centred, a mean for each row.

        All but `eps` are addresses; those of a weight, of a bias and of means that are not there are not read.

        Raises
        ------
        NotEmulatedError
            If libdevice's reciprocal root is not that of CUDA 13.0 here.
        """
        if why := libdevice.difference("rsqrtf", (), 1):
            raise NotEmulatedError(why)
        try:
            memory = self._free.pop()
        except IndexError:
            memory = kernels.matrices.memory.AlignedMemory(_SUMS, 4 * self._form.rows, zeroed=True)
        self._compute(memory, eps, x, weight, bias, out, mean, rstd, threads)
        self._free.append(memory)

    def _compute(
        self, memory: AlignedMemory, eps: float, x: int, weight: int, bias: int, out: int, mean: int, rstd: int, threads: int | None
    ) -> None:
        form, kept = self._form, []

        def wide(how: Any, given: int, count: int) -> int:
            if form.dtype == F32:
                return given
            array = np.empty(count, np.float32)
            kept.append(array)
            how.run((given,), address_of(array), threads)
            return address_of(array)

        values = wide(self._widen, x, form.rows * form.columns)
        factor = wide(self._widen_line, weight, form.columns) if form.weighted else address_of(self._ones)
        added = wide(self._widen_line, bias, form.columns) if form.biased else address_of(self._nothing)
        scratch, squares = memory.addresses
        if self._zeros is None:
            kernels.functions.moments.find_moments(values, *self._size, address_of(self._shares), scratch, mean, squares)
        else:
            mean = address_of(self._zeros)
            kernels.functions.norms.add_squares(values, *self._size, scratch, squares)
        known, numbers = self._numbers
        if known != eps:
            numbers = np.array((form.columns, eps), np.float32)
            self._numbers = eps, numbers
        self._factor.run((squares, address_of(numbers), address_of(numbers) + F32.itemsize), rstd, threads)
        self._normalize.run((values, mean, rstd, factor, added), out, threads)


def _applied(name: str, dtype: Any, operands: Any, *shapes: tuple[int, ...]) -> Any:
    """Return what applies a formula to operands of one dtype, in rows however short they are."""
    kinds = tuple((np.dtype(operands), shape) for shape in shapes)
    return kernels.functions.apply.applied(name, (), kinds, np.dtype(dtype), shortest=0)


@lru_cache(256)
def _fixed(form: NormForm, libdevice_here: str) -> FixedNorm:  # noqa: ARG001
    return FixedNorm(form)


def fixed_norm(form: NormForm) -> FixedNorm:
    """Return what computes norms of a form."""
    return _fixed(form, kernels.functions.bitcode.file_digest())
