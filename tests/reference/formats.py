"""Facts of the formats, typed from their specifications, and codes at their edges."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "tf32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
    "s32": np.int32,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "b1": np.bool_,
}
BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "e3m2": 6, "e2m3": 6, "e2m1": 4, "s4": 4, "u4": 4, "b1": 1}
LARGEST = {
    "f64": np.finfo(np.float64).max,
    "f32": float(np.finfo(np.float32).max),
    "tf32": (2 - 2.0**-10) * 2.0**127,
    "f16": 65504,
    "bf16": (2 - 2.0**-7) * 2.0**127,
    "e4m3": 448,
    "e5m2": 57344,
    "e4m3fnuz": 240,
    "e5m2fnuz": 57344,
    "e3m2": 28,
    "e2m3": 7.5,
    "e2m1": 6,
    "ue8m0": 2.0**127,
    "ue4m3": 448,
}
SMALLEST = {
    "f64": 2.0**-1074,
    "f32": 2.0**-149,
    "tf32": 2.0**-136,
    "f16": 2.0**-24,
    "bf16": 2.0**-133,
    "e4m3": 2.0**-9,
    "e5m2": 2.0**-16,
    "e4m3fnuz": 2.0**-10,
    "e5m2fnuz": 2.0**-17,
    "e3m2": 2.0**-4,
    "e2m3": 2.0**-3,
    "e2m1": 0.5,
    "ue8m0": 2.0**-127,
    "ue4m3": 2.0**-9,
}
FLOATS = tuple(LARGEST)
SIGNED_FLOATS = tuple(name for name in FLOATS if not name.startswith("ue"))
NARROW = tuple(name for name in SIGNED_FLOATS if name not in ("f64", "f32", "tf32"))
UINT = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def bits_of(elements: NDArray[Any], name: str) -> NDArray[Any]:
    return np.ascontiguousarray(elements).view(UINT[max(8, BITS.get(name, 8))])


def edges(dtype: type[Any]) -> NDArray[Any]:
    """Every exponent with mantissas at the ends and in the middle, both signs, specials included, and random bits."""
    info = np.finfo(dtype)
    unsigned = UINT[info.bits]
    exponents = np.arange(1 << (info.bits - 1 - info.nmant), dtype=np.uint64) << np.uint64(info.nmant)
    top = (1 << info.nmant) - 1
    mantissas = np.array(
        [0, 1, 2, top >> 1, (top >> 1) + 1, top - 1, top, 0x1000 & top, 0xFFF & top, 0x1FFF & top, 0x3000 & top], np.uint64
    )
    codes = (exponents[:, None] | mantissas).ravel()
    codes = np.concatenate([codes, codes | np.uint64(1 << (info.bits - 1))]).astype(unsigned)
    random = np.random.default_rng(1).integers(0, 1 << info.bits, 20_000, dtype=unsigned)
    return np.concatenate([codes, random])
