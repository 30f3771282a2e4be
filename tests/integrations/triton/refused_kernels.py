"""Kernels that Triton's compiler refuses, as users write them: what each one says, and what is advised."""

# ruff: noqa: ARG001, F821, SIM105 - what is wrong with them
from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def forgets_constexpr(x, y, n):
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def multiplies_other_shapes(x, y, N: tl.constexpr):
    i, j = tl.arange(0, N), tl.arange(0, 32)
    a = tl.load(x + i[:, None] + i[None, :])
    b = tl.load(x + j[:, None] + i[None, :])
    c = tl.dot(a, b)
    tl.store(y + i, tl.sum(c, 1))


@triton.jit
def multiplies_other_types(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i[:, None] + i[None, :])
    c = tl.dot(a, a.to(tl.float16))
    tl.store(y + i, tl.sum(c, 1))


@triton.jit
def multiplies_vectors(x, y, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    tl.store(y, tl.dot(a, a))


@triton.jit
def imports(x, y, N: tl.constexpr):
    import math

    tl.store(y + tl.arange(0, N), math.sqrt(2.0))


@triton.jit
def calls_torch(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), torch.relu(tl.load(x + tl.arange(0, N))))


@triton.jit
def calls_numpy(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), np.sqrt(tl.load(x + tl.arange(0, N))))


@triton.jit
def asks_all(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    if v > 3:
        v = v * 2
    tl.store(y + tl.arange(0, N), v)


@triton.jit
def slices(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, 32), v[:32])


@triton.jit
def assigns_one(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    v[0] = 1.0
    tl.store(y + tl.arange(0, N), v)


@triton.jit
def names_nothing(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N)) * scale)


@triton.jit
def loads_from_numbers(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, N), tl.load(v))


@triton.jit
def masks_other_shapes(x, y, N: tl.constexpr):
    m = tl.arange(0, 32) < 20
    tl.store(y + tl.arange(0, N), tl.load(x + tl.arange(0, N), mask=m))


@triton.jit
def sums_no_axis(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(y, tl.sum(v, axis=1))


@triton.jit
def reshapes_to_more(x, y, N: tl.constexpr):
    v = tl.reshape(tl.load(x + tl.arange(0, N)), (8, 16))
    tl.store(y + tl.arange(0, 8), tl.sum(v, 1))


@triton.jit
def breaks(x, y, N: tl.constexpr):
    for k in range(4):
        if k == 2:
            break
        tl.store(y + k, tl.load(x + k))


@triton.jit
def changes_type(x, y, n):
    total = 0
    for k in range(n):
        total += tl.load(x + k)
    tl.store(y, total)


@triton.jit
def comprehends(x, y, N: tl.constexpr):
    parts = [tl.load(x + tl.arange(0, N)) * k for k in range(3)]
    tl.store(y + tl.arange(0, N), parts[0])


@triton.jit
def asserts(x, y, N: tl.constexpr):
    tl.static_assert(N % 128 == 0, "N must be a multiple of 128")
    tl.store(y + tl.arange(0, N), 0.0)


@triton.jit
def shifts_floats(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N)) << 2
    tl.store(y + tl.arange(0, N), v)


@triton.jit
def takes_no_type(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N)).to(tl.float15)
    tl.store(y + tl.arange(0, N), v)


@triton.jit
def bends_integers(x, y, N: tl.constexpr):
    v = libdevice.tanh(tl.arange(0, N))
    tl.store(y + tl.arange(0, N), v)


@triton.jit
def adds_text(x, y, N: tl.constexpr):
    v = "a" + tl.arange(0, N)
    tl.store(y + tl.arange(0, N), v)


@triton.jit
def stores_text(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(y + tl.arange(0, N), f"{v}")


@triton.jit
def factorial(v):
    return v * factorial(v - 1)


@triton.jit
def recurses(x, y, N: tl.constexpr):
    tl.store(y + tl.arange(0, N), factorial(tl.arange(0, N)))


@triton.jit
def tries(x, y, N: tl.constexpr):
    try:
        tl.store(y + tl.arange(0, N), 1.0)
    except ValueError:
        pass


@triton.jit
def permutes_twice(x, y, N: tl.constexpr):
    v = tl.permute(tl.load(x + tl.arange(0, N)[:, None] + tl.arange(0, N)[None, :]), (0, 2))
    tl.store(y + tl.arange(0, N), tl.sum(v, 1))


@triton.jit
def rounds_as_amd(x, y, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N)).to(tl.float8e4b8)
    tl.store(y + tl.arange(0, N), v.to(tl.float32))


# the kernel, the start of its line, a part of the reason, and a part of the advice
REFUSED: tuple[tuple[Any, str, str, str], ...] = (
    (forgets_constexpr, "i = tl.arange(0, n)", "must be of type tl.constexpr", "annotate the argument"),
    (multiplies_other_shapes, "c = tl.dot(a, b)", "equal reduction dimensions", "load, permute or cast"),
    (multiplies_other_types, "c = tl.dot(a, a.to(", "must be same dtype. Got fp32 and fp16", "load, permute or cast"),
    (multiplies_vectors, "tl.store(y, tl.dot(a, a))", "equal ranks >= 2", "tl.sum(a * b)"),
    (imports, "import math", "Import", "without this statement"),
    (calls_torch, "def calls_torch", "relu", "functions of tl"),
    (calls_numpy, "def calls_numpy", "sqrt", "functions of tl"),
    (asks_all, "if v > 3:", "Boolean value of Tensor", "tl.where"),
    (slices, "tl.store(y + tl.arange(0, 32), v[:32])", "unsupported tensor index", "tl.gather"),
    (assigns_one, "v[0] = 1.0", "__setitem__", "tl.where"),
    (names_nothing, "tl.store(y + tl.arange(0, N), tl.load(", "scale is not defined", "how the name is written"),
    (loads_from_numbers, "tl.store(y + tl.arange(0, N), tl.load(v))", "Unsupported ptr type", "a tensor of the launch"),
    (masks_other_shapes, "tl.store(y + tl.arange(0, N), tl.load(x", "64 and 32", "the same shape"),
    (sums_no_axis, "tl.store(y, tl.sum(v, axis=1))", "invalid axis 1", "from 0"),
    (reshapes_to_more, "v = tl.reshape(", "total number of elements", "as many elements"),
    (breaks, "break", "Break", "bounds of the loop"),
    (changes_type, "for k in range(n):", "int32 but is re-assigned to fp32", "its last type before the loop"),
    (comprehends, "parts = [", "only tuple comprehensions", "tl.static_range"),
    (asserts, "tl.static_assert(", "N must be a multiple of 128", "its assertion holds"),
    (shifts_floats, "v = tl.load(x + tl.arange(0, N)) << 2", "invalid operands", "cast with .to()"),
    (takes_no_type, "v = tl.load(", "float15", "how the name is written"),
    (bends_integers, "v = libdevice.tanh(", "int32", "cast the arguments"),
    (adds_text, 'v = "a" +', "'str' object", "no strings"),
    (stores_text, "tl.store(y + tl.arange(0, N), f", "f-string", "tl.device_print"),
    (recurses, "return v * factorial(v - 1)", "factorial", "write a loop"),
    (tries, "try:", "Try", "without this statement"),
    (permutes_twice, "v = tl.permute(", "permutation of 0, 1", "each axis once"),
    (rounds_as_amd, "v = tl.load(", "fp8e4b8 not supported in this architecture", "name another GPU"),
)
