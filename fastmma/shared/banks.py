"""Bank conflicts: how often shared memory is asked for an access of a warp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.arrays import as_array
from fastmma.host.calls import public_call
from fastmma.host.errors import OperandError, OperandTypeError
from fastmma.host.integers import one_of
from fastmma.isa.targets import WARP

BANKS = 32
_WORD = 4  # bytes of a bank
_PHASE_BYTES = BANKS * _WORD  # that all banks serve together


@dataclass(frozen=True)
class BankConflicts:
    """The cost of an access of one warp.

    Attributes
    ----------
    wavefronts : tuple of int
        The number of accesses in each phase (the lanes that are served together). It is the largest number of words that one bank delivers.
    conflicts : int
        Wavefronts beyond one per phase; 0 is best.
    degree : int
        Wavefronts of the worst phase; 2 is a two-way conflict.
    banks : tuple of tuples of int
        The banks that deliver that many words in each phase.
    """

    wavefronts: tuple[int, ...]
    banks: tuple[tuple[int, ...], ...]

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond one per phase."""
        return sum(count - 1 for count in self.wavefronts if count)

    @property
    def degree(self) -> int:
        """The largest number of words that one bank delivers in a phase."""
        return max(self.wavefronts)

    def __str__(self) -> str:
        phases = f"{len(self.wavefronts)} phase{'s' if len(self.wavefronts) > 1 else ''}"
        if not self.conflicts:
            return f"no bank conflicts in {phases}"
        worst = self.banks[self.wavefronts.index(self.degree)]
        return f"{self.degree}-way bank conflicts: {sum(self.wavefronts)} wavefronts for {phases}; the worst at bank {worst[0]}"


@public_call
def bank_conflicts(addresses: Any, width: int, *, active: Any = None) -> BankConflicts:
    """Count the bank conflicts of a load or a store of one warp.

    Shared memory has 32 banks of 4 bytes; a bank delivers one word at a time, to all its readers. Lanes are served together in phases of at
    most 128 bytes: all 32 lanes if each moves at most 4 bytes, 16 lanes if 8 bytes, and 8 lanes if 16 bytes, as for the rows of one matrix
    of ldmatrix.

    Parameters
    ----------
    addresses : integer array (lanes,)
        The byte where each lane's access begins, a multiple of `width`, for 32 lanes, or fewer in whole phases (8 for ``ldmatrix.x1``).
    width : {1, 2, 4, 8, 16}
        Bytes that a lane moves: 16 for rows of ldmatrix and stmatrix.
    active : bool array (lanes,), optional
        Lanes that take part; all by default.

    Returns
    -------
    BankConflicts

    Raises
    ------
    OperandError, OperandTypeError

    Notes
    -----
    CUDA C++ Programming Guide: Shared Memory. The phases for 8 and 16 bytes are as profilers show them; no document states them.

    Examples
    --------
    >>> lane = np.arange(32)
    >>> print(bank_conflicts(lane * 128, 4))
    32-way bank conflicts: 32 wavefronts for 1 phase; the worst at bank 0
    >>> from fastmma.shared import Tile
    >>> print(bank_conflicts(Tile(32, 64, "f16", swizzle=128).addresses(lane), 16))
    no bank conflicts in 4 phases
    """
    width = one_of(width, (1, 2, 4, 8, 16), "bank_conflicts: width")
    array = as_array(addresses, "bank_conflicts: addresses")
    if array.dtype.kind not in "ui":
        raise OperandTypeError(f"bank_conflicts: addresses must be integers, not {array.dtype}")
    together = min(WARP, _PHASE_BYTES // width)
    if array.ndim != 1 or not 0 < array.shape[0] <= WARP or array.shape[0] % together:
        lanes = " or ".join(str(count) for count in range(together, WARP + 1, together))
        raise OperandError(f"bank_conflicts: addresses of {width} bytes must have shape ({lanes},), not {array.shape}")
    taking = np.ones(array.shape, bool) if active is None else as_array(active, "bank_conflicts: active")
    if taking.dtype != bool or taking.shape != array.shape:
        raise OperandError(f"bank_conflicts: active must be a bool array of shape {array.shape}, not {taking.dtype} of {taking.shape}")
    wrong = taking & ((array < 0) | (array % width != 0))
    if wrong.any():
        lane = int(np.flatnonzero(wrong)[0])
        raise OperandError(f"bank_conflicts: the address of lane {lane}, {int(array[lane])}, is not a multiple of {width}")
    phases = [_phase(array[start : start + together][taking[start : start + together]], width) for start in range(0, len(array), together)]
    return BankConflicts(tuple(count for count, _ in phases), tuple(banks for _, banks in phases))


def _phase(addresses: NDArray[Any], width: int) -> tuple[int, tuple[int, ...]]:
    """The most words that one bank has to give, and the banks that have to."""
    words = np.unique(addresses.astype(np.int64)[:, None] // _WORD + np.arange(max(1, width // _WORD)))
    counts = np.bincount(words % BANKS, minlength=BANKS)
    most = int(counts.max())
    return most, tuple(int(bank) for bank in np.flatnonzero(counts == most)) if most else ()
