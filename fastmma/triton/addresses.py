"""Addresses of a kernel's loads and stores: those that are no tensor's are an error, and no crash."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmma.host.errors import NotEmulatedError

_LOWEST = np.uint64(1 << 16)  # below, no process has memory


def check_addresses(pointers: NDArray[Any], mask: NDArray[Any]) -> None:
    """Raise where an address is no tensor's: that of a pointer that is None, say, which a compiled kernel may never load from.

    Raises
    ------
    NotEmulatedError
    """
    wrong = (pointers < _LOWEST) & mask
    if wrong.any():
        raise NotEmulatedError(f"memory at {int(pointers[np.broadcast_to(wrong, pointers.shape)].flat[0])}, where no tensor lies")
