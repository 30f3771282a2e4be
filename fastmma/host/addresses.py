"""Read where arrays lie in memory, asked as often as products are called."""

from __future__ import annotations

import ctypes
from typing import Any

from numpy.typing import NDArray

DATA = object.__basicsize__  # where NumPy's ABI has the address of an array's elements: asking the array takes five times as long
_word_at = ctypes.c_size_t.from_address


def address_of(array: NDArray[Any]) -> int:
    """Return where the first element of an array lies.

    Examples
    --------
    >>> import numpy as np
    >>> array = np.zeros(8)[2:]
    >>> address_of(array) == array.ctypes.data
    True
    """
    return _word_at(id(array) + DATA).value
