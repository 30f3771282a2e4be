"""Conversions, extrema, remainders, NaN and numbers of a launch, here and on a GPU: `run(device, record)` as in recorded_kernels.py.

``python elementwise_kernels.py FILE`` on a machine with a GPU writes all results as bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def cast(x, y, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


@triton.jit
def two(x, y, z, HOW: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    if HOW == "max":
        r = tl.maximum(a, b)
    elif HOW == "min":
        r = tl.minimum(a, b)
    elif HOW == "max NaN":
        r = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif HOW == "min NaN":
        r = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif HOW == "add":
        r = a + b
    elif HOW == "mul":
        r = a * b
    elif HOW == "rem":
        r = a % b
    elif HOW == "fma":
        r = tl.fma(a, b, a)
    elif HOW == "clamp":
        r = tl.clamp(a, tl.minimum(b, 0.5), tl.maximum(b, 0.5))
    elif HOW == "abs":
        r = tl.abs(a)
    else:
        r = -a
    tl.store(z + i, r)


@triton.jit
def of_f32(x, y, z, HOW: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a, b = tl.load(x + i), tl.load(y + i)
    if HOW == "floor":
        r = tl.floor(a)
    elif HOW == "ceil":
        r = tl.ceil(a)
    elif HOW == "div_rn":
        r = tl.div_rn(a, b)
    else:
        r = tl.sqrt_rn(a)
    tl.store(z + i, r)


@triton.jit
def most(x, value, place, SIZE: tl.constexpr):
    r = tl.program_id(0)
    a = tl.load(x + r * SIZE + tl.arange(0, SIZE))
    tl.store(value + 2 * r, tl.max(a, 0))
    tl.store(value + 2 * r + 1, tl.min(a, 0))
    tl.store(place + 2 * r, tl.argmax(a, 0))
    tl.store(place + 2 * r + 1, tl.argmin(a, 0))


@triton.jit
def numbers(x, y, s, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    a = tl.load(x + i)
    for k in range(-n, n):
        tl.store(y + (k + n) * SIZE + i, (a * s) * k + (k // 2) + k % 3)


SIZE = TOTAL = 4096
FLOATS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
INTEGERS = {f"{kind}{bits}": getattr(torch, f"{kind}int{bits}".replace("iint", "int")) for kind in ("i", "u") for bits in (8, 16, 32, 64)}
CODES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(rng: Any, dtype: Any) -> Any:
    """Draw codes: half of them any, the rest of few bits, so that numbers are equal, whole, zero, infinite or NaN often."""
    size = dtype.itemsize
    codes = rng.integers(0, 1 << 62, TOTAL, dtype=np.int64) ^ (rng.integers(0, 4, TOTAL, dtype=np.int64) << 62)
    short = rng.integers(0, 1 << 10, TOTAL // 2, dtype=np.int64) << 54
    codes[: TOTAL // 2] = short
    codes = (codes.view(np.uint64) >> np.uint64(64 - 8 * size)).astype(f"u{size}")
    return torch.from_numpy(codes.view(f"i{size}") if size > 1 else codes).view(dtype)


def run(device: str, record: Callable[[str, Callable[[], Any]], None], seed: int = 88) -> None:
    """Run all kernels."""
    rng = np.random.default_rng(seed)
    grid = (TOTAL // SIZE,)

    def empty(like: Any, dtype: Any) -> Any:
        return torch.empty(like.shape, dtype=dtype, device=device)

    for source, dtype in (FLOATS | INTEGERS).items():
        x = bits(rng, dtype).to(device)
        for target, wanted in (INTEGERS if source in FLOATS else FLOATS).items():

            def converted(x=x, wanted=wanted):
                y = empty(x, wanted)
                cast[grid](x, y, SIZE)
                return y

            record(f"{source} to {target}", converted)
    for name, dtype in FLOATS.items():
        x, y = bits(rng, dtype).to(device), bits(rng, dtype).to(device)
        for how in ("max", "min", "max NaN", "min NaN", "add", "mul", "rem", "fma", "clamp", "abs", "neg"):
            if name == "f64" and how in ("add", "mul", "rem", "fma", "max NaN", "min NaN", "clamp"):
                x, y = x.nan_to_num(1.0), y.nan_to_num(1.0)  # the bits of its NaN are not known

            def binary(x=x, y=y, how=how, dtype=dtype):
                z = empty(x, dtype)
                two[grid](x, y, z, how, SIZE)
                return z

            record(f"{how} {name}", binary)
    x, y = bits(rng, torch.float32).to(device), bits(rng, torch.float32).to(device)
    for how in ("floor", "ceil", "div_rn", "sqrt_rn"):

        def whole(how=how):
            z = empty(x, torch.float32)
            of_f32[grid](x, y, z, how, SIZE)
            return z

        record(f"{how} f32", whole)
    for size in (2, 32, 512):
        row = bits(rng, torch.float32).nan_to_num(0.0).reshape(-1, size)[:64]
        row[:, ::2] = 0.0 * row[:, ::2]
        row = row.contiguous().to(device)

        def extrema(row=row, size=size):
            value, place = torch.empty(len(row), 2, device=device), torch.empty(len(row), 2, dtype=torch.int32, device=device)
            most[(len(row),)](row, value, place, size)
            return torch.cat([value.view(torch.int32), place])

        record(f"extrema {size}", extrema)
    for name in ("f32", "f16", "bf16"):
        x = torch.from_numpy(rng.standard_normal(SIZE)).to(FLOATS[name]).to(device)

        def counted(x=x):
            y = torch.empty(10 * SIZE, device=device)
            numbers[(1,)](x, y, 0.1, 5, SIZE)
            return y

        record(f"numbers {name}", counted)


def as_bytes(result: Any) -> Any:
    """Return the codes of a result."""
    return result.cpu().contiguous().view(torch.uint8).numpy()


if __name__ == "__main__":
    found: dict[str, Any] = {}
    refused: dict[str, str] = {}

    def keep(name: str, call: Callable[[], Any]) -> None:
        try:
            found[name] = as_bytes(call())
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {error}"[:300]

    run("cuda", keep)
    np.savez_compressed(sys.argv[1], **found)
    print(torch.cuda.get_device_name(), "Triton", triton.__version__, len(found), "results, refused:", refused)
