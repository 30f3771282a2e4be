"""Matrix products built from single instructions, and adversarial matrices of codes to multiply."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmma
from fastmma import FORMATS, Instruction, ScaledArray, scaled_matmul
from fastmma.isa.codes import from_codes
from reference.paths import PATHS, taking

Codes = NDArray[Any]
VALUES = ("normal", "spread", "vanishing", "large", "exact", "rare", "extreme")


def elements(codes: Codes, fmt: str) -> NDArray[Any]:
    """Codes as an array of the format's dtype."""
    return from_codes(codes.astype(FORMATS[fmt].code_dtype), fmt)


def bits(array: NDArray[Any]) -> Codes:
    """The bits of an array of results."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def both(a: ScaledArray, b: ScaledArray, **options: Any) -> NDArray[Any]:
    """The scaled product, after the reference and the kernels of each path have given the same bits."""
    expected = scaled_matmul(a, b, backend="reference", **options)
    for path in PATHS:
        with taking(path):
            found = scaled_matmul(a, b, **options)
        np.testing.assert_array_equal(bits(found), bits(expected), err_msg=path)
    return found


def special_codes(fmt: str) -> Codes:
    """Both signs of: zero, the smallest numbers, the largest subnormal, one and its neighbours, the largest, and what is special."""
    row = FORMATS[fmt]
    if row.kind != "float":
        width = row.bits
        return np.unique(np.array([0, 1, (1 << width) - 1, 1 << (width - 1), (1 << width >> 1) - 1], np.uint64)).astype(row.code_dtype)
    one = row.bias << row.mantissa_bits
    top = 1 << (row.exponent_bits + row.mantissa_bits)
    normal = 1 << row.mantissa_bits
    codes = [0, 1, 2, normal - 1, normal, normal + 1, one - 1, one, one + 1, one + normal - 1, top // 2, top - normal - 1, top - 2 * normal]
    codes += [top - normal, top - normal + 1, top - 2, top - 1]
    array = np.array([code for code in codes if 0 <= code < top], np.uint64)
    return np.unique(np.concatenate([array, array | np.uint64(top)]) << np.uint64(row.padding)).astype(row.code_dtype)


def _finite(codes: Codes, fmt: str) -> Codes:
    return codes[np.isfinite(fastmma.decode(codes, fmt))] if FORMATS[fmt].kind == "float" else codes


def nearby_codes(fmt: str, values: NDArray[np.float64]) -> Codes:
    """Finite codes next to values, away from zero where there is one."""
    row = FORMATS[fmt]
    magnitudes = fastmma.decode(np.arange(row.first_special, dtype=np.uint32) << np.uint32(row.padding), fmt)
    index = np.minimum(np.searchsorted(magnitudes, np.abs(values)), row.first_special - 1)
    sign = np.signbit(values).astype(np.int64) << row.magnitude_bits
    return ((index | sign) << row.padding).astype(row.code_dtype)


def _numbers(generator: np.random.Generator, fmt: str, shape: tuple[int, ...], distribution: str) -> NDArray[np.float64]:
    """Numbers of one of the distributions of `VALUES`."""
    if distribution == "exact":
        return generator.choice([0.0, -0.0, 1.0, -1.0, 2.0**-6, -(2.0**-9), 2.0**-12, 1.5], shape)
    if distribution == "extreme":
        largest = FORMATS[fmt].max
        return generator.choice([largest, largest, largest / 2, 0.0], (*shape[:-1], 1)) * generator.choice([1, 1, 1, -1], shape)
    exponents = {"spread": (-30, 12), "vanishing": (-140, -50), "large": (0, 127)}.get(distribution, (0, 1))
    return generator.standard_normal(shape) * 2.0 ** generator.integers(*exponents, shape)


def random_codes(generator: np.random.Generator, fmt: str, shape: tuple[int, ...], distribution: str) -> Codes:
    """Codes of a distribution.

    By codes: "bits", "special", "finite" (specials that are), "zero", "near" (one), "tiny", "huge" or "cancel". By values, of floats of
    at most 19 significant bits: those of `VALUES`, where "rare" are normal ones among which are a few of any bits.
    """
    row = FORMATS[fmt]
    if distribution in VALUES:
        codes = nearby_codes(fmt, _numbers(generator, fmt, shape, distribution))
        if distribution == "rare":
            return np.where(generator.random(shape) < 0.03, random_codes(generator, fmt, shape, "bits"), codes)
        return codes
    if distribution == "special":
        return generator.choice(special_codes(fmt), shape)
    if distribution == "finite":
        return generator.choice(_finite(special_codes(fmt), fmt), shape)
    if distribution == "zero":
        zeros = [0, 1 << (row.bits - 1)] if row.kind == "float" else [0]
        return generator.choice(np.array(zeros, np.uint64), shape).astype(row.code_dtype)
    anything = generator.integers(0, 1 << row.bits, shape, dtype=np.uint64)
    if distribution == "bits" or row.kind != "float":
        return anything.astype(row.code_dtype)
    mantissa = anything & np.uint64((1 << row.mantissa_bits + row.padding) - 1)
    low, high = {"near": (row.bias - 3, row.bias + 3), "tiny": (0, 3), "huge": (-5, -2), "cancel": (row.bias, row.bias + 1)}[distribution]
    most = (1 << row.exponent_bits) - 1
    if distribution == "huge":
        low, high = most + low, most + high
    exponent = generator.integers(max(low, 0), min(high, most - 1) + 1, shape).astype(np.uint64)
    if distribution == "cancel":
        mantissa = generator.choice(np.array([0, 1, (1 << row.mantissa_bits) - 1], np.uint64) << np.uint64(row.padding), shape)
    sign = generator.integers(0, 2, shape, dtype=np.uint64) << np.uint64(row.bits - 1)
    return (sign | exponent << np.uint64(row.mantissa_bits + row.padding) | mantissa).astype(row.code_dtype)


def _tiles(codes: Codes, rows: int, cols: int) -> Codes:
    """Zero-padded (tile rows, tile columns, rows, cols)."""
    padded = np.pad(codes, ((0, -codes.shape[0] % rows), (0, -codes.shape[1] % cols)))
    return padded.reshape(padded.shape[0] // rows, rows, padded.shape[1] // cols, cols).swapaxes(1, 2)


def _registers(tiles: Codes, ins: Instruction, name: str) -> Codes:
    operand = ins.operands[name]
    dtype = np.dtype(f"u{max(8, operand.layout.bits) // 8}")
    tiles = tiles.astype(dtype)
    if operand.layout.tiles > 1:  # the same product in every computation of the warp
        tiles = np.repeat(tiles[..., None, :, :], operand.layout.tiles, axis=-3)
    return fastmma.scatter(tiles, operand, kind=ins.kind)


def looped(ins: Instruction, target: str, a: Codes, b: Codes, c: Codes | None) -> Codes:
    """The instruction over k in ascending order, D fed back as C, at register level (wgmma, whose B is not in registers: on tiles)."""
    m, n = a.shape[0], b.shape[1]
    dtype = FORMATS[ins.dtype].code_dtype
    total = _tiles(np.zeros((m, n), dtype) if c is None else c, ins.m, ins.n)
    left, right = _tiles(a, ins.m, ins.k), _tiles(b, ins.k, ins.n)
    for step in range(left.shape[1]):
        x, y = left[:, step, None], right[None, step]
        if ins.op == "wgmma":
            inputs = elements(x, ins.atype), elements(y, ins.btype), elements(total, ins.ctype)
            total = bits(fastmma.mma(ins, *inputs, target=target))
            continue
        registers = _registers(x, ins, "a"), _registers(y, ins, "b"), _registers(total, ins, "c")
        result = fastmma.gather(fastmma.warp.mma(ins, *registers, target=target), ins.operands["d"], kind=ins.kind)
        total = (result[..., 0, :, :] if ins.tiles > 1 else result).astype(dtype)
    return total.swapaxes(1, 2).reshape(total.shape[0] * ins.m, total.shape[1] * ins.n)[:m, :n]
