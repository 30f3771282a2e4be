"""Layouts of scales and of packed 4-bit elements, against the libraries' formulas."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import fastmma
from fastmma.scaling import from_blocked, pack_e2m1, to_blocked, unpack_e2m1

SHAPES = [(1, 1), (128, 4), (127, 3), (129, 5), (128, 8), (300, 17), (256, 1), (31, 64), (0, 4), (4, 0)]
E8M0, E4M3, E2M1 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
CODES = np.random.default_rng(5)


def offset(row: int, column: int, columns: int) -> int:
    """cuBLAS, 1D Block Scaling Factors Layout: tiles of 128 rows by 4 columns of 512 bytes, row after row of tiles."""
    tile = (row // 128) * -(-columns // 4) + column // 4
    outer, inner = row % 128, column % 4
    return tile * 512 + (outer % 32) * 16 + (outer // 32) * 4 + inner


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [E8M0, E4M3, np.uint8])
def test_offsets(shape: tuple[int, int], dtype: type) -> None:
    scales = CODES.integers(1, 255, shape, dtype=np.uint8)
    blocked = to_blocked(scales.view(dtype))
    assert blocked.dtype == dtype
    assert blocked.shape == (128 * -(-shape[0] // 128) * 4 * -(-shape[1] // 4),)
    expected = np.zeros(blocked.shape, np.uint8)
    for row in range(shape[0]):
        for column in range(shape[1]):
            expected[offset(row, column, shape[1])] = scales[row, column]
    assert np.array_equal(blocked.view(np.uint8), expected)
    back = from_blocked(blocked, *shape)
    assert back.dtype == dtype
    assert np.array_equal(back.view(np.uint8), scales)


def test_nvmath() -> None:
    """get_block_scale_offset of an operand (128, 128) in NVFP4: the index is (row, block along k), not (row, element)."""
    scales = np.zeros((128, 128 // 16), np.uint8)
    scales[5, 2], scales[5, 5] = 1, 2
    blocked = to_blocked(scales)
    assert (blocked[82], blocked[593]) == (1, 2)


@pytest.mark.parametrize("form", [np.asfortranarray, lambda a: np.repeat(a, 2, axis=1)[:, ::2], lambda a: a.T.copy().T])
def test_any_memory_order(form: object) -> None:
    scales = CODES.integers(0, 256, (130, 7), dtype=np.uint8)
    scales.flags.writeable = False
    assert np.array_equal(to_blocked(form(scales)), to_blocked(scales))


REFUSALS = [
    (lambda: to_blocked(np.zeros(4, np.uint8)), "scales must have shape \\(rows, columns\\), not \\(4,\\)"),
    (lambda: to_blocked(np.zeros((4, 4), np.float32)), "a dtype of one byte, .* not float32"),
    (lambda: from_blocked(np.zeros(512, np.uint8), 128, 5), "blocked must hold 1 x 2 tiles of 512 scales for 128 x 5, not 512 scales"),
    *(
        (lambda rows=rows, columns=columns: from_blocked(np.zeros(512, np.uint8), rows, columns), "rows and columns must be integers")
        for rows, columns in ((-1, 4), (4, 1.5), (None, 4), (True, 4))
    ),
    (lambda: pack_e2m1(np.zeros((2, 3), E2M1)), r"even extent along axis -1 .* \(2, 3\)"),
    (lambda: pack_e2m1(np.zeros((2, 4), np.uint8)), "must have dtype float4_e2m1fn, not uint8"),
    (lambda: unpack_e2m1(np.zeros((2, 4), np.int8)), "packed must have dtype uint8"),
    (lambda: pack_e2m1(np.zeros((), E2M1)), "at least one dimension"),
    (lambda: unpack_e2m1(np.uint8(3)), "at least one dimension"),
    *(
        (lambda call=call, dtype=dtype, axis=axis: call(np.zeros((2, 4), dtype), axis), "axis must be an integer from -2 to 1")
        for call, dtype in ((pack_e2m1, E2M1), (unpack_e2m1, np.uint8))
        for axis in (2, -3, None, 0.0)
    ),
]


@pytest.mark.parametrize(("call", "says"), REFUSALS)
def test_what_is_refused(call: Callable[[], object], says: str) -> None:
    error = fastmma.OperandTypeError if "dtype" in says else fastmma.OperandError
    with pytest.raises(error, match=says):
        call()


def test_nibbles() -> None:
    """1.0 is 2, -6.0 is 15, 0.5 is 1, -0.0 is 8: the first in the low nibble."""
    elements = np.array([[1, -6], [0.5, -0.0]], E2M1)
    assert pack_e2m1(elements).tolist() == [[0xF2], [0x81]]
    assert pack_e2m1(elements, axis=0).tolist() == [[0x12, 0x8F]]


@pytest.mark.parametrize(("shape", "axis"), [((6,), 0), ((4, 6), 1), ((4, 6), 0), ((4, 6), -2), ((3, 4, 5), 1), ((0, 4), 1), ((4, 0), 1)])
def test_packing_and_back(shape: tuple[int, ...], axis: int) -> None:
    codes = CODES.integers(0, 16, shape, dtype=np.uint8)
    for form in (codes, np.asfortranarray(codes)):
        packed = pack_e2m1(form.view(E2M1), axis)
        assert packed.dtype == np.uint8
        first, second = np.take(codes, range(0, shape[axis], 2), axis), np.take(codes, range(1, shape[axis], 2), axis)
        assert np.array_equal(packed, first + 16 * second)
        back = unpack_e2m1(packed, axis)
        assert back.dtype == E2M1
        assert np.array_equal(back.view(np.uint8), codes)
