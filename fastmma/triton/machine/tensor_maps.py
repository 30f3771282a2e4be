"""Tensor maps of a launch in executed PTX: 128 bytes among the parameters, which say where a tensor lies and which box of it a copy takes.

The bytes are fastmma's own: no kernel reads those of a real one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastmma.host.errors import NotEmulatedError
from fastmma.shared.swizzle import Swizzle
from fastmma.triton.gluon.maps import TensorMap
from fastmma.triton.machine.state import Array
from fastmma.triton.machine.values import UNSIGNED

BYTES = 128
_FORM = struct.Struct("<Q3B5H5I5Q")  # the address; bytes of an element, dimensions, the swizzle; boxes, sizes and strides
_MOST = 5  # dimensions
_ROWS = (0, 32, 64, 128)  # bytes of a row, by Triton's number of the swizzle
_PERIOD = 1024  # bytes after which every swizzle repeats


@dataclass(frozen=True)
class BoxMap:
    """A tensor, and the box of it that one copy takes.

    Attributes
    ----------
    tensor : TensorMap
    box : tuple of int
        Elements along each dimension.
    row_bytes : int
        Of the swizzle: 0, 32, 64 or 128.
    """

    tensor: TensorMap
    box: tuple[int, ...]
    row_bytes: int

    def places(self, start: int) -> Array:
        """Return where the bytes of the box lie in shared memory, from an address on."""
        count = self.tensor.dtype.itemsize * int(np.prod(self.box))
        return _places(count, self.row_bytes, start % _PERIOD) + (start - start % _PERIOD)


@lru_cache(maxsize=64)
def _places(count: int, row_bytes: int, start: int) -> Array:
    return np.asarray(Swizzle.mode(row_bytes)(np.arange(start, start + count)))


def encode_map(descriptor: Any, told: Mapping[str, Any]) -> bytes:
    """Return the bytes of a descriptor.

    Parameters
    ----------
    descriptor : triton.tools.tensor_descriptor.TensorDescriptor
    told : mapping
        What Triton's compiler says of it: the box of one copy, the swizzle, the bytes of an element.

    Raises
    ------
    NotEmulatedError
        If it fills with NaN, rounds, or widens what it loads.
    """
    changes = {
        "padding='nan'": descriptor.padding == "nan",
        "f32 that is rounded to tf32": descriptor.round_f32_to_tf32,
        "elements of 4 bits that are widened": told["fp4_padded"],
        "im2col": told.get("is_im2col"),
    }
    if any(changes.values()):
        raise NotEmulatedError(f"a tensor descriptor with {', '.join(name for name, holds in changes.items() if holds)}")
    rank = len(descriptor.shape)
    box, shape, strides = (
        [*map(int, each), *[0] * (_MOST - len(each))] for each in (told["block_size"], descriptor.shape, descriptor.strides)
    )
    made = _FORM.pack(descriptor.base.data_ptr(), told["elem_size"], rank, told["swizzle"], *box, *shape, *strides)
    return made.ljust(BYTES, b"\0")


def decode_map(held: bytes) -> BoxMap:
    """Return what `encode_map` encoded.

    Examples
    --------
    >>> decode_map(_FORM.pack(4096, 2, 1, 0, *[8] * 5, *[64] * 5, *[1] * 5)).box
    (8,)
    """
    address, size, rank, swizzle, *rest = _FORM.unpack(held[: _FORM.size])
    box, shape, strides = (tuple(rest[first : first + rank]) for first in range(0, 3 * _MOST, _MOST))
    return BoxMap(TensorMap(address, UNSIGNED[size], shape, strides), box, _ROWS[swizzle])
